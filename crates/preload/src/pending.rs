//! The open and closed files of each epoch on this rank, until the epoch is indexed.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use crate::spool::Spooled;

/// A file that the program has closed, or the section of a file that holds one epoch.
#[derive(Debug)]
pub(crate) struct Finished {
    /// The path that the program opened.
    pub(crate) path: PathBuf,
    /// The file's place in the spool, if it is spooled.
    pub(crate) spool: Option<Spooled>,
    /// The byte at which the epoch begins, in a file of several epochs.
    pub(crate) begin: Option<u64>,
    /// Whether the file was empty when the program opened it.
    pub(crate) anew: bool,
    /// The rank in the file's name.
    pub(crate) rank: Option<u64>,
    /// The part of the file that this rank reads.
    pub(crate) share: Share,
}

/// One of several equal parts of a file. Other ranks read the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) index: u64,
    pub(crate) of: u64,
}

impl Share {
    pub(crate) const WHOLE: Self = Self { index: 0, of: 1 };

    /// Returns the first record and the number of records of this share.
    pub(crate) fn records(self, records: u64) -> (u64, u64) {
        // The quotient of a product that may exceed 64 bits.
        let begin = |index: u64| (u128::from(records) * u128::from(index) / u128::from(self.of)) as u64;
        (begin(self.index), begin(self.index + 1) - begin(self.index))
    }
}

impl Finished {
    pub(crate) fn whole(path: PathBuf, spool: Option<Spooled>) -> Self {
        Self { path, spool, begin: None, anew: false, rank: None, share: Share::WHOLE }
    }

    /// Returns the path at which the file can be read. Another process may have moved the file out of the spool.
    pub(crate) fn place(&self) -> PathBuf {
        let copy = self.spool.as_ref().filter(|spool| spool.exists());
        copy.map_or_else(|| self.path.clone(), Spooled::place)
    }
}

/// One epoch's files on this rank.
#[derive(Debug, Default)]
pub(crate) struct EpochFiles {
    /// Number of open files.
    pub(crate) open: u64,
    /// Closed files, with each path once. They are read back, or moved to their original paths if indexing fails.
    pub(crate) finished: Vec<Finished>,
    /// The records of single-record files.
    pub(crate) gathered: Gathered,
    /// The reason why this rank cannot index the epoch.
    pub(crate) failure: Option<String>,
}

impl EpochFiles {
    /// Returns whether the epoch has no files, no records and no failure.
    pub(crate) fn is_empty(&self) -> bool {
        let gathered = !self.gathered.memory.is_empty() || self.gathered.file.is_some();
        self.open == 0 && self.finished.is_empty() && !gathered && self.failure.is_none()
    }

    /// Returns whether the names of all files contain this rank, so that no other rank wrote them.
    pub(crate) fn are_of_rank(&self, rank: u32) -> bool {
        self.finished.iter().all(|file| file.rank == Some(u64::from(rank)))
    }

    pub(crate) fn add(&mut self, file: Finished) {
        match self.finished.iter_mut().find(|known| known.path == file.path) {
            // If the file was empty at either opening, all of its content is new.
            Some(known) => *known = Finished { anew: file.anew || known.anew, ..file },
            None => self.finished.push(file),
        }
    }
}

/// The files of a dataset's epochs that are not indexed yet.
pub(crate) type Pending = BTreeMap<u64, EpochFiles>;

/// Maximum size of the gathered records in memory. Earlier records are written to an unnamed file.
const MEMORY_BYTES: usize = 4 << 20;

/// The records of an epoch's single-record files.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    /// The most recent records.
    pub(crate) memory: Vec<u8>,
    /// The earlier records.
    pub(crate) file: Option<File>,
}

impl Gathered {
    /// Adds a record; `spool` is the folder for records that do not fit in memory.
    pub(crate) fn add(&mut self, record: &[u8], spool: &std::path::Path) -> std::io::Result<()> {
        if self.memory.len() + record.len() > MEMORY_BYTES {
            let file = match &mut self.file {
                Some(file) => file,
                none => none.insert(nameless(spool).map_err(|error| {
                    std::io::Error::other(format!(
                        "cannot create a temporary file for its record in {}: {error}",
                        spool.display()
                    ))
                })?),
            };
            turbidite::storage::check_file_length(file.metadata()?.len() + self.memory.len() as u64)?;
            file.write_all(&self.memory)?;
            self.memory.clear();
        }
        self.memory.extend_from_slice(record);
        Ok(())
    }
}

/// Creates an unnamed file, which the kernel deletes when it is closed.
fn nameless(folder: &std::path::Path) -> std::io::Result<File> {
    let path = folder.join(format!("turbidite-{}-gathered", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_cover_the_records_once() {
        for (records, of) in [(0, 1), (10, 3), (2, 5), (1 << 40, 7), (u64::MAX, 3)] {
            let mut end = 0;
            for index in 0..of {
                let (first, count) = Share { index, of }.records(records);
                assert_eq!(first, end, "{records} in {of}");
                end += count;
            }
            assert_eq!(end, records);
        }
    }
}
