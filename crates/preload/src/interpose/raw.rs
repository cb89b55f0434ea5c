//! Replaces `syscall`, by which programs make system calls that their C library lacks. System calls that concern files
//! are passed to the replacements of the corresponding functions.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_long, c_void};

use super::mapping;
use super::opening::descriptor_of;
use super::processes::before_child;
use super::program::errno;
use crate::guard::Guard;
use crate::process;

thread_local! {
    /// Whether this thread makes a system call by a function of the C library.
    static IS_NESTED: Cell<bool> = const { Cell::new(false) };
}

/// The arguments of a system call.
type Arguments = [c_long; 6];

fn path(argument: c_long) -> *const c_char {
    argument as *const c_char
}

fn number(argument: c_long) -> c_int {
    argument as c_int
}

fn at<T>(argument: c_long) -> *mut T {
    argument as *mut T
}

fn bytes(argument: c_long) -> usize {
    argument as usize
}

/// The part of the kernel's `struct open_how` that this library reads.
#[repr(C)]
struct OpenHow {
    flags: u64,
}

/// Makes a system call on files by the C library's function. Returns `None` for any other system call.
///
/// # Safety
/// The arguments are valid for the system call.
unsafe fn by_function(call: c_long, arguments: Arguments, real: impl Fn() -> c_long) -> Option<c_long> {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the functions have the arguments of the system calls, which are valid.
    Some(unsafe {
        match call {
            libc::SYS_close => libc::close(number(a)).into(),
            libc::SYS_close_range => libc::close_range(a as u32, b as u32, number(c)).into(),
            libc::SYS_openat => libc::openat(number(a), path(b), number(c), d as libc::mode_t).into(),
            libc::SYS_openat2 => {
                let flags = at::<OpenHow>(c).as_ref().map_or(0, |how| how.flags as c_int);
                // The path of a spooled file is absolute, so the folder is ignored for it.
                let open = |path: *const c_char| libc::syscall(call, a, path, c, d);
                descriptor_of(number(a), path(b), flags, |path| real_call(&open, path)).into()
            }
            libc::SYS_write => libc::write(number(a), at(b), bytes(c)) as c_long,
            libc::SYS_writev => libc::writev(number(a), at(b), number(c)) as c_long,
            libc::SYS_pwrite64 => libc::pwrite64(number(a), at(b), bytes(c), d) as c_long,
            libc::SYS_pwritev => libc::pwritev64(number(a), at(b), number(c), d) as c_long,
            libc::SYS_pwritev2 => libc::pwritev2(number(a), at(b), number(c), d, number(f)) as c_long,
            libc::SYS_ftruncate => libc::ftruncate64(number(a), b).into(),
            libc::SYS_truncate => libc::truncate64(path(a), b).into(),
            libc::SYS_fallocate => libc::fallocate64(number(a), number(b), c, d).into(),
            libc::SYS_dup => libc::dup(number(a)).into(),
            libc::SYS_dup3 => libc::dup3(number(a), number(b), number(c)).into(),
            libc::SYS_fcntl => libc::fcntl(number(a), number(b), at::<c_void>(c)).into(),
            // Libraries that replace these functions (UCX does) end in these calls, so the functions must not be
            // called.
            libc::SYS_mmap => mapping::map_by(bytes(b), number(d), number(e), || at(real())) as c_long,
            libc::SYS_munmap => {
                let result = real();
                if result == 0 {
                    mapping::unmapped(at(a), bytes(b));
                }
                result
            }
            libc::SYS_mremap => {
                let new = real();
                if new != -1 {
                    mapping::remapped(at(a), bytes(b), at(new), bytes(c));
                }
                new
            }
            libc::SYS_sendfile => libc::sendfile64(number(a), number(b), at(c), bytes(d)) as c_long,
            libc::SYS_copy_file_range => {
                libc::copy_file_range(number(a), at(b), number(c), at(d), bytes(e), f as u32) as c_long
            }
            libc::SYS_splice => libc::splice(number(a), at(b), number(c), at(d), bytes(e), f as u32) as c_long,
            libc::SYS_renameat2 => libc::renameat2(number(a), path(b), number(c), path(d), e as u32).into(),
            libc::SYS_linkat => libc::linkat(number(a), path(b), number(c), path(d), number(e)).into(),
            libc::SYS_symlinkat => libc::symlinkat(path(a), number(b), path(c)).into(),
            libc::SYS_unlinkat => libc::unlinkat(number(a), path(b), number(c)).into(),
            libc::SYS_statx => libc::statx(number(a), path(b), number(c), d as u32, at(e)).into(),
            libc::SYS_newfstatat => libc::fstatat64(number(a), path(b), at(c), number(d)).into(),
            libc::SYS_faccessat => libc::faccessat(number(a), path(b), number(c), 0).into(),
            libc::SYS_fchmodat => libc::fchmodat(number(a), path(b), c as libc::mode_t, 0).into(),
            libc::SYS_fchownat => {
                libc::fchownat(number(a), path(b), c as libc::uid_t, d as libc::gid_t, number(e)).into()
            }
            libc::SYS_utimensat => libc::utimensat(number(a), path(b), at(c), number(d)).into(),
            libc::SYS_sendmsg => libc::sendmsg(number(a), at(b), number(c)) as c_long,
            libc::SYS_execve => libc::execve(path(a), at(b), at(c)).into(),
            libc::SYS_exit_group => libc::_exit(number(a)),
            libc::SYS_clone | libc::SYS_clone3 => {
                before_child();
                real()
            }
            #[cfg(target_arch = "x86_64")]
            other => return by_old_function(other, arguments),
            #[cfg(not(target_arch = "x86_64"))]
            _ => return None,
        }
    })
}

/// Makes an `openat2` call through this library's own replacement of `syscall`, which passes it through as ours.
fn real_call(open: &impl Fn(*const c_char) -> c_long, path: *const c_char) -> c_int {
    let _guard = Guard::enter();
    open(path) as c_int
}

/// Makes a system call that newer architectures lack.
///
/// # Safety
/// The arguments are valid for the system call.
#[cfg(target_arch = "x86_64")]
unsafe fn by_old_function(call: c_long, [a, b, c, d, _, _]: Arguments) -> Option<c_long> {
    // SAFETY: as in `by_function`.
    Some(unsafe {
        match call {
            libc::SYS_open => libc::open(path(a), number(b), c as libc::mode_t).into(),
            libc::SYS_creat => libc::creat(path(a), b as libc::mode_t).into(),
            libc::SYS_dup2 => libc::dup2(number(a), number(b)).into(),
            libc::SYS_rename => libc::rename(path(a), path(b)).into(),
            libc::SYS_renameat => libc::renameat(number(a), path(b), number(c), path(d)).into(),
            libc::SYS_link => libc::link(path(a), path(b)).into(),
            libc::SYS_symlink => libc::symlink(path(a), path(b)).into(),
            libc::SYS_unlink => libc::unlink(path(a)).into(),
            libc::SYS_stat => libc::stat64(path(a), at(b)).into(),
            libc::SYS_lstat => libc::lstat64(path(a), at(b)).into(),
            libc::SYS_access => libc::access(path(a), number(b)).into(),
            libc::SYS_chmod => libc::chmod(path(a), b as libc::mode_t).into(),
            libc::SYS_chown => libc::chown(path(a), b as libc::uid_t, c as libc::gid_t).into(),
            libc::SYS_lchown => libc::lchown(path(a), b as libc::uid_t, c as libc::gid_t).into(),
            libc::SYS_utimes => libc::utimes(path(a), at(b)).into(),
            libc::SYS_fork => libc::fork().into(),
            _ => return None,
        }
    })
}

exports! {
    fn syscall(call: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long) -> c_long, c"syscall",
        |real| {
            let by_kernel = || real(call, a, b, c, d, e, f);
            // Our own code and the functions that are called here make system calls, too. An allocator may make them
            // before anything can be allocated.
            if !process::is_known_ready() || !Guard::is_free() || IS_NESTED.replace(true) {
                return by_kernel();
            }
            let result = by_function(call, [a, b, c, d, e, f], by_kernel);
            IS_NESTED.set(false);
            // An old C library lacks some of the functions.
            result.filter(|&result| result != -1 || errno() != libc::ENOSYS).unwrap_or_else(by_kernel)
        };
}
