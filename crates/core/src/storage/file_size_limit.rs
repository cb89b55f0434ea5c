//! The limit of the process on the size of files it writes (RLIMIT_FSIZE).
//!
//! The kernel sends SIGXFSZ to a thread that writes beyond the limit, which ends the process unless the program handles
//! the signal. Writes that are checked here first return an error instead. The limit is read before each write, since
//! the program may change it. A program that lowers it during a write still gets the signal.

use std::io;

use rustix::process::{Resource, getrlimit};

fn limit() -> Option<u64> {
    getrlimit(Resource::Fsize).current
}

fn too_large(limit: u64) -> io::Error {
    let what = format!(
        "File too large: this process may write at most {limit} bytes to a file (RLIMIT_FSIZE); raise the limit with \
         'ulimit -f unlimited' before the program starts"
    );
    io::Error::new(io::ErrorKind::FileTooLarge, what)
}

/// Returns how many of `bytes` bytes at `offset` may be written. They are at least one unless there are none.
///
/// # Errors
/// `FileTooLarge` if not even the first byte may be written.
pub(super) fn allowed_bytes(offset: u64, bytes: usize) -> io::Result<usize> {
    let Some(limit) = limit() else { return Ok(bytes) };
    match limit.saturating_sub(offset) {
        0 if bytes > 0 => Err(too_large(limit)),
        room => Ok(usize::try_from(room).unwrap_or(usize::MAX).min(bytes)),
    }
}

/// Checks that this process may write a file up to this length.
///
/// # Errors
/// `FileTooLarge` if the limit is lower.
pub fn check_length(bytes: u64) -> io::Result<()> {
    match limit() {
        Some(limit) if bytes > limit => Err(too_large(limit)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use rustix::process::{Rlimit, setrlimit};

    use super::*;
    use crate::storage::{FileSystem, ScratchFile, Storage};

    /// Environment variable with the folder, for a child process of the test. The limit applies to a whole process.
    const CHILD: &str = "TURBIDITE_TEST_FILE_SIZE_CHILD";
    const LIMIT: u64 = 10_000;

    #[test]
    fn child() {
        let Some(folder) = std::env::var_os(CHILD).map(std::path::PathBuf::from) else { return };
        let maximum = getrlimit(Resource::Fsize).maximum;
        setrlimit(Resource::Fsize, Rlimit { current: Some(LIMIT), maximum }).unwrap();
        let refused = |error: io::Error| {
            assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
            let text = error.to_string();
            assert!(text.starts_with("File too large: ") && text.contains("at most 10000 bytes"), "{text}");
            assert!(text.contains("RLIMIT_FSIZE") && text.contains("ulimit -f unlimited"), "{text}");
        };
        for (name, storage) in [("direct", FileSystem::new()), ("plain", FileSystem::plain())] {
            let path = folder.join(name);
            let mut file = storage.create(&path).unwrap();
            refused(file.write_at(0, &[1; 12_288]).unwrap_err());
            assert_eq!(path.metadata().unwrap().len(), LIMIT, "the rest fits");
            refused(file.write_at(LIMIT, &[1]).unwrap_err());
            file.write_at(LIMIT, &[]).unwrap();
            refused(file.truncate(LIMIT + 1).unwrap_err());
            file.truncate(4_096).unwrap();
            file.write_at(4_096, &[2; 4_096]).unwrap();
            file.sync().unwrap();
        }
        let mut scratch = ScratchFile::create(&folder).unwrap();
        scratch.append(&[1; LIMIT as usize]).unwrap();
        let error = scratch.append(&[1]).unwrap_err().to_string();
        assert!(error.contains(folder.to_str().unwrap()) && error.contains("RLIMIT_FSIZE"), "{error}");
        setrlimit(Resource::Fsize, Rlimit { current: maximum, maximum }).unwrap();
        scratch.append(&[1]).unwrap();
        check_length(u64::MAX).unwrap();
    }

    /// The child process has the default disposition of SIGXFSZ, which would end it.
    #[test]
    fn writes_beyond_the_limit_fail_and_raise_no_signal() {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let done = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "storage::file_size_limit::tests::child", "--nocapture"])
            .env(CHILD, folder.path())
            .output()
            .unwrap();
        assert!(done.status.success(), "{done:?}");
        assert_eq!(folder.path().join("plain").metadata().unwrap().len(), 8_192, "the child did its work");
    }
}
