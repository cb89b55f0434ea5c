//! Recognises files in the package's formats: by their names, or by their first bytes.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::files::names;

/// Endings of names in the package's formats, as its `signatures.py` has them.
const ENDINGS: [&str; 26] = [
    ".h5",
    ".hdf5",
    ".hdf",
    ".h5part",
    ".h5md",
    ".bp",
    ".bp4",
    ".bp5",
    ".npz",
    ".npy",
    ".arrow",
    ".arrows",
    ".feather",
    ".ipc",
    ".lammpstrj",
    ".lammpsdump",
    ".dump",
    ".lammpstrj.gz",
    ".lammpsdump.gz",
    ".dump.gz",
    ".lammpstrj.bz2",
    ".lammpsdump.bz2",
    ".dump.bz2",
    ".lammpstrj.zst",
    ".lammpsdump.zst",
    ".dump.zst",
];

/// First bytes of files in the package's formats, as its `signatures.py` has them: HDF5, zip (`.npz`) with and without
/// members, NumPy, Arrow's files and streams, LAMMPS' dumps as text and as YAML, and gzip, bzip2 and Zstandard, which
/// only the package decompresses.
const BEGINNINGS: [&[u8]; 11] = [
    b"\x89HDF\r\n\x1a\n",
    b"PK\x03\x04",
    b"PK\x05\x06",
    b"\x93NUMPY",
    b"ARROW1",
    b"\xff\xff\xff\xff",
    b"ITEM:",
    b"---\ncreator: LA",
    b"\x1f\x8b",
    b"BZh",
    b"\x28\xb5\x2f\xfd",
];

/// Returns whether a path that does not exist is a pattern of names, such as `openpmd_%T.h5`.
pub(crate) fn is_pattern(path: &Path) -> bool {
    let text = path.to_string_lossy();
    let names_epoch = |(percent, _): (usize, &str)| {
        text[percent + 1..].trim_start_matches(|digit: char| digit.is_ascii_digit()).starts_with('T')
    };
    text.contains(['*', '?'])
        || text.contains("{epoch}")
        || text.contains("{rank}")
        || text.match_indices('%').any(names_epoch)
}

/// Returns whether the package reads this file.
pub(crate) fn reads_file(path: &Path) -> bool {
    let has_ending = path.file_name().is_some_and(|name| has_known_ending(&name.to_string_lossy()));
    let begins = || {
        let mut begin = Vec::new();
        let read = File::open(path).and_then(|file| file.take(16).read_to_end(&mut begin));
        read.is_ok() && BEGINNINGS.iter().any(|known| begin.starts_with(known))
    };
    has_ending || begins()
}

/// Number of files of a folder whose first bytes are looked at.
const SAMPLED_FILES: usize = 8;

/// Returns whether the package reads this folder: an ADIOS2 series, or a folder of files in the package's formats. If
/// these have other names, such as `dump.melt.100`, the package proposes a pattern.
pub(crate) fn reads_folder(path: &Path) -> bool {
    path.file_name().is_some_and(|name| has_known_ending(&name.to_string_lossy()))
        || names(path).is_ok_and(|names| {
            !names.iter().any(|name| name.starts_with("T."))
                && (names.iter().any(|name| has_known_ending(name))
                    || names.iter().take(SAMPLED_FILES).any(|name| reads_file(&path.join(name))))
        })
}

fn has_known_ending(name: &str) -> bool {
    ENDINGS.iter().any(|ending| name.ends_with(ending))
}
