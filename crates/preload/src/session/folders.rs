//! Tracks the files in folders that the program renames.

use std::path::{Path, PathBuf};

use super::state::Session;
use crate::notices::complain_of_place;
use crate::process;
use crate::spool;

impl Session {
    /// Moves the spooled files of a folder to their original paths, before the program renames the folder.
    pub(crate) fn before_folder_rename(&mut self, from: &Path) {
        let Ok(from) = std::path::absolute(from) else { return };
        for copy in process::spool_roots().iter().flat_map(|root| spool::own_copies(root, &from)) {
            if let Err(error) = spool::put_in_place(&copy) {
                complain_of_place(&copy, &error);
            }
        }
    }

    /// Records that the program has renamed a folder. Its files have other names now, which may begin or cease to
    /// match.
    pub(crate) fn folder_renamed(&mut self, from: &Path, to: &Path) {
        let (Ok(from), Ok(to)) = (std::path::absolute(from), std::path::absolute(to)) else { return };
        if from == to {
            return;
        }
        for dataset in &mut self.datasets {
            dataset.part_with_folder(&from);
        }
        let open: Vec<(u64, PathBuf)> = self
            .files
            .iter()
            .filter_map(|(&number, open)| Some((number, to.join(open.path.strip_prefix(&from).ok()?))))
            .collect();
        for (number, path) in &open {
            match self.dataset_of(path) {
                Some((index, named)) => self.give_name(*number, index, named, path),
                None => self.drop_open(&[*number]),
            }
        }
        let depth = self.datasets.iter().map(|dataset| dataset.plan.pattern.names()).max().unwrap_or(0);
        let mut files = Vec::new();
        gather(&to, depth, &mut files);
        for path in files {
            if open.iter().any(|(_, known)| *known == path) {
                continue;
            }
            if let Some((index, named)) = self.dataset_of(&path) {
                self.appeared(index, named, path);
            }
        }
    }
}

/// Collects the files in a folder and in `depth` levels of folders below it.
fn gather(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && depth > 1 => gather(&entry.path(), depth - 1, files),
            Ok(kind) if kind.is_file() => files.push(entry.path()),
            _ => {}
        }
    }
}
