//! Follows files of several consecutive epochs while the program writes them.
//!
//! Invariant: an epoch of a file is reported once all of its bytes are written. If bytes follow the last complete epoch
//! when the file is closed, the file is corrupt. The numbers of the epochs lost there are unknown, so no epoch that is
//! missing from the file counts as complete.

use std::fs::File;
use std::path::{Path, PathBuf};

use turbidite_source::lammps;

use crate::pending::Finished;

/// A file of several epochs.
#[derive(Debug)]
pub(crate) struct Growing {
    path: PathBuf,
    /// The byte at which the last complete epoch ends.
    known: u64,
    /// The reason why the rest of the file cannot be read.
    corruption: Option<String>,
}

impl Growing {
    /// Returns the state of a file that the program has just opened. Existing content, for example of a file opened for
    /// appending, has been read before.
    pub(crate) fn opened(path: &Path) -> Self {
        let known = path.metadata().map_or(0, |data| data.len());
        Self { path: path.to_owned(), known, corruption: None }
    }

    /// Returns the state of a file that has just been renamed to a matching name. None of its epochs is known.
    pub(crate) fn named(path: &Path) -> Self {
        Self { path: path.to_owned(), known: 0, corruption: None }
    }

    /// Returns whether no epoch of the file is known.
    pub(crate) fn is_new(&self) -> bool {
        self.known == 0
    }

    /// Returns the epochs completed since the last call.
    pub(crate) fn look(&mut self) -> Vec<(u64, Finished)> {
        let mut found = Vec::new();
        if self.corruption.is_none()
            && let Err(what) = self.read(&mut found)
        {
            self.corruption = Some(what);
        }
        found
    }

    fn read(&mut self, found: &mut Vec<(u64, Finished)>) -> Result<(), String> {
        let length = self.path.metadata().map_err(|error| error.to_string())?.len();
        if length <= self.known {
            return Ok(());
        }
        let file = File::open(&self.path).map_err(|error| error.to_string())?;
        while let Some(step) = lammps::read(&file, self.known, length)? {
            found.push((step.step, Finished { begin: Some(self.known), ..Finished::whole(self.path.clone(), None) }));
            self.known = step.end;
        }
        Ok(())
    }

    /// Stops following the file, which the program has closed. Returns the path and the error if the file is corrupt.
    pub(crate) fn corruption(self) -> Option<(PathBuf, String)> {
        let Self { path, known, corruption } = self;
        let rest = || {
            let length = path.metadata().map_or(0, |data| data.len());
            (length > known).then(|| format!("has {length} bytes and ends within the step at byte {known}"))
        };
        let what = corruption.or_else(rest)?;
        Some((path, what))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// Encodes a step of two chunks in the format of old LAMMPS releases, with three values per atom.
    fn written(step: i64, rows: [usize; 2]) -> Vec<u8> {
        let mut bytes = [step, (rows[0] + rows[1]) as i64].map(i64::to_le_bytes).concat();
        bytes.extend([0i32; 7].map(i32::to_le_bytes).concat());
        bytes.extend([0f64; 6].map(f64::to_le_bytes).concat());
        bytes.extend([3i32, 2].map(i32::to_le_bytes).concat());
        for rows in rows {
            bytes.extend((3 * rows as i32).to_le_bytes());
            bytes.extend((0..3 * rows).flat_map(|number| (number as f64).to_le_bytes()));
        }
        bytes
    }

    #[test]
    fn epochs_are_found_as_they_become_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("melt.bin");
        let mut file = File::create(&path).unwrap();
        let mut growing = Growing::opened(&path);
        assert!(growing.is_new());
        let (first, second) = (written(50, [3, 1]), written(100, [2, 2]));
        let mut steps = |growing: &mut Growing, bytes: &[u8]| {
            file.write_all(bytes).unwrap();
            growing.look().iter().map(|(step, part)| (*step, part.begin)).collect::<Vec<_>>()
        };
        assert_eq!(steps(&mut growing, &first[..first.len() - 1]), []);
        assert_eq!(steps(&mut growing, &first[first.len() - 1..]), [(50, Some(0))]);
        assert_eq!(steps(&mut growing, &second[..20]), []);
        assert_eq!(steps(&mut growing, &second[20..]), [(100, Some(first.len() as u64))]);
        assert_eq!(steps(&mut growing, &[]), []);

        // The file is opened again, for appending.
        let mut again = Growing::opened(&path);
        assert!(!again.is_new());
        assert_eq!(steps(&mut again, &first), [(50, Some((first.len() + second.len()) as u64))]);
        assert_eq!(again.corruption(), None);
        assert_eq!(steps(&mut growing, &second[..30]), [(50, Some((first.len() + second.len()) as u64))]);
        let (_, what) = growing.corruption().unwrap();
        assert!(what.contains("ends within the step at byte"), "{what}");
    }

    #[test]
    fn nothing_is_read_behind_corruption() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("melt.bin");
        let mut bytes = [written(50, [3, 1]), written(100, [2, 2])].concat();
        std::fs::write(&path, &bytes).unwrap();
        let mut growing = Growing::named(&path);
        assert_eq!(growing.look().len(), 2);
        let length = bytes.len();
        bytes.extend([0; 300]);
        std::fs::write(&path, &bytes).unwrap();
        assert!(growing.look().is_empty());
        bytes.truncate(length);
        bytes.extend(written(150, [1, 1]));
        std::fs::write(&path, &bytes).unwrap();
        assert!(growing.look().is_empty(), "what was corrupt once is not believed later");
        assert!(growing.corruption().is_some());
    }
}
