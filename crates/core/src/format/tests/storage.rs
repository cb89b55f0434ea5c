//! Files in memory, for the tests of this module.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::storage::{DirEntry, FileKind, ReadableFile, Storage, WritableFile};

type Content = Arc<Mutex<Vec<u8>>>;

#[derive(Debug, Default)]
pub(crate) struct TestStorage {
    files: Mutex<HashMap<PathBuf, Content>>,
}

impl TestStorage {
    pub(super) fn content(&self, path: &Path) -> Vec<u8> {
        self.files.lock().unwrap()[path].lock().unwrap().clone()
    }

    pub(super) fn forget(&self, path: &Path) {
        self.files.lock().unwrap().remove(path);
    }

    pub(super) fn put(&self, path: &Path, content: Vec<u8>) {
        self.files.lock().unwrap().insert(path.to_owned(), Arc::new(Mutex::new(content)));
    }
}

#[derive(Debug)]
struct TestFile(Content);

impl WritableFile for TestFile {
    fn write_at(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut content = self.0.lock().unwrap();
        let end = offset as usize + data.len();
        if content.len() < end {
            content.resize(end, 0);
        }
        content[offset as usize..end].copy_from_slice(data);
        Ok(())
    }

    fn truncate(&mut self, bytes: u64) -> io::Result<()> {
        self.0.lock().unwrap().truncate(bytes as usize);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl ReadableFile for TestFile {
    fn bytes(&self) -> u64 {
        self.0.lock().unwrap().len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let content = self.0.lock().unwrap();
        let source = content.get(offset as usize..offset as usize + buffer.len());
        buffer.copy_from_slice(source.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

impl Storage for TestStorage {
    fn create(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        let content = Content::default();
        match self.files.lock().unwrap().insert(path.to_owned(), Arc::clone(&content)) {
            None => Ok(Box::new(TestFile(content))),
            Some(_) => Err(io::ErrorKind::AlreadyExists.into()),
        }
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadableFile>> {
        let files = self.files.lock().unwrap();
        let content = files.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(TestFile(Arc::clone(content))))
    }

    fn kind(&self, _: &Path) -> io::Result<Option<FileKind>> {
        unimplemented!()
    }

    fn list(&self, _: &Path) -> io::Result<Vec<DirEntry>> {
        unimplemented!()
    }

    fn create_dir_all(&self, _: &Path) -> io::Result<()> {
        unimplemented!()
    }

    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        unimplemented!()
    }

    fn exchange(&self, _: &Path, _: &Path) -> io::Result<()> {
        unimplemented!()
    }

    fn remove_file(&self, _: &Path) -> io::Result<()> {
        unimplemented!()
    }

    fn remove_dir_all(&self, _: &Path) -> io::Result<()> {
        unimplemented!()
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        unimplemented!()
    }
}
