//! Decodes LAMMPS' binary dumps: the output of `dump … custom` and `dump … atom` to files whose names end in `.bin`.
//!
//! A file holds one or several consecutive steps, without padding and in the byte order of the machine that wrote it. A
//! step consists of:
//!
//! | bytes | content |
//! | ---: | --- |
//! | 8 | i64: negative length of the magic. Files of old releases begin with the step and lack the fields marked * |
//! | n | * the magic, `DUMPCUSTOM` or `DUMPATOM` |
//! | 4, 4 | * i32: 1, which reveals the byte order; i32: the revision of the format |
//! | 8 | * i64: the step |
//! | 8 | i64: number of atoms of the step in this file |
//! | 4, 24 | i32: whether the box is tilted; six i32: its boundaries |
//! | 48, 24 | f64: xlo, xhi, ylo, yhi, zlo, zhi; for a tilted box also xy, xz, yz |
//! | 4 | i32: number of values per atom |
//! | 4 + n | * from revision 2 on: i32, the length of the units, and the units; empty by default |
//! | 1, 8 | * from revision 2 on: one byte, whether a time follows; if so, f64: the time |
//! | 4 + n | * from revision 2 on: i32, the length of the column names, and the names, separated by blanks |
//! | 4 | i32: number of chunks, one for each process whose atoms are in this file |
//! | 4 + 8 n | for each chunk, i32: its number of values; f64: the values, atom by atom |
//!
//! Sources: the `dump` page of LAMMPS' manual, which refers to LAMMPS' converter for the details, and files written by
//! Debian's LAMMPS (release of 2022-01-06). `tests/lammps` compares this decoder with an independent one.
//!
//! Invariant: no value of a file is trusted. Lengths are checked against the file's length before bytes are read or
//! memory is allocated. The number of atoms in the chunks is checked against the number in the header.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// Names of the box constants of a step, in the order of [`Step::domain`].
pub const BOX: [&str; 9] = [
    "header.xlo",
    "header.xhi",
    "header.ylo",
    "header.yhi",
    "header.zlo",
    "header.zhi",
    "header.xy",
    "header.xz",
    "header.yz",
];

/// Maximum length of a string in a header, in bytes.
const LONGEST_TEXT_BYTES: usize = 1 << 20;

/// The rows of a step that one process wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Offset of the first row in the file, in bytes.
    pub offset: u64,
    /// Number of rows.
    pub rows: u64,
}

/// One step of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Number of the step.
    pub step: u64,
    /// Names of the columns. Empty in files of old releases.
    pub names: Vec<String>,
    /// Number of values per row, each an f64.
    pub values: usize,
    /// Values of the constants in [`BOX`]. The last three are zero for a box that is not tilted.
    pub domain: [f64; 9],
    /// The rows, process by process.
    pub chunks: Vec<Chunk>,
    /// Offset of the next step, in bytes.
    pub end: u64,
}

/// The reason why no step can be read.
#[derive(Debug, PartialEq, Eq)]
enum Missing {
    /// The file ends within the step.
    Short,
    Wrong(String),
}

fn wrong<T>(what: String) -> Result<T, Missing> {
    Err(Missing::Wrong(what))
}

/// A forward reader of a file.
struct Cursor<'a> {
    file: &'a File,
    at: u64,
    length: u64,
}

impl Cursor<'_> {
    /// Skips bytes, all of which must lie in the file. Returns the offset of the first one.
    fn skip(&mut self, bytes: u64) -> Result<u64, Missing> {
        let begin = self.at;
        match begin.checked_add(bytes) {
            Some(end) if end <= self.length => self.at = end,
            _ => return Err(Missing::Short),
        }
        Ok(begin)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), Missing> {
        let begin = self.skip(bytes.len() as u64)?;
        self.file.read_exact_at(bytes, begin).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => Missing::Short,
            _ => Missing::Wrong(error.to_string()),
        })
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Missing> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn i32(&mut self) -> Result<i32, Missing> {
        self.take().map(i32::from_le_bytes)
    }

    fn i64(&mut self) -> Result<i64, Missing> {
        self.take().map(i64::from_le_bytes)
    }

    fn f64(&mut self) -> Result<f64, Missing> {
        self.take().map(f64::from_le_bytes)
    }

    fn text(&mut self, bytes: i64) -> Result<String, Missing> {
        let bytes = usize::try_from(bytes).ok().filter(|&bytes| bytes <= LONGEST_TEXT_BYTES);
        let Some(bytes) = bytes else { return wrong(format!("a string at byte {} has an invalid length", self.at)) };
        let mut text = vec![0; bytes];
        self.fill(&mut text)?;
        String::from_utf8(text).map_err(|_| Missing::Wrong(format!("a string before byte {} is not UTF-8", self.at)))
    }

    /// Reads the revision of the format, which is 0 for files of old releases, and the step.
    fn beginning(&mut self) -> Result<(i32, u64), Missing> {
        let at = self.at;
        let mut step = self.i64()?;
        let mut revision = 0;
        if step < 0 {
            let magic = self.text(step.checked_neg().unwrap_or(i64::MAX))?;
            if !magic.starts_with("DUMP") {
                return wrong(format!("has no LAMMPS step at byte {at}"));
            }
            if self.i32()? != 1 {
                return wrong("was written in another byte order".to_owned());
            }
            revision = self.i32()?;
            step = self.i64()?;
        }
        match u64::try_from(step) {
            Ok(step) => Ok((revision, step)),
            Err(_) => wrong(format!("has step {step} at byte {at}")),
        }
    }

    fn domain(&mut self) -> Result<[f64; 9], Missing> {
        let tilted = self.i32()? != 0;
        self.skip(6 * 4)?;
        let mut domain = [0.0; 9];
        for value in &mut domain[..if tilted { 9 } else { 6 }] {
            *value = self.f64()?;
        }
        Ok(domain)
    }

    /// Reads the header fields that exist from revision 2 on. Returns the names of the columns.
    fn names(&mut self) -> Result<Vec<String>, Missing> {
        let units = self.i32()?;
        self.text(i64::from(units))?;
        if self.take::<1>()? != [0] {
            self.f64()?;
        }
        let bytes = self.i32()?;
        let names = self.text(i64::from(bytes))?;
        Ok(names.split_ascii_whitespace().map(str::to_owned).collect())
    }

    fn chunk(&mut self, values: usize) -> Result<Chunk, Missing> {
        let at = self.at;
        let count = self.i32()?;
        let Some(count) = u64::try_from(count).ok().filter(|count| count.is_multiple_of(values as u64)) else {
            return wrong(format!("a chunk at byte {at} has {count} values, not a multiple of {values}"));
        };
        // `count` is less than 2^31.
        let offset = self.skip(count * 8)?;
        Ok(Chunk { offset, rows: count / values as u64 })
    }

    fn step(&mut self) -> Result<Step, Missing> {
        let (revision, step) = self.beginning()?;
        let atoms = self.i64()?;
        let domain = self.domain()?;
        let values = self.i32()?;
        let Some(values) = usize::try_from(values).ok().filter(|&values| values > 0) else {
            return wrong(format!("step {step} has {values} values per atom"));
        };
        let names = if revision >= 2 { self.names()? } else { Vec::new() };
        if !names.is_empty() && names.len() != values {
            return wrong(format!("step {step} has {values} values per atom, but {} column names", names.len()));
        }
        let wanted = self.i32()?;
        let mut chunks = Vec::new();
        for _ in 0..wanted {
            chunks.push(self.chunk(values)?);
        }
        let rows: u64 = chunks.iter().map(|chunk| chunk.rows).sum();
        if i64::try_from(rows) != Ok(atoms) {
            return wrong(format!("step {step} states {atoms} atoms, but has {rows}"));
        }
        Ok(Step { step, names, values, domain, chunks, end: self.at })
    }
}

/// Reads the step at a byte offset of a file of `length` bytes. Returns `None` if the file ends within the step.
///
/// # Errors
/// Returns the problem, without the file's name.
pub fn read(file: &File, begin: u64, length: u64) -> Result<Option<Step>, String> {
    match (Cursor { file, at: begin, length }).step() {
        Ok(step) => Ok(Some(step)),
        Err(Missing::Short) => Ok(None),
        Err(Missing::Wrong(what)) => Err(what),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// Encodes a step of two chunks in LAMMPS' format.
    fn written(revision: i32, step: i64, tilted: bool, rows: [usize; 2]) -> Vec<u8> {
        let mut bytes = Vec::new();
        if revision > 0 {
            bytes.extend((-10i64).to_le_bytes());
            bytes.extend(b"DUMPCUSTOM");
            bytes.extend([1, revision].map(i32::to_le_bytes).concat());
        }
        bytes.extend([step, (rows[0] + rows[1]) as i64].map(i64::to_le_bytes).concat());
        bytes.extend([i32::from(tilted), 0, 0, 0, 0, 0, 0].map(i32::to_le_bytes).concat());
        bytes.extend((1..=if tilted { 9 } else { 6 }).flat_map(|number| f64::from(number).to_le_bytes()));
        bytes.extend(3i32.to_le_bytes());
        if revision >= 2 {
            bytes.extend([&2i32.to_le_bytes()[..], b"lj", &[1], &0.5f64.to_le_bytes(), &7i32.to_le_bytes()].concat());
            bytes.extend(b"id x vx");
        }
        bytes.extend(2i32.to_le_bytes());
        for rows in rows {
            bytes.extend((3 * rows as i32).to_le_bytes());
            bytes.extend((0..3 * rows).flat_map(|number| (number as f64).to_le_bytes()));
        }
        bytes
    }

    fn file_of(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    fn read_all(bytes: &[u8]) -> Result<Option<Step>, String> {
        read(&file_of(bytes), 0, bytes.len() as u64)
    }

    #[test]
    fn steps_follow_each_other() {
        for (revision, tilted) in [(0, false), (1, true), (2, false), (2, true)] {
            let steps = [written(revision, 50, tilted, [4, 0]), written(revision, 100, tilted, [1, 2])];
            let file = file_of(&steps.concat());
            let length = steps.concat().len() as u64;
            let first = read(&file, 0, length).unwrap().unwrap();
            assert_eq!((first.step, first.values, first.end), (50, 3, steps[0].len() as u64));
            assert_eq!(first.domain[5..], if tilted { [6.0, 7.0, 8.0, 9.0] } else { [6.0, 0.0, 0.0, 0.0] });
            assert_eq!(first.names.join(" "), if revision == 2 { "id x vx" } else { "" });
            assert_eq!(first.chunks.iter().map(|chunk| chunk.rows).collect::<Vec<_>>(), [4, 0]);
            assert_eq!(first.chunks[1].offset, first.end);
            let second = read(&file, first.end, length).unwrap().unwrap();
            assert_eq!((second.step, second.end), (100, length));
            assert_eq!(read(&file, second.end, length), Ok(None));
        }
    }

    #[test]
    fn a_step_is_not_there_before_its_last_byte() {
        let bytes = written(2, 50, true, [3, 2]);
        for length in 0..bytes.len() {
            assert_eq!(read_all(&bytes[..length]), Ok(None), "{length}");
            // The result is the same for a file that has grown since its length was read.
            assert_eq!(read(&file_of(&bytes), 0, length as u64), Ok(None), "{length}");
        }
    }

    #[test]
    fn broken_files_end_in_errors_and_never_outside_of_the_file() {
        let bytes = written(2, 50, true, [3, 2]);
        let mut refused = 0;
        for place in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff, bytes[place] ^ 1, bytes[place] ^ 0x40] {
                let mut broken = bytes.clone();
                broken[place] = value;
                match read_all(&broken) {
                    Ok(Some(step)) => {
                        let rows: u64 = step.chunks.iter().map(|chunk| chunk.rows).sum();
                        assert!(rows * step.values as u64 * 8 <= bytes.len() as u64, "{place} {value}");
                        let inside =
                            |chunk: &Chunk| chunk.offset + chunk.rows * step.values as u64 * 8 <= bytes.len() as u64;
                        assert!(step.chunks.iter().all(inside), "{place} {value}");
                    }
                    Ok(None) | Err(_) => refused += 1,
                }
            }
        }
        assert!(refused > 300, "{refused}");
    }

    #[test]
    fn what_is_no_dump_is_said() {
        let mut other_order = written(2, 50, false, [1, 1]);
        other_order[18..22].copy_from_slice(&1i32.to_be_bytes());
        let mut fewer = written(2, 50, false, [1, 1]);
        fewer[34] = 3;
        let mut minimum = written(2, 50, false, [1, 1]);
        minimum[..8].copy_from_slice(&i64::MIN.to_le_bytes());
        for (bytes, complaint) in [
            (b"\xf6\xff\xff\xff\xff\xff\xff\xffSOMETHING_ELSE".to_vec(), "no LAMMPS step"),
            (vec![0; 200], "0 values per atom"),
            (other_order, "another byte order"),
            (fewer, "3 atoms, but has 2"),
            (minimum, "invalid length"),
        ] {
            let said = read_all(&bytes).unwrap_err();
            assert!(said.contains(complaint), "{said}");
        }
    }
}
