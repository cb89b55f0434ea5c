//! Replacements of the functions that start processes, and that end this one without its exit handlers.

use std::ffi::{c_char, c_int, c_void};

use libc::pid_t;

use super::program::{expect_child, is_original, preserving_errno};
use super::sharing::move_out;
use crate::guard::Guard;
use crate::leaving::{self, Ending};
use crate::process;
use crate::role;
use crate::spool;

/// Moves all open files out of the spool. A child shares their descriptors, but not the state of spooled files.
fn move_out_all() {
    if is_original() && Guard::is_free() {
        spool::open_descriptors().into_iter().for_each(move_out);
    }
}

/// Prepares for a child that has a copy of this process's memory.
pub(super) fn before_child() {
    move_out_all();
    if let Some(_guard) = Guard::enter().filter(|_| is_original()) {
        preserving_errno(|| {
            if process::is_ready() {
                role::prepare();
            }
        });
    }
    expect_child();
}

/// Prepares for a child that `clone` starts. Threads are not children.
fn before_clone(flags: c_int) {
    match (flags & libc::CLONE_THREAD, flags & libc::CLONE_VM) {
        (0, 0) => before_child(),
        (0, _) => before_child_in_memory(),
        _ => {}
    }
}

/// Prepares for a child that shares this process's memory.
fn before_child_in_memory() {
    move_out_all();
    expect_child();
}

/// Empties the spool before the process ends or becomes another program. A child of `vfork` passes: its memory is that
/// of its parent.
fn leave(ending: Ending) {
    if is_original() && Guard::is_free() {
        preserving_errno(|| leaving::before(ending));
    }
}

extern "C" fn at_quick_exit(_context: *mut c_void) {
    leave(Ending::Exit);
}

unsafe extern "C" {
    fn __cxa_at_quick_exit(function: extern "C" fn(*mut c_void), library: *mut c_void) -> c_int;
}

/// Registers a function for the end of the process by `quick_exit`. It runs after those of the program.
pub(super) fn watch_quick_exit() {
    // SAFETY: the function is valid as long as this library is loaded.
    unsafe { __cxa_at_quick_exit(at_quick_exit, std::ptr::null_mut()) };
}

type Strings = *const *const c_char;

exports! {
    fn fork() -> pid_t, c"fork", |real| {
        before_child();
        real()
    };
    fn _Fork() -> pid_t, c"_Fork", |real| {
        before_child();
        real()
    };
    // The last three arguments are optional.
    fn clone(routine: *mut c_void, stack: *mut c_void, flags: c_int, argument: *mut c_void, parent: *mut c_void,
        storage: *mut c_void, child: *mut c_void) -> c_int, c"clone", |real| {
            before_clone(flags);
            real(routine, stack, flags, argument, parent, storage, child)
        };
    fn posix_spawn(process: *mut pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void,
        arguments: Strings, environment: Strings) -> c_int, c"posix_spawn", |real| {
            move_out_all();
            real(process, path, actions, attributes, arguments, environment)
        };
    fn posix_spawnp(process: *mut pid_t, name: *const c_char, actions: *const c_void, attributes: *const c_void,
        arguments: Strings, environment: Strings) -> c_int, c"posix_spawnp", |real| {
            move_out_all();
            real(process, name, actions, attributes, arguments, environment)
        };
    fn execve(path: *const c_char, arguments: Strings, environment: Strings) -> c_int, c"execve", |real| {
        leave(Ending::Exec);
        real(path, arguments, environment)
    };
    fn execv(path: *const c_char, arguments: Strings) -> c_int, c"execv", |real| {
        leave(Ending::Exec);
        real(path, arguments)
    };
    fn execvp(name: *const c_char, arguments: Strings) -> c_int, c"execvp", |real| {
        leave(Ending::Exec);
        real(name, arguments)
    };
    fn execvpe(name: *const c_char, arguments: Strings, environment: Strings) -> c_int, c"execvpe", |real| {
        leave(Ending::Exec);
        real(name, arguments, environment)
    };
    fn fexecve(descriptor: c_int, arguments: Strings, environment: Strings) -> c_int, c"fexecve", |real| {
        leave(Ending::Exec);
        real(descriptor, arguments, environment)
    };
    fn execveat(folder: c_int, path: *const c_char, arguments: Strings, environment: Strings, flags: c_int) -> c_int,
        c"execveat", |real| {
            leave(Ending::Exec);
            real(folder, path, arguments, environment, flags)
        };
    fn _exit(status: c_int) -> (), c"_exit", |real| {
        leave(Ending::Exit);
        real(status)
    };
    fn _Exit(status: c_int) -> (), c"_Exit", |real| {
        leave(Ending::Exit);
        real(status)
    };
}

/// Prepares for a child of `vfork`. Returns the real function.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
extern "C" fn before_vfork() -> *mut c_void {
    static FOUND: std::sync::atomic::AtomicPtr<c_void> = std::sync::atomic::AtomicPtr::new(std::ptr::null_mut());
    before_child_in_memory();
    super::exports::next(&FOUND, c"vfork")
}

/// `vfork`. The real function returns twice to the caller's frame, so it is jumped to.
///
/// # Safety
/// The requirements are those of the C library's function.
#[cfg(target_arch = "x86_64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn vfork() -> pid_t {
    std::arch::naked_asm!("sub rsp, 8", "call {}", "add rsp, 8", "jmp rax", sym before_vfork);
}

/// `vfork`. The real function returns twice to the caller's frame, so it is jumped to.
///
/// # Safety
/// The requirements are those of the C library's function.
#[cfg(target_arch = "aarch64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn vfork() -> pid_t {
    std::arch::naked_asm!("stp x29, x30, [sp, #-16]!", "bl {}", "ldp x29, x30, [sp], #16", "br x0", sym before_vfork);
}
