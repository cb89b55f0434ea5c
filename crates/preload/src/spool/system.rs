//! Wraps system calls on the program's descriptors, and system calls that the standard library and `rustix` lack.
//!
//! Safety: a descriptor of the program is in the table from its opening to its closing. It is used here only during the
//! program's own calls with this descriptor. The program keeps the descriptor, and no function here closes it.

use std::fs::{File, Metadata, Permissions};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::io::{DupFlags, Errno, FdFlags};
use rustix::process::{Resource, getrlimit};

use crate::own_descriptors;

/// Moves one of our own files to a high descriptor.
pub(super) fn high(file: File) -> File {
    // The file keeps its low descriptor if there is no high one.
    let file = own_descriptors::duplicate(file.as_fd()).map_or(file, File::from);
    own_descriptors::mark(file.as_raw_fd());
    file
}

/// The device and inode of a file, which no other existing file has on this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    pub(crate) fn of(about: &Metadata) -> Self {
        Self { device: about.dev(), inode: about.ino() }
    }

    pub(crate) fn device(self) -> u64 {
        self.device
    }

    pub(crate) fn inode(self) -> u64 {
        self.inode
    }

    /// Returns the identity of the file that one of the program's descriptors refers to now, or `None` if it is closed.
    pub(crate) fn of_descriptor(descriptor: i32) -> Option<Self> {
        let about = rustix::fs::fstat(program(&descriptor)).ok()?;
        Some(Self { device: about.st_dev, inode: about.st_ino })
    }
}

fn program(descriptor: &i32) -> BorrowedFd<'_> {
    // SAFETY: the descriptor is open, as stated at the top of this module.
    unsafe { BorrowedFd::borrow_raw(*descriptor) }
}

/// Returns whether the program may write to one of its descriptors.
pub(crate) fn is_writable(descriptor: i32) -> bool {
    rustix::fs::fcntl_getfl(program(&descriptor)).is_ok_and(|flags| flags.intersects(OFlags::WRONLY | OFlags::RDWR))
}

/// Returns the file offset of one of the program's descriptors.
pub(super) fn offset_of(descriptor: i32) -> io::Result<u64> {
    Ok(rustix::fs::tell(program(&descriptor))?)
}

/// Opens the file of a descriptor again for reading and writing, regardless of the file's permissions.
pub(super) fn reopen(descriptor: i32) -> io::Result<File> {
    let path = format!("/proc/self/fd/{descriptor}");
    let open = || File::options().read(true).write(true).open(&path);
    open().or_else(|error| {
        let permissions = std::fs::metadata(&path)?.permissions();
        std::fs::set_permissions(&path, Permissions::from_mode(permissions.mode() | 0o600)).map_err(|_| error)?;
        let opened = open();
        std::fs::set_permissions(&path, permissions)?;
        opened
    })
}

/// Opens a file with the access mode, status flags and offset of one of the program's descriptors.
pub(super) fn counterpart(descriptor: i32, path: &Path) -> io::Result<OwnedFd> {
    let program = program(&descriptor);
    // The flags of an open file include no creation flags, except those that the kernel sets itself.
    let flags = rustix::fs::fcntl_getfl(program)? & !(OFlags::CREATE | OFlags::EXCL | OFlags::TRUNC | OFlags::NOFOLLOW);
    let open = |flags| rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty());
    // If direct I/O is not supported, the file is opened through the page cache.
    let new =
        open(flags).or_else(|error| if error == Errno::INVAL { open(flags - OFlags::DIRECT) } else { Err(error) })?;
    rustix::fs::seek(&new, SeekFrom::Start(rustix::fs::tell(program)?))?;
    Ok(new)
}

/// Makes a descriptor refer to another open file. The descriptor keeps its close-on-exec flag.
pub(super) fn replace(descriptor: i32, new: BorrowedFd<'_>) -> io::Result<()> {
    let closes_on_exec = rustix::io::fcntl_getfd(program(&descriptor))?.contains(FdFlags::CLOEXEC);
    let flags = if closes_on_exec { DupFlags::CLOEXEC } else { DupFlags::empty() };
    // SAFETY: the descriptor is open, as stated at the top of this module, and the owner is never dropped.
    let mut target = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(descriptor) });
    Ok(rustix::io::dup3(new, &mut target, flags)?)
}

/// Returns another descriptor of the same open file.
pub(super) fn duplicate(descriptor: i32) -> io::Result<OwnedFd> {
    let new = own_descriptors::duplicate(program(&descriptor))?;
    // A descriptor of the program's file is never closed by number.
    own_descriptors::unmark(new.as_raw_fd());
    Ok(new)
}

/// Reserves space for the bytes of a file from `begin` on, without changing its length.
///
/// Bytes beyond the process's limit on the size of files need no space, since they cannot be written. On tmpfs, to
/// reserve them would end the program with SIGXFSZ.
pub(super) fn reserve(file: &File, begin: u64, bytes: u64) -> io::Result<()> {
    let limit = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
    let bytes = bytes.min(limit.saturating_sub(begin));
    if bytes == 0 {
        return Ok(());
    }
    let number = |value: u64| i64::try_from(value).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge));
    let (begin, bytes) = (number(begin)?, number(bytes)?);
    loop {
        // This calls the C library's function, so that tests can intercept it. SAFETY: the descriptor is open, and the
        // other arguments are numbers.
        if unsafe { libc::fallocate64(file.as_raw_fd(), libc::FALLOC_FL_KEEP_SIZE, begin, bytes) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// A lock on one byte of a file, released on drop.
#[derive(Debug)]
pub(super) struct ByteLock<'a> {
    file: &'a File,
    byte: u64,
}

impl<'a> ByteLock<'a> {
    /// Blocks until no other process holds the byte's lock. Threads of one process share this lock and need a mutex as
    /// well.
    pub(super) fn take(file: &'a File, byte: u64) -> io::Result<Self> {
        set_lock(file, byte, libc::F_WRLCK)?;
        Ok(Self { file, byte })
    }
}

impl Drop for ByteLock<'_> {
    fn drop(&mut self) {
        // A lock that cannot be released ends with the process.
        let _ = set_lock(self.file, self.byte, libc::F_UNLCK);
    }
}

fn set_lock(file: &File, byte: u64, kind: i32) -> io::Result<()> {
    // SAFETY: the struct consists of integers, for which zero is a valid value.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as i16;
    lock.l_whence = libc::SEEK_SET as i16;
    // Offsets are signed. Two inode numbers that differ only in the highest bit share a lock.
    lock.l_start = (byte & i64::MAX as u64) as i64;
    lock.l_len = 1;
    loop {
        // SAFETY: the descriptor is open, and the struct lives until the call returns.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLKW, &raw mut lock) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Runs a call of the program while its descriptor refers to `/dev/full`, which is always full, since neither the spool
/// nor the original path can hold more bytes. The C library drops the stream's buffer and reports the error to the
/// program.
pub(super) fn while_full<T>(descriptor: i32, closes: bool, call: impl FnOnce() -> T) -> T {
    let prepared = duplicate(descriptor).and_then(|before| {
        let full = File::options().read(true).write(true).open("/dev/full")?;
        replace(descriptor, full.as_fd())?;
        Ok(before)
    });
    let result = call();
    if let (Ok(before), false) = (prepared, closes) {
        let error = rustix_errno();
        // Both descriptors are open, so this succeeds.
        let _ = replace(descriptor, before.as_fd());
        drop(before);
        set_errno(error);
    }
    result
}

fn rustix_errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

fn set_errno(value: i32) {
    // SAFETY: the pointer refers to this thread's own variable.
    unsafe { *libc::__errno_location() = value };
}
