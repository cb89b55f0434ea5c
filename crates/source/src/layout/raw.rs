//! Checks files of raw fixed-size records, as described by a layout file.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use turbidite::{Column, DataType};

use super::document::Layout;
use crate::checks::{Checks, Lengths, hexadecimal};
use crate::error::{SourceContext, SourceError};
use crate::field::{Field, FieldLayout};
use crate::files::file_bytes;
use crate::filler::Filler;
use crate::inventory::{Form, RecordFile, RecordForm, Source};
use crate::listing::Listing;
use crate::signature::{self, HEAD_BYTES};

/// Maximum record size, in bytes.
const MAX_RECORD_BYTES: usize = 1 << 20;

/// The layout of records in their files.
#[derive(Debug)]
pub(super) struct RawRecords {
    records: RecordForm,
    record_bytes: usize,
    checks: Checks,
    constants: Vec<Field>,
}

impl RawRecords {
    /// Derives the layout of records from a layout file.
    ///
    /// # Errors
    /// Returns the mistake in the layout file.
    pub(super) fn of(layout: &Layout) -> Result<Self, String> {
        let (fields, record_bytes) = fields(layout)?;
        if let Some(filler) = &layout.filler
            && (filler.bytes == 0 || filler.bytes > turbidite::MAX_FIXED_BYTES)
        {
            return Err(format!("filler: {} bytes are outside 1 to {}", filler.bytes, turbidite::MAX_FIXED_BYTES));
        }
        let filler = layout.filler.as_ref().map(|filler| Filler::new(&filler.name, filler.bytes));
        let header_bytes = layout.header_bytes.unwrap_or(0);
        let checks = Checks::parse(layout.records.as_deref(), layout.magic.as_ref(), header_bytes)?;
        let constants = constants(&layout.constants, header_bytes)?;
        let names = constants.iter().map(|field| field.column.name.clone()).collect();
        let records = RecordForm { fields, filler, header_bytes, constants: names };
        Ok(Self { records, record_bytes, checks, constants })
    }

    /// Checks the length of every file, and its header if the layout describes it.
    pub(super) fn open(self, mut found: Listing<'_>) -> Result<Source, SourceError> {
        let epochs = found.checked(self.checks.count_records(), |rank, path| self.file(rank, path))?;
        Ok(found.source(epochs, Form::Records(self.records), self.record_bytes))
    }

    /// Checks a file's content and length, and computes its number of records.
    fn file(&self, rank: u32, path: PathBuf) -> Result<RecordFile, SourceError> {
        let (header_bytes, record_bytes) = (self.records.header_bytes, self.record_bytes);
        let length = file_bytes(&path)?;
        let header = self.header(&path)?;
        if self.checks.header_bytes() == 0 {
            self.check_signature(&path, &header)?;
        }
        if length >= header_bytes {
            let lengths = Lengths { file: length, header: header_bytes, record: record_bytes as u64 };
            let wrong = |what| SourceError::Unfit { path: path.clone(), what };
            self.checks.check(&header, lengths).map_err(wrong)?;
        }
        let body = length.checked_sub(header_bytes).filter(|body| body.is_multiple_of(record_bytes as u64));
        let Some(body) = body else {
            let header = if header_bytes > 0 { format!("{header_bytes} of header and ") } else { String::new() };
            let expected = format!("{header}a multiple of the {record_bytes} bytes of a record");
            return Err(SourceError::Length { path, found: length, expected });
        };
        let records = body / record_bytes as u64;
        let constants = self.constants.iter().map(|field| field.number(&header)).collect();
        Ok(RecordFile { path, rank, records, constants, row_groups: Box::default() })
    }

    /// Reads the first bytes of a file, or as many as it has: those that are checked or contain constants.
    fn header(&self, path: &Path) -> Result<Vec<u8>, SourceError> {
        let constants = self.constants.iter().map(|field| field.offset + field.column.data_type.width()).max();
        let wanted = self.checks.header_bytes().max(HEAD_BYTES).max(constants.unwrap_or(0));
        let mut header = Vec::with_capacity(wanted);
        let file = File::open(path).of("open", path)?;
        file.take(wanted as u64).read_to_end(&mut header).of("read", path)?;
        Ok(header)
    }

    /// Refuses a file that begins like a file of another format. A layout that describes the headers is checked against
    /// them instead.
    fn check_signature(&self, path: &Path, head: &[u8]) -> Result<(), SourceError> {
        let Some((name, remedy)) = signature::find(head) else { return Ok(()) };
        let first = &head[..head.len().min(4)];
        let magic = match self.records.header_bytes >= first.len() as u64 {
            true => format!("; if records follow this header, state magic = \"{}@0\"", hexadecimal(first)),
            false => String::new(),
        };
        let what = format!("{name}, not raw records; {}{magic}", remedy.advice());
        Err(SourceError::Unfit { path: path.to_owned(), what })
    }
}

/// Returns the numbers in a header of `header_bytes` bytes.
fn constants(written: &[FieldLayout], header_bytes: u64) -> Result<Vec<Field>, String> {
    let constant = |written: &FieldLayout| {
        let FieldLayout { name, data_type, offset, .. } = written;
        let data_type: DataType = data_type.parse().map_err(|error| format!("constant '{name}': {error}"))?;
        let offset = offset.ok_or_else(|| format!("the constant '{name}' has no offset"))?;
        let end = offset.checked_add(data_type.width()).filter(|end| *end as u64 <= header_bytes);
        end.ok_or_else(|| format!("the constant '{name}' ends beyond the header of {header_bytes} bytes"))?;
        Ok(Field { column: Column::new(name, data_type), offset })
    };
    written.iter().map(constant).collect()
}

/// Assigns offsets to the fields and determines the record size.
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
            format!("field '{}' ends beyond the maximum record size, {MAX_RECORD_BYTES} bytes", field.name)
        })?;
        end = end.max(next);
        fields.push(Field { column, offset });
    }
    let record_bytes = layout.record_bytes.unwrap_or(end);
    if fields.is_empty() {
        return Err("[[field]] is missing: raw records need at least one".into());
    }
    if record_bytes < end || record_bytes > MAX_RECORD_BYTES {
        return Err(format!(
            "record_bytes is {record_bytes}, expected {end} (the end of the fields) to {MAX_RECORD_BYTES}"
        ));
    }
    Ok((fields, record_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RankReader, SourceOptions};

    const CARP: &str = "path = 'T.{epoch}/e.{epoch}.{rank}'\n[[field]]\nname = 'energy'\ntype = 'f32'\nunit = 'mc^2'\n";

    /// Creates a folder with a layout and traces of `counts[rank]` records each, for two epochs.
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

    /// Exactly one reader returns each byte of each file, for any number of ranks and any chunk size.
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
                    let views = chunk.views(&buffer).unwrap();
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
        assert!(error.to_string().contains("T.200/e.200.0: the file ends before offset 400"), "{error}");
    }

    #[test]
    fn layouts_that_cannot_be_are_refused() {
        for (layout, word) in [
            ("path = 'x.{epoch}'", "[[field]] is missing"),
            (&CARP.replace("name", "nome"), "unknown field `nome`"),
            (&CARP.replace("f32", "f33"), "'f33' is not a type"),
            (&CARP.replace("{epoch}", "5"), "no {epoch}"),
            (&format!("record_bytes = 3\n{CARP}"), "record_bytes is 3, expected 4"),
            (&format!("record_bytes = 0\n{CARP}"), "record_bytes is 0, expected 4"),
            (&format!("{CARP}offset = 18446744073709551000"), ""),
            (&format!("{CARP}offset = 9223372036854775800"), "beyond the maximum record size"),
            (&format!("{CARP}[filler]\nname = 'p'\nbytes = 0"), "outside 1 to 65536"),
            (&CARP.replace("T.", "U."), "no files match U.{epoch}"),
            (&format!("header_bytes = 4\nrecords = 'i32@1'\n{CARP}"), "ends beyond the header of 4 bytes"),
            (&format!("header_bytes = 4\nmagic = ['00@0', '0@1']\n{CARP}"), "magic = \"0@1\" is not BYTES@OFFSET"),
            ("format = 'parquet'\nmagic = '00@0'\npath = 'T.{epoch}/e.{epoch}.{rank}'", "omit all settings"),
        ] {
            let message = refused(layout);
            assert!(message.contains("layout.toml") && message.contains(word), "{layout}: {message}");
        }
    }

    /// If `header_bytes` is one record too small, only a record count reveals the mistake.
    #[test]
    fn headers_are_compared_in_every_file() {
        let layout = |settings: &str| format!("{settings}{CARP}");
        let described = "header_bytes = 8\nrecords = 'i32@4'\nmagic = ['fe ca@0', '01@2']\n";
        let (root, options) = traces(&layout(described), &[0, 0], 4);
        let write = |epoch: u64, rank: u32, header: [u8; 8]| {
            let content = [&header[..], &[0; 12]].concat();
            std::fs::write(root.path().join(format!("T.{epoch}/e.{epoch}.{rank}")), content).unwrap();
        };
        for (epoch, rank) in [(200, 0), (200, 1), (1000, 0), (1000, 1)] {
            write(epoch, rank, [0xfe, 0xca, 1, 0, 3, 0, 0, 0]);
        }
        let open = || Source::open(root.path(), &options).map(|source| source.records(1000));
        assert_eq!(open().unwrap(), 6);
        let rewrite = |settings: &str| std::fs::write(root.path().join("layout.toml"), layout(settings)).unwrap();
        rewrite("header_bytes = 4\n");
        assert_eq!(open().unwrap(), 8, "nothing to tell it by");
        rewrite("header_bytes = 4\nrecords = 'i32@0'\n");
        assert!(open().unwrap_err().to_string().contains("T.200/e.200.0: has a header that states 117502 records"));
        rewrite(described);
        for (header, what) in [
            (
                [0xfe, 0xca, 1, 0, 4, 0, 0, 0],
                "e.1000.1: has a header that states 4 records, but its 20 bytes hold 3, with a header of 8",
            ),
            ([0xca, 0xfe, 1, 0, 3, 0, 0, 0], "e.1000.1: has the bytes ca fe at 0, expected magic = \"fe ca@0\""),
            ([0xfe, 0xca, 2, 0, 3, 0, 0, 0], "e.1000.1: has the bytes 02 at 2, expected magic = \"01@2\""),
        ] {
            write(1000, 1, header);
            let said = open().unwrap_err().to_string();
            assert!(said.contains(what), "{said}");
        }
        std::fs::write(root.path().join("T.200/e.200.0"), [0xfe; 5]).unwrap();
        assert!(open().unwrap_err().to_string().contains("has 5 bytes, expected 8 of header and a multiple"));
    }

    #[test]
    fn files_of_other_formats_are_refused_unless_the_layout_describes_them() {
        let npy = [&b"\x93NUMPY\x01\0"[..], &[0; 8]].concat();
        for (layout, head, said) in [
            (
                "",
                &b"\x89HDF\r\n\x1a\n"[..],
                Some("e.1000.1: HDF5, not raw records; 'turbidite ingest' reads it without"),
            ),
            ("", b"PAR1\x15\x04\x15\x90", Some("Parquet, not raw records; a layout with format = \"parquet\"")),
            ("header_bytes = 16\n", &npy, Some("if records follow this header, state magic = \"93 4e 55 4d@0\"")),
            ("header_bytes = 16\nmagic = '93 4e 55 4d@0'\n", &npy, None),
            ("header_bytes = 8\n", b"HDF\r\n\x1a\n\n", None),
        ] {
            let (root, options) = traces(&format!("{layout}{CARP}"), &[4, 4], 4);
            if layout.contains("magic") {
                for name in ["T.200/e.200.0", "T.200/e.200.1", "T.1000/e.1000.0"] {
                    std::fs::write(root.path().join(name), &npy).unwrap();
                }
            }
            std::fs::write(root.path().join("T.1000/e.1000.1"), head).unwrap();
            match (Source::open(root.path(), &options), said) {
                (Err(error), Some(said)) => assert!(error.to_string().contains(said), "{error}"),
                (found, said) => assert_eq!((found.is_ok(), said), (true, None), "{found:?}"),
            }
        }
    }

    #[test]
    fn gaps_and_odd_lengths_are_named() {
        let (root, options) = traces(CARP, &[3, 2, 4], 4);
        std::fs::write(root.path().join("T.1000/e.1000.2"), [0; 5]).unwrap();
        let message = Source::open(root.path(), &options).unwrap_err().to_string();
        assert!(message.contains("T.1000/e.1000.2: the file has 5 bytes, expected a multiple of the 4"), "{message}");
        std::fs::remove_file(root.path().join("T.1000/e.1000.2")).unwrap();
        let message = Source::open(root.path(), &options).unwrap_err().to_string();
        assert!(
            message.contains("T.1000/e.1000.2 is missing: epoch 1000 has 2 of the 3 ranks of epoch 200"),
            "{message}"
        );
        let allowed = SourceOptions { allow_missing_ranks: true, ..options.clone() };
        let source = Source::open(root.path(), &allowed).unwrap();
        assert_eq!(source.notes(), ["epochs without the files of some ranks: 1000 (2 of 3 files)"]);
        assert_eq!((source.ranks(), source.records(200), source.records(1000)), (3, 9, 5));
        std::fs::remove_file(root.path().join("T.200/e.200.1")).unwrap();
        let message = Source::open(root.path(), &options).unwrap_err().to_string();
        assert!(message.contains("T.200/e.200.1 is missing: epoch 200 has 2 of 3 ranks"), "{message}");
        for (stated, word) in [
            (4, "e.200.2, T/T.200/e.200.3 are missing: epoch 200 has 2 of the 4 ranks that the layout states"),
            (1, "T.200/e.200.1: rank 1 of epoch 200 is beyond the 1 rank that the layout states"),
        ] {
            let (root, options) = traces(&format!("ranks = {stated}\n{CARP}"), &[3, 2], 4);
            let message = Source::open(root.path(), &options).unwrap_err().to_string();
            assert!(message.replace(root.path().to_str().unwrap(), "T").contains(word), "{message}");
            let options = SourceOptions { source_ranks: Some(2), ..options };
            assert_eq!(Source::open(root.path(), &options).unwrap().ranks(), 2, "the option is stronger");
        }
        std::fs::write(root.path().join("T.200/e.200.1"), [0; 4]).unwrap();
        std::fs::write(root.path().join("T.200/e.200.01"), [0; 4]).unwrap();
        assert!(Source::open(root.path(), &options).unwrap_err().to_string().contains("are both rank 1 of epoch 200"));
    }
}
