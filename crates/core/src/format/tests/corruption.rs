//! Flips every byte of a part in turn. Reading the part then returns an error or the written data.

use super::*;
use crate::error::{Error, ErrorClass};
use crate::schema::Value;

fn small_part() -> Written {
    let schema = schema_of(&[DataType::F32, DataType::U16, DataType::F64], 0);
    let mut noise = Noise(3);
    let runs: Vec<_> =
        (0..2).map(|run| (context(run), random_rows(&schema, 90, &mut noise, |column| column == 2))).collect();
    let options = PartOptions { page_rows: 20, row_groups_per_run: 2, write_bytes: 1 << 20 };
    write_part(&schema, options, &runs)
}

type Everything = Vec<(Vec<u8>, Vec<Option<(Value, Value)>>)>;

/// Returns all values and page ranges of the part.
fn read_everything(written: &Written) -> crate::Result<Everything> {
    let reader = written.open()?;
    let mut everything = Vec::new();
    for row_group in 0..reader.row_groups() {
        for column in 0..written.schema.columns().len() {
            let mut values = Vec::new();
            let pages = reader.pages(row_group, column)?.len();
            for page in 0..pages {
                reader.read_page(row_group, column, page, true, &mut values)?;
            }
            everything.push((values, (0..pages).map(|page| reader.page_range(row_group, column, page)).collect()));
        }
    }
    Ok(everything)
}

#[test]
fn a_flipped_byte_is_found_or_does_no_harm() {
    let written = small_part();
    let content = written.content();
    let expected = read_everything(&written).unwrap();
    let mut found = 0;
    let in_run =
        |offset: usize| written.runs.iter().any(|run| (run.offset..run.offset + run.bytes).contains(&(offset as u64)));
    for offset in 0..content.len() {
        for bit in [1u8, 0x80] {
            let mut corrupted = content.clone();
            corrupted[offset] ^= bit;
            written.put(&corrupted);
            match read_everything(&written) {
                Err(error) => {
                    assert_eq!(error.class(), ErrorClass::Corruption, "byte {offset}: {error}");
                    assert!(error.to_string().contains("part-00007.parquet"), "byte {offset}: {error}");
                    found += 1;
                }
                Ok(read) => {
                    assert!(read == expected, "byte {offset}: other values came back");
                    assert!((offset as u64) < written.entry.footer_offset, "byte {offset} of the footer did not show");
                }
            }
            let run = written.runs.iter().find(|run| (run.offset..run.offset + run.bytes).contains(&(offset as u64)));
            if let Some(run) = run {
                let bytes = &written.content()[run.offset as usize..(run.offset + run.bytes) as usize];
                assert_ne!(
                    xxhash_rust::xxh3::xxh3_64(bytes),
                    run.checksum,
                    "byte {offset}: the run's checksum misses it"
                );
            }
        }
    }
    let covered = (0..content.len()).filter(|offset| in_run(*offset)).count();
    assert!(found > covered, "{found} of {} flips were found", 2 * content.len());
}

#[test]
fn a_flipped_value_is_found_by_the_page_checksum_alone() {
    let written = small_part();
    let reader = written.open().unwrap();
    let page = reader.pages(1, 2).unwrap()[1];
    let content = written.content();
    let mut raw = content[page.offset as usize..(page.offset + u64::from(page.bytes)) as usize].to_vec();
    let mut out = Vec::new();
    assert_eq!(reader.decode_page(&raw, 2, true, &mut out).unwrap(), page.rows as usize);
    *raw.last_mut().unwrap() ^= 1;
    let error = reader.decode_page(&raw, 2, true, &mut out).unwrap_err();
    assert!(matches!(error, Error::Corruption { .. }), "{error}");
    assert!(reader.decode_page(&raw, 2, false, &mut out).is_ok(), "not looked at unless asked to");
    for cut in 0..raw.len() {
        assert!(reader.decode_page(&raw[..cut], 2, false, &mut out).is_err(), "cut to {cut} bytes");
    }
    assert!(reader.decode_page(&raw, 0, false, &mut out).is_err(), "a page of f64 is none of f32");
}

#[test]
fn a_truncated_or_exchanged_part_is_an_error() {
    let written = small_part();
    let content = written.content();
    for bytes in [0, 3, 8, 100, content.len() - 1] {
        written.put(&content[..bytes]);
        assert!(matches!(written.open().unwrap_err(), Error::Corruption { .. }), "{bytes} bytes");
        let identified = PartReader::identify(&*written.storage, &written.path);
        assert!(matches!(identified.unwrap_err(), Error::Corruption { .. }), "{bytes} bytes");
    }
    written.put(&content);
    let open = |entry: &PartEntry, commit| {
        PartReader::open(&*written.storage, &written.path, entry, commit, Arc::clone(&written.schema))
    };
    assert!(open(&written.entry, Uuid::from_u128(1)).is_err(), "another commit");
    assert!(open(&PartEntry { part: PartId { rank: 8, roll: 0 }, ..written.entry }, identity().commit).is_err());
    assert!(open(&PartEntry { footer_offset: u64::MAX, ..written.entry }, identity().commit).is_err());
    assert!(open(&PartEntry { footer_offset: written.entry.bytes, ..written.entry }, identity().commit).is_err());
    let other = schema_of(&[DataType::F32, DataType::U16, DataType::I64], 0);
    assert!(PartReader::open(&*written.storage, &written.path, &written.entry, identity().commit, other).is_err());
    assert!(written.storage.open(&written.path).is_ok());
}

/// Forged footers with a valid checksum cause neither a panic nor unbounded memory use.
#[test]
fn a_forged_footer_does_not_panic() {
    let written = small_part();
    let content = written.content();
    let footer_offset = written.entry.footer_offset as usize;
    for offset in footer_offset..content.len() {
        for flip in [1u8, 0x10, 0x80, 0xff] {
            let mut forged = content.clone();
            forged[offset] ^= flip;
            let entry =
                PartEntry { footer_checksum: xxhash_rust::xxh3::xxh3_64(&forged[footer_offset..]), ..written.entry };
            written.put(&forged);
            let forged = Written {
                storage: Arc::clone(&written.storage),
                path: written.path.clone(),
                schema: Arc::clone(&written.schema),
                entry,
                runs: Vec::new(),
            };
            let _ = read_everything(&forged);
        }
    }
}
