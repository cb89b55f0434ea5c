//! Tests the contract of [`Storage`] with one suite, which every implementation must pass.

use std::io::{ErrorKind, IoSliceMut};
use std::path::Path;
use std::sync::Arc;

use super::{ALIGNMENT, DirEntry, FaultStorage, FileKind, FileSystem, MemoryStorage, Storage, read_all};

fn write(storage: &dyn Storage, path: &Path, content: &[u8]) {
    let mut file = storage.create(path).unwrap();
    file.write_at(0, content).unwrap();
    file.sync().unwrap();
}

fn read(storage: &dyn Storage, path: &Path) -> Vec<u8> {
    read_all(storage, path, 1 << 30).unwrap()
}

fn files(storage: &dyn Storage, root: &Path) {
    let path = root.join("file");
    assert_eq!(storage.kind(&path).unwrap(), None);
    assert_eq!(storage.open(&path).unwrap_err().kind(), ErrorKind::NotFound);
    let mut file = storage.create(&path).unwrap();
    assert_eq!(storage.create(&path).unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(storage.kind(&path).unwrap(), Some(FileKind::File));

    // The writes are out of order, with a gap, overlapping, empty, unaligned and aligned.
    file.write_at(10, b"world").unwrap();
    file.write_at(0, b"hello").unwrap();
    file.write_at(3, b"LO").unwrap();
    file.write_at(5000, b"").unwrap();
    assert_eq!(read(storage, &path), b"helLO\0\0\0\0\0world");
    let large: Vec<u8> = (0..5 * ALIGNMENT).map(|index| (index % 251) as u8).collect();
    let start = large.as_ptr().align_offset(ALIGNMENT);
    let aligned = &large[start..start + 3 * ALIGNMENT];
    file.write_at(ALIGNMENT as u64, aligned).unwrap();
    file.truncate(2 * ALIGNMENT as u64 + 1).unwrap();
    file.sync().unwrap();
    let content = read(storage, &path);
    assert_eq!(content.len(), 2 * ALIGNMENT + 1);
    assert!(content[ALIGNMENT..] == aligned[..ALIGNMENT + 1]);
    assert!(content[15..ALIGNMENT].iter().all(|byte| *byte == 0));
    file.truncate(20).unwrap();
    file.truncate(30).unwrap();
    assert_eq!(read(storage, &path)[15..], [0; 15], "bytes beyond a cut do not come back");

    let reader = storage.open(&path).unwrap();
    assert_eq!(reader.bytes(), 30);
    let mut five = [0; 5];
    reader.read_at(10, &mut five).unwrap();
    assert_eq!(&five, b"world");
    assert_eq!(reader.read_at(26, &mut five).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    // More buffers than one system call accepts, with empty buffers at the start and among the others
    let (mut many, mut last) = (vec![[0u8; 1]; 2500], [0u8; 2]);
    let mut buffers: Vec<IoSliceMut<'_>> = Vec::new();
    for (number, byte) in many.iter_mut().enumerate() {
        buffers.push(IoSliceMut::new(if number % 100 < 99 { &mut [] } else { byte }));
    }
    buffers.push(IoSliceMut::new(&mut last));
    reader.read_vectored_at(3, &mut buffers).unwrap();
    let filled: Vec<u8> = many.iter().skip(99).step_by(100).map(|[byte]| *byte).collect();
    assert_eq!((filled, last), (content[3..28].to_vec(), [0; 2]));
    let mut two = [[0u8; 2]; 2];
    let mut buffers: Vec<IoSliceMut<'_>> = two.iter_mut().map(|two| IoSliceMut::new(two)).collect();
    assert_eq!(reader.read_vectored_at(27, &mut buffers).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    reader.read_vectored_at(30, &mut []).unwrap();
    reader.announce(&[]);
    reader.announce(&[(0, 5), (20, 100), (u64::MAX, 1)]);
    reader.read_at(10, &mut five).unwrap();
    assert_eq!(&five, b"world", "announcing changes nothing");
    storage.remove_file(&path).unwrap();
    assert_eq!(storage.kind(&path).unwrap(), None);
    assert_eq!(storage.remove_file(&path).unwrap_err().kind(), ErrorKind::NotFound);
    reader.read_at(10, &mut five).unwrap();
    assert_eq!(&five, b"world", "an open file outlives its name");
}

fn folders(storage: &dyn Storage, root: &Path) {
    let deep = root.join("one/two");
    storage.create_dir_all(&deep).unwrap();
    storage.create_dir_all(&deep).unwrap();
    assert_eq!(storage.kind(&deep).unwrap(), Some(FileKind::Directory));
    storage.open(&deep).map(|_| ()).unwrap_err();
    for name in ["b", "a", "B"] {
        write(storage, &deep.join(name), b"x");
    }
    storage.create_dir_all(&deep.join("aa")).unwrap();
    let entry = |name: &str, kind| DirEntry { name: name.to_owned(), kind };
    let expected = [
        entry("B", FileKind::File),
        entry("a", FileKind::File),
        entry("aa", FileKind::Directory),
        entry("b", FileKind::File),
    ];
    assert_eq!(storage.list(&deep).unwrap(), expected, "byte order");
    assert_eq!(storage.kind(&deep.join("a/below")).unwrap(), None, "nothing lies below a file");
    storage.create_dir_all(&deep.join("a")).unwrap_err();
    storage.sync_dir(&deep).unwrap();
    storage.sync_dir(&deep.join("a")).unwrap_err();
    assert_eq!(storage.list(&root.join("none")).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(storage.create(&root.join("none/file")).unwrap_err().kind(), ErrorKind::NotFound);
    storage.remove_file(&deep.join("aa")).unwrap_err();
    storage.remove_dir_all(&root.join("one")).unwrap();
    assert_eq!(storage.kind(&root.join("one")).unwrap(), None);
    assert_eq!(storage.remove_dir_all(&root.join("one")).unwrap_err().kind(), ErrorKind::NotFound);
}

fn renames(storage: &dyn Storage, root: &Path) {
    let (one, two) = (root.join("one"), root.join("two"));
    write(storage, &one, b"1");
    write(storage, &two, b"2");
    assert_eq!(storage.rename(&one, &two).unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!((read(storage, &one), read(storage, &two)), (b"1".to_vec(), b"2".to_vec()));
    let three = root.join("three");
    storage.rename(&one, &three).unwrap();
    assert_eq!(storage.kind(&one).unwrap(), None);
    assert_eq!(read(storage, &three), b"1");
    assert_eq!(storage.rename(&one, &root.join("four")).unwrap_err().kind(), ErrorKind::NotFound);

    let (full, other, empty) = (root.join("full"), root.join("other"), root.join("empty"));
    for folder in [&full, &other, &empty] {
        storage.create_dir_all(folder).unwrap();
    }
    write(storage, &full.join("file"), b"full");
    write(storage, &other.join("file"), b"other");
    for target in [&other, &empty, &two] {
        assert_eq!(storage.rename(&full, target).unwrap_err().kind(), ErrorKind::AlreadyExists, "{target:?}");
    }
    storage.rename(&full, &empty.join("moved")).unwrap();
    assert_eq!(read(storage, &empty.join("moved/file")), b"full");
    assert_eq!(storage.list(&full).unwrap_err().kind(), ErrorKind::NotFound);
}

fn exchanges(storage: &dyn Storage, root: &Path, supported: bool) {
    let (one, two) = (root.join("here/one"), root.join("there/two"));
    for (folder, content) in [(&one, b"1"), (&two, b"2")] {
        storage.create_dir_all(folder).unwrap();
        write(storage, &folder.join("file"), content);
    }
    let expected: [&[u8]; 2] = if supported { [b"2", b"1"] } else { [b"1", b"2"] };
    match storage.exchange(&one, &two) {
        Ok(()) => assert!(supported),
        Err(error) => assert!(!supported && error.kind() == ErrorKind::Unsupported, "{error}"),
    }
    assert_eq!([read(storage, &one.join("file")), read(storage, &two.join("file"))], expected);
    if supported {
        assert_eq!(storage.exchange(&one, &root.join("none")).unwrap_err().kind(), ErrorKind::NotFound);
    }
}

fn suite(storage: &dyn Storage, root: &Path, exchange_supported: bool) {
    for (name, part) in [("files", files as fn(&dyn Storage, &Path)), ("folders", folders), ("renames", renames)] {
        let root = root.join(name);
        storage.create_dir_all(&root).unwrap();
        part(storage, &root);
    }
    exchanges(storage, &root.join("exchanges"), exchange_supported);
}

#[test]
fn the_file_system_keeps_the_contract() {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    // The test checks once whether the file system of the temporary folder supports exchange.
    let (one, two) = (folder.path().join("1"), folder.path().join("2"));
    std::fs::create_dir(&one).unwrap();
    std::fs::create_dir(&two).unwrap();
    let supported =
        rustix::fs::renameat_with(rustix::fs::CWD, &one, rustix::fs::CWD, &two, rustix::fs::RenameFlags::EXCHANGE)
            .is_ok();
    suite(&FileSystem::new(), &folder.path().join("suite"), supported);
}

#[test]
fn the_file_system_without_its_extensions_keeps_the_contract() {
    let folder = tempfile::tempdir().unwrap();
    suite(&FileSystem::plain(), folder.path(), false);
}

#[test]
fn memory_keeps_the_contract() {
    suite(&MemoryStorage::new(), Path::new("/root"), true);
    suite(&MemoryStorage::without_exchange(), Path::new("relative"), false);
}

#[test]
fn a_wrapper_without_faults_keeps_the_contract() {
    suite(&FaultStorage::new(Arc::new(MemoryStorage::new())), Path::new("/root"), true);
}
