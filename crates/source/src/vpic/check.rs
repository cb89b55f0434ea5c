//! Checks a single dump.
//!
//! Invariant: no setting of a configuration disables these checks, so that files that are incomplete or not particle
//! dumps are never indexed.

use super::header::{HEADER_BYTES, Header, MARKS, PARTICLES, SHORT_MAGIC};
use super::particle::PARTICLE_BYTES;
use crate::checks::{Lengths, check_count, hexadecimal};

/// Checks a header against VPIC's format, and its number of particles against the file's length.
///
/// # Errors
/// Returns the difference and what to do, without the file's name.
pub fn check(header: &[u8; HEADER_BYTES], file_bytes: u64) -> Result<(), String> {
    if MARKS[SHORT_MAGIC].found(header) == 0xcafe_u16.to_be_bytes() {
        return Err("was written on a big-endian machine; only little-endian dumps of VPIC can be indexed".to_owned());
    }
    if let Some(mark) = MARKS.iter().find(|mark| !mark.is_in(header)) {
        return Err(format!(
            "is not a VPIC particle dump: {} is expected at byte {}, as {}, found {}; omit format = \"vpic\" for other \
             files, and describe their records",
            mark.meaning,
            mark.offset,
            hexadecimal(mark.bytes),
            hexadecimal(mark.found(header))
        ));
    }
    let Header { element_bytes, particles, .. } = Header::decode(header);
    if element_bytes != PARTICLE_BYTES as i32 {
        return Err(format!(
            "has particles of {element_bytes} bytes, expected VPIC's own {PARTICLE_BYTES}; describe them as raw records: \
             header_bytes = {HEADER_BYTES}, record_bytes = {element_bytes}, records = \"i32@{PARTICLES}\", and every field"
        ));
    }
    let lengths = Lengths { file: file_bytes, header: HEADER_BYTES as u64, record: PARTICLE_BYTES as u64 };
    let advice = "the file is incomplete, or another process is writing it";
    check_count(particles.into(), lengths).map_err(|what| format!("{what}; {advice}"))
}

#[cfg(test)]
mod tests {
    use super::super::header::ELEMENT_BYTES;
    use super::*;

    /// Returns the header and the length of the first file of the repository's sample.
    fn sample() -> ([u8; HEADER_BYTES], u64) {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/vpic/T.500/eparticle.500.0");
        let content = std::fs::read(path).unwrap();
        (*content.first_chunk().unwrap(), content.len() as u64)
    }

    #[test]
    fn what_vpic_wrote_is_taken() {
        let (header, bytes) = sample();
        assert_eq!(check(&header, bytes), Ok(()));
    }

    #[test]
    fn every_byte_that_is_compared_counts() {
        let (header, bytes) = sample();
        for place in (0..31).chain(ELEMENT_BYTES..HEADER_BYTES) {
            let mut broken = header;
            broken[place] ^= 0x40;
            assert!(check(&broken, bytes).is_err(), "{place}");
        }
        for other in [bytes - 1, bytes + 1, bytes - 32, bytes + 32, 115] {
            let said = check(&header, other).unwrap_err();
            assert!(said.contains(&format!("but its {other} bytes hold")), "{said}");
        }
    }

    #[test]
    fn errors_name_what_is_there_and_what_to_do() {
        let (header, bytes) = sample();
        let said = |offset: usize, value: &[u8]| {
            let mut broken = header;
            broken[offset..offset + value.len()].copy_from_slice(value);
            check(&broken, bytes).unwrap_err()
        };
        assert!(said(5, &[0xca, 0xfe]).contains("big-endian machine; only little-endian"));
        let type_of_fields = said(27, &[1, 0, 0, 0]);
        let words =
            "the dump type 3 of particles is expected at byte 27, as 03 00 00 00, found 01 00 00 00; omit format";
        assert!(type_of_fields.contains(words), "{type_of_fields}");
        let longer = said(103, &[48, 0, 0, 0]);
        assert!(longer.contains("particles of 48 bytes, expected VPIC's own 32"), "{longer}");
        assert!(longer.contains("header_bytes = 115, record_bytes = 48, records = \"i32@111\""), "{longer}");
        assert!(said(111, &[255; 4]).contains("states -1 records"));
    }
}
