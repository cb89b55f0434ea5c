//! Raw fixed-size records that a TOML file describes.
//!
//! ```toml
//! # CARP's published VPIC traces: one energy per record and nothing else.
//! path = "T.{epoch}/eparticle.{epoch}.{rank}"
//! header_bytes = 0          # skipped at the beginning of each file
//! record_bytes = 4          # may be left out: then records end with their last field
//! ranks = 512               # may be left out: then the ranks that are there must be 0, 1, 2, … without a gap
//!
//! [[field]]
//! name = "energy"
//! type = "f32"
//! unit = "mc^2"             # may be left out
//! offset = 0                # may be left out: then the field follows the one before it
//!
//! [filler]                  # may be left out: bytes attached to each record, generated
//! name = "payload"
//! bytes = 56
//! ```

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use turbidite::{Column, DataType};

use super::error::{SourceContext, SourceError};
use super::pattern::{Match, Pattern};
use super::{Field, Filler, RecordFile, Source, SourceOptions, file_bytes};

/// Longest layout file that is read: a misgiven data file should not be.
const MAX_LAYOUT_BYTES: u64 = 1 << 20;

/// Longest record, in bytes.
const MAX_RECORD_BYTES: usize = 1 << 20;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Layout {
    path: String,
    #[serde(default)]
    header_bytes: u64,
    record_bytes: Option<usize>,
    ranks: Option<u32>,
    #[serde(rename = "field", default)]
    fields: Vec<FieldLayout>,
    filler: Option<FillerLayout>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FieldLayout {
    name: String,
    #[serde(rename = "type")]
    data_type: String,
    unit: Option<String>,
    offset: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FillerLayout {
    name: String,
    bytes: u32,
}

/// Looks through the files below `root` that the layout describes.
pub(crate) fn open(root: &Path, layout_path: &Path, options: &SourceOptions) -> Result<Source, SourceError> {
    if options.species.is_some() || !options.extra.is_empty() {
        return Err(SourceError::Usage(
            "--species and --extra are for VPIC dumps; with --layout the layout says it".into(),
        ));
    }
    let layout = read_layout(layout_path)?;
    let wrong = |what: String| SourceError::Layout { path: layout_path.to_owned(), what };
    let pattern = Pattern::parse(&layout.path).map_err(wrong)?;
    let (fields, record_bytes) = fields(&layout).map_err(wrong)?;
    if let Some(filler) = &layout.filler
        && (filler.bytes == 0 || filler.bytes > turbidite::MAX_FIXED_BYTES)
    {
        return Err(wrong(format!("filler: {} bytes are outside 1 to {}", filler.bytes, turbidite::MAX_FIXED_BYTES)));
    }
    let matches = pattern.find(root)?;
    if matches.is_empty() {
        let what = format!("no files called {} in it, as {} says", layout.path, layout_path.display());
        return Err(SourceError::Unfit { path: root.to_owned(), what });
    }
    let mut epochs: BTreeMap<u64, BTreeMap<u32, RecordFile>> = BTreeMap::new();
    for one in matches {
        add_file(&mut epochs, one, layout.header_bytes, record_bytes)?;
    }
    for (&epoch, files) in &epochs {
        check_ranks(root, &pattern, epoch, files, layout.ranks)?;
    }
    let notes = notes(&epochs);
    Ok(Source {
        epochs: epochs.into_iter().map(|(epoch, files)| (epoch, files.into_values().collect())).collect(),
        fields,
        filler: layout.filler.map(|filler| Filler::new(&filler.name, filler.bytes)),
        header_bytes: layout.header_bytes,
        record_bytes,
        constants: &[],
        notes,
    })
}

fn read_layout(path: &Path) -> Result<Layout, SourceError> {
    if file_bytes(path)? > MAX_LAYOUT_BYTES {
        return Err(SourceError::Layout { path: path.to_owned(), what: "too long for a layout".into() });
    }
    let text = std::fs::read_to_string(path).of("read", path)?;
    toml::from_str(&text).map_err(|error| SourceError::Layout { path: path.to_owned(), what: error.to_string() })
}

/// Places the fields and finds the record's length.
fn fields(layout: &Layout) -> Result<(Vec<Field>, usize), String> {
    let mut fields = Vec::with_capacity(layout.fields.len());
    let (mut next, mut end) = (0usize, 0usize);
    for field in &layout.fields {
        let data_type: DataType =
            field.data_type.parse().map_err(|error| format!("field '{}': {error}", field.name))?;
        let mut column = Column::new(&field.name, data_type);
        column.unit.clone_from(&field.unit);
        let offset = field.offset.unwrap_or(next);
        next = offset.checked_add(data_type.width()).filter(|next| *next <= MAX_RECORD_BYTES).ok_or_else(|| {
            format!("field '{}' ends beyond the longest record, {MAX_RECORD_BYTES} bytes", field.name)
        })?;
        end = end.max(next);
        fields.push(Field { column, offset });
    }
    let record_bytes = layout.record_bytes.unwrap_or(end);
    if fields.is_empty() {
        return Err("there are no [[field]]".into());
    }
    if record_bytes < end || record_bytes > MAX_RECORD_BYTES {
        return Err(format!(
            "record_bytes is {record_bytes}, expected {end} (the end of the fields) to {MAX_RECORD_BYTES}"
        ));
    }
    Ok((fields, record_bytes))
}

/// Checks a file's length and enters it.
fn add_file(
    epochs: &mut BTreeMap<u64, BTreeMap<u32, RecordFile>>,
    found: Match,
    header_bytes: u64,
    record_bytes: usize,
) -> Result<(), SourceError> {
    let Match { epoch, rank, path } = found;
    let length = file_bytes(&path)?;
    let record = record_bytes as u64;
    let body = length.checked_sub(header_bytes).filter(|body| body.is_multiple_of(record));
    let Some(body) = body else {
        let header = if header_bytes > 0 { format!("{header_bytes} of header and ") } else { String::new() };
        let expected = format!("{header}a multiple of the {record_bytes} bytes of a record");
        return Err(SourceError::Length { path, found: length, expected });
    };
    let file = RecordFile { path, rank, records: body / record, constants: Box::default() };
    match epochs.entry(epoch).or_default().insert(rank, file.clone()) {
        Some(other) => Err(SourceError::Twice { one: other.path, other: file.path, epoch, rank }),
        None => Ok(()),
    }
}

/// Checks that the ranks are 0, 1, 2, … to the end.
fn check_ranks(
    root: &Path,
    pattern: &Pattern,
    epoch: u64,
    files: &BTreeMap<u32, RecordFile>,
    stated: Option<u32>,
) -> Result<(), SourceError> {
    let found = files.keys().last().map_or(0, |last| u64::from(*last) + 1);
    let expected = stated.map_or(found, u64::from);
    // The number of files bounds the search, however large the stated number is.
    let missing = (0..=u32::MAX).zip(files.keys()).find(|(rank, key)| rank != *key).map(|(rank, _)| rank);
    let missing = missing.or_else(|| u32::try_from(files.len()).ok().filter(|next| u64::from(*next) < expected));
    if let Some(rank) = missing {
        return Err(SourceError::MissingRank {
            path: pattern.path(root, epoch, rank),
            reason: format!("epoch {epoch} has {} of {} ranks", files.len(), expected.max(found)),
        });
    }
    if found > expected {
        let what = format!("epoch {epoch} has {found} ranks, but the layout states ranks = {expected}");
        return Err(SourceError::Unfit { path: root.to_owned(), what });
    }
    Ok(())
}

/// Without a header nothing says how many ranks there were: point out epochs that differ.
fn notes(epochs: &BTreeMap<u64, BTreeMap<u32, RecordFile>>) -> Vec<String> {
    let mut counts = epochs.iter().map(|(epoch, files)| (epoch, files.len()));
    let Some((first, ranks)) = counts.next() else { return Vec::new() };
    let other = counts.find(|(_, other)| *other != ranks);
    let say =
        |(epoch, other)| format!("epoch {first} has {ranks} ranks, but epoch {epoch} has {other}; are files missing?");
    other.map(say).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::super::RankReader;
    use super::*;

    const CARP: &str = "path = 'T.{epoch}/e.{epoch}.{rank}'\n[[field]]\nname = 'energy'\ntype = 'f32'\nunit = 'mc^2'\n";

    /// A folder with a layout and traces of `counts[rank]` records each, for two epochs.
    fn traces(layout: &str, counts: &[usize], record_bytes: usize) -> (tempfile::TempDir, SourceOptions) {
        let root = tempfile::tempdir().unwrap();
        for epoch in [200, 1000] {
            std::fs::create_dir_all(root.path().join(format!("T.{epoch}"))).unwrap();
            for (rank, &count) in counts.iter().enumerate() {
                let bytes: Vec<u8> = (0..count * record_bytes).map(|byte| (byte + rank) as u8).collect();
                std::fs::write(root.path().join(format!("T.{epoch}/e.{epoch}.{rank}")), bytes).unwrap();
            }
        }
        let path = root.path().join("layout.toml");
        std::fs::write(&path, layout).unwrap();
        (root, SourceOptions { layout: Some(path), ..Default::default() })
    }

    fn refused(layout: &str) -> String {
        let (root, options) = traces(layout, &[3, 2], 4);
        Source::open(root.path(), &options).unwrap_err().to_string()
    }

    #[test]
    fn headerless_traces_are_read() {
        let (root, options) = traces(&format!("{CARP}[filler]\nname = 'payload'\nbytes = 56\n"), &[3, 0, 5], 4);
        let source = Source::open(root.path(), &options).unwrap();
        assert_eq!(source.epochs().collect::<Vec<_>>(), [200, 1000]);
        assert_eq!((source.ranks(), source.records(200), source.record_bytes()), (3, 8, 4));
        let columns = source.columns();
        assert_eq!(columns[0], Column::new("energy", DataType::F32).with_unit("mc^2"));
        assert_eq!(columns[1], Column::new("payload", DataType::FixedBytes(56)));
    }

    /// Every byte of every file reaches exactly one reader, whatever the number of ranks and the size of the chunks.
    #[test]
    fn readers_see_every_record_once() {
        let layout = format!("header_bytes = 3\nrecord_bytes = 6\n{CARP}");
        let (root, options) = traces(&layout, &[], 6);
        let mut expected = Vec::new();
        for (rank, count) in [7usize, 0, 100, 1].into_iter().enumerate() {
            let bytes: Vec<u8> = (0..3 + count * 6).map(|byte| (byte * 7 + rank) as u8).collect();
            expected.extend_from_slice(&bytes[3..]);
            std::fs::write(root.path().join(format!("T.200/e.200.{rank}")), bytes).unwrap();
        }
        let source = Source::open(root.path(), &options).unwrap();
        for (ranks, limit) in [(1, 1000), (4, 8), (3, 1), (16, 5)] {
            let mut seen = Vec::new();
            let mut buffer = Vec::new();
            for mut reader in RankReader::of_epoch(&source, 200, ranks) {
                while let Some(chunk) = reader.next(limit, &mut buffer).unwrap() {
                    assert!(chunk.records <= limit && buffer.len() == chunk.records * 6);
                    let views = chunk.views(&source, &buffer).unwrap();
                    assert_eq!(views[0].value(chunk.records - 1), &buffer[(chunk.records - 1) * 6..][..4]);
                    seen.push((chunk.file.rank, chunk.first, buffer.clone()));
                    reader.release();
                }
            }
            seen.sort();
            let seen: Vec<u8> = seen.into_iter().flat_map(|(_, _, bytes)| bytes).collect();
            assert_eq!(seen, expected, "{ranks} ranks, {limit} at a time");
        }
    }

    #[test]
    fn a_file_that_shrinks_while_read_is_an_error() {
        let (root, options) = traces(CARP, &[100], 4);
        let source = Source::open(root.path(), &options).unwrap();
        std::fs::write(root.path().join("T.200/e.200.0"), [0; 10]).unwrap();
        let error = RankReader::of_epoch(&source, 200, 1)[0].next(100, &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("T.200/e.200.0: the file ends before offset 256"), "{error}");
    }

    #[test]
    fn layouts_that_cannot_be_are_refused() {
        for (layout, word) in [
            ("path = 'x.{epoch}'", "there are no [[field]]"),
            (&CARP.replace("name", "nome"), "unknown field `nome`"),
            (&CARP.replace("f32", "f33"), "'f33' is not a type"),
            (&CARP.replace("{epoch}", "5"), "no {epoch}"),
            (&format!("record_bytes = 3\n{CARP}"), "record_bytes is 3, expected 4"),
            (&format!("record_bytes = 0\n{CARP}"), "record_bytes is 0, expected 4"),
            (&format!("{CARP}offset = 18446744073709551000"), ""),
            (&format!("{CARP}offset = 9223372036854775800"), "beyond the longest record"),
            (&format!("{CARP}[filler]\nname = 'p'\nbytes = 0"), "outside 1 to 65536"),
            (&CARP.replace("T.", "U."), "no files called U.{epoch}"),
        ] {
            let message = refused(layout);
            assert!(message.contains("layout.toml") && message.contains(word), "{layout}: {message}");
        }
    }

    #[test]
    fn gaps_and_odd_lengths_are_named() {
        let (root, options) = traces(CARP, &[3, 2, 4], 4);
        std::fs::write(root.path().join("T.1000/e.1000.2"), [0; 5]).unwrap();
        let message = Source::open(root.path(), &options).unwrap_err().to_string();
        assert!(message.contains("T.1000/e.1000.2: the file has 5 bytes, expected a multiple of the 4"), "{message}");
        std::fs::remove_file(root.path().join("T.1000/e.1000.2")).unwrap();
        let source = Source::open(root.path(), &options).unwrap();
        assert!(source.notes()[0].contains("epoch 1000 has 2"), "{:?}", source.notes());
        std::fs::remove_file(root.path().join("T.200/e.200.1")).unwrap();
        let message = Source::open(root.path(), &options).unwrap_err().to_string();
        assert!(message.contains("T.200/e.200.1 is missing: epoch 200 has 2 of 3 ranks"), "{message}");
        for (stated, word) in [(4, "e.200.2 is missing: epoch 200 has 2 of 4 ranks"), (1, "epoch 200 has 2 ranks")] {
            let (root, options) = traces(&format!("ranks = {stated}\n{CARP}"), &[3, 2], 4);
            let message = Source::open(root.path(), &options).unwrap_err().to_string();
            assert!(message.contains(word), "{message}");
        }
        std::fs::write(root.path().join("T.200/e.200.1"), [0; 4]).unwrap();
        std::fs::write(root.path().join("T.200/e.200.01"), [0; 4]).unwrap();
        assert!(Source::open(root.path(), &options).unwrap_err().to_string().contains("are both rank 1 of epoch 200"));
    }
}
