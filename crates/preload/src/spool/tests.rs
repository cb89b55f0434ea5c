//! Tests of the space that spooled files reserve, of moves to their original paths, and of the removal of dead
//! processes' folders.

use std::path::Path;
use std::{fs, io};

use super::*;

/// Creates a folder, in memory if possible: a nearly full disk is not used as a spool.
fn roomy() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn spooled(root: &Path, path: &Path) -> Spooled {
    match Spooled::choose(root, path).unwrap().0 {
        Choice::Spool(spooled) => spooled,
        Choice::Own => panic!("{} is not spooled", path.display()),
    }
}

fn is_own(root: &Path, path: &Path) -> bool {
    matches!(Spooled::choose(root, path).unwrap().0, Choice::Own)
}

fn files(root: &Path) -> usize {
    fs::read_dir(root).unwrap().count()
}

#[test]
fn folders_go_with_the_last_file() {
    let (root, home) = (roomy(), tempfile::tempdir().unwrap());
    let (one, other) =
        (spooled(root.path(), &home.path().join("one")), spooled(root.path(), &home.path().join("other")));
    for file in [&one, &other] {
        fs::write(file.place(), "content").unwrap();
    }
    one.remove().unwrap();
    assert!(other.exists() && !one.exists());
    other.put_in_place().unwrap();
    assert_eq!(fs::read(home.path().join("other")).unwrap(), b"content");
    assert_eq!(files(root.path()), 0);
}

#[test]
fn what_the_program_could_not_create_is_not_spooled() {
    let (root, home) = (roomy(), tempfile::tempdir().unwrap());
    let existing = home.path().join("existing");
    fs::write(&existing, "").unwrap();
    assert!(is_own(root.path(), &existing));
    assert!(is_own(root.path(), &home.path().join("missing/file")));
    assert!(is_own(&root.path().join("missing"), &home.path().join("file")));
    assert_eq!(files(root.path()), 0);
}

#[test]
fn a_copy_stays_in_the_spool_when_it_is_opened_again() {
    let (root, home) = (roomy(), tempfile::tempdir().unwrap());
    let path = home.path().join("file");
    let first = spooled(root.path(), &path);
    fs::write(first.place(), "content").unwrap();
    assert_eq!(spooled(root.path(), &path), first);
    assert_eq!(Spooled::find(root.path(), &path), Some(first.clone()));
    fs::write(&path, "its own").unwrap();
    assert_eq!(Spooled::find(root.path(), &path), None);
    let error = first.put_in_place().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(
        (fs::read(&path).unwrap(), fs::read(first.place()).unwrap()),
        (b"its own".to_vec(), b"content".to_vec())
    );
    first.remove().unwrap();
    assert_eq!(files(root.path()), 0);
}

/// Creates a folder as left by a dead process, or held by a living one.
fn foreign(root: &Path, process: &str, path: &Path) -> (Spooled, fs::File) {
    // The host name is part of the name of this process's folder.
    let probe = spooled(root, &path.with_extension("probe"));
    let own = probe.folder.file_name().unwrap().to_string_lossy().into_owned();
    let host = own.rsplitn(3, '-').last().unwrap().to_owned();
    let folder = probe.folder.with_file_name(format!("{host}-{process}-1"));
    let copy = Spooled::of(root, &folder, path);
    fs::create_dir_all(copy.place().parent().unwrap()).unwrap();
    fs::write(copy.place(), "content").unwrap();
    fs::write(folder.join(".moves"), "").unwrap();
    let owner = fs::File::create(folder.join(".owner")).unwrap();
    probe.remove_empty_folders();
    (copy, owner)
}

#[test]
fn a_copy_of_another_process_is_moved_before_it_is_written() {
    let (root, home) = (roomy(), tempfile::tempdir().unwrap());
    let path = home.path().join("file");
    let (copy, owner) = foreign(root.path(), "1", &path);
    owner.lock().unwrap();
    assert_eq!(Spooled::find(root.path(), &path), Some(copy));
    assert!(is_own(root.path(), &path));
    assert_eq!(fs::read(&path).unwrap(), b"content");
}

#[test]
fn what_a_dead_process_left_is_told_and_not_touched() {
    let (root, home) = (roomy(), tempfile::tempdir().unwrap());
    let path = home.path().join("file");
    let (copy, owner) = foreign(root.path(), "1", &path);
    drop(owner);
    assert_eq!(Spooled::find(root.path(), &path), None);
    let anew = spooled(root.path(), &path);
    assert_ne!(anew, copy);
    fs::write(anew.place(), "other").unwrap();
    let found = leftovers(root.path());
    assert_eq!((found.len(), found[0].paths.clone(), found[0].bytes), (1, vec![path], 7));
    assert_eq!(fs::read(copy.place()).unwrap(), b"content");
    fs::remove_file(copy.place()).unwrap();
    assert!(leftovers(root.path()).is_empty());
    assert!(!copy.folder.exists());
    anew.remove().unwrap();
    assert_eq!(files(root.path()), 0);
}
