//! VPIC's particle dumps: a header of 115 bytes, packed and little-endian, and particles of 32 bytes.
//!
//! Columns, units and constants are those that `turbidite ingest` gives the same files, in the same order.
//!
//! Invariant: what is compared in a header does not depend on the configuration, so that a file that is no dump of
//! particles, or of which a part is missing, is never indexed.

use turbidite::{Column, DataType};

use crate::checks::{Lengths, check_count, hexadecimal};
use crate::config::Field;

/// Length of the header.
pub(crate) const HEADER_BYTES: usize = 115;

/// Length of a particle.
pub(crate) const PARTICLE_BYTES: usize = 32;

/// Places of an element's size and of the number of elements.
const ELEMENT_BYTES: usize = 103;
const COUNT: usize = 111;

/// What every dump of particles has in its header: where, the bytes, and what they are.
const FIXED: [(usize, &[u8], &str); 12] = [
    (0, &[8], "the number of bits of a char"),
    (1, &[2], "the size of a short"),
    (2, &[4], "the size of an int"),
    (3, &[4], "the size of a float"),
    (4, &[8], "the size of a double"),
    (5, &0xcafe_u16.to_le_bytes(), "the short 0xcafe"),
    (7, &0xdead_beef_u32.to_le_bytes(), "the int 0xdeadbeef"),
    (11, &1f32.to_le_bytes(), "the float 1"),
    (15, &1f64.to_le_bytes(), "the double 1"),
    (23, &0i32.to_le_bytes(), "the version 0"),
    (27, &3i32.to_le_bytes(), "the dump type 3 of particles"),
    (107, &1i32.to_le_bytes(), "the number of dimensions, which is 1,"),
];

/// Constants of a header: name, place and type.
const CONSTANTS: [(&str, usize, DataType); 18] = [
    ("header.step", 31, DataType::I32),
    ("header.nx", 35, DataType::I32),
    ("header.ny", 39, DataType::I32),
    ("header.nz", 43, DataType::I32),
    ("header.dt", 47, DataType::F32),
    ("header.dx", 51, DataType::F32),
    ("header.dy", 55, DataType::F32),
    ("header.dz", 59, DataType::F32),
    ("header.x0", 63, DataType::F32),
    ("header.y0", 67, DataType::F32),
    ("header.z0", 71, DataType::F32),
    ("header.cvac", 75, DataType::F32),
    ("header.eps0", 79, DataType::F32),
    ("header.damp", 83, DataType::F32),
    ("header.rank", 87, DataType::I32),
    ("header.ranks", 91, DataType::I32),
    ("header.species", 95, DataType::I32),
    ("header.q_m", 99, DataType::F32),
];

/// The fields of a particle.
pub(crate) fn fields() -> Vec<Field> {
    let column = |(index, name): (usize, &str)| {
        let data_type = if name == "i" { DataType::I32 } else { DataType::F32 };
        let column = Column::new(name, data_type);
        let column = if name.starts_with('u') { column.with_unit("mc") } else { column };
        Field { column, offset: 4 * index }
    };
    ["dx", "dy", "dz", "i", "ux", "uy", "uz", "w"].into_iter().enumerate().map(column).collect()
}

/// The constants of a header.
pub(crate) fn constants() -> Vec<Field> {
    CONSTANTS.map(|(name, offset, data_type)| Field { column: Column::new(name, data_type), offset }).into()
}

/// Compares a header with what VPIC writes, and its number of particles with the file's length. The error has no file
/// name.
pub(crate) fn check(header: &[u8; HEADER_BYTES], file_bytes: u64) -> Result<(), String> {
    if header[5..7] == 0xcafe_u16.to_be_bytes() {
        return Err("was written on a big-endian machine; only little-endian dumps of VPIC can be indexed".to_owned());
    }
    for (offset, expected, what) in FIXED {
        let found = &header[offset..offset + expected.len()];
        if found != expected {
            return Err(format!(
                "is no particle dump of VPIC: {what} is expected at byte {offset}, as {}, found {}; leave format = \
                 \"vpic\" out for other files, and describe their records",
                hexadecimal(expected),
                hexadecimal(found)
            ));
        }
    }
    let number = |offset: usize| header[offset..].first_chunk().map_or(-1, |bytes| i32::from_le_bytes(*bytes));
    let element_bytes = number(ELEMENT_BYTES);
    if element_bytes != PARTICLE_BYTES as i32 {
        return Err(format!(
            "has particles of {element_bytes} bytes, expected VPIC's own {PARTICLE_BYTES}; describe them as raw records: \
             header_bytes = {HEADER_BYTES}, record_bytes = {element_bytes}, records = \"i32@{COUNT}\", and every field"
        ));
    }
    let lengths = Lengths { file: file_bytes, header: HEADER_BYTES as u64, record: PARTICLE_BYTES as u64 };
    let advice = "the file was not written to its end, or is written to by somebody else";
    check_count(number(COUNT).into(), lengths).map_err(|what| format!("{what}; {advice}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first file of the repository's sample: a header, and so many bytes in all.
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
            "the dump type 3 of particles is expected at byte 27, as 03 00 00 00, found 01 00 00 00; leave format";
        assert!(type_of_fields.contains(words), "{type_of_fields}");
        let longer = said(103, &[48, 0, 0, 0]);
        assert!(longer.contains("particles of 48 bytes, expected VPIC's own 32"), "{longer}");
        assert!(longer.contains("header_bytes = 115, record_bytes = 48, records = \"i32@111\""), "{longer}");
        assert!(said(111, &[255; 4]).contains("states -1 records"));
    }
}
