//! Exports functions under the C library's names, and resolves the real functions.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// Exports functions under the C library's names and with the C library's types. Each is given as
/// `fn name(argument: type, …) -> type, c"name"` and a body, which receives the real function as `real`. The real
/// functions are resolved when this library is loaded, since a later call to the loader would clear the program's last
/// error (`dlerror`).
macro_rules! exports {
    ($(fn $symbol:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty, $name:literal, |$real:ident| $body:expr;)*) => {
        $(
            #[allow(non_snake_case, reason = "a name of the C library")]
            mod $symbol {
                pub(super) static FOUND: std::sync::atomic::AtomicPtr<std::ffi::c_void> =
                    std::sync::atomic::AtomicPtr::new(std::ptr::null_mut());
            }

            #[doc = concat!("`", stringify!($symbol), "`.")]
            /// # Safety
            /// The requirements are those of the C library's function.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $symbol($($argument: $type),*) -> $result {
                let found = crate::interpose::exports::next(&$symbol::FOUND, $name);
                if found.is_null() {
                    return crate::interpose::exports::Absent::absent();
                }
                // SAFETY: the symbol of this name is a function of this type.
                let $real = unsafe {
                    std::mem::transmute::<*mut std::ffi::c_void, unsafe extern "C" fn($($type),*) -> $result>(found)
                };
                // SAFETY: the arguments are the program's own, as passed to the C library.
                unsafe { $body }
            }
        )*

        /// Resolves the real functions.
        pub(super) fn find() {
            $(crate::interpose::exports::next(&$symbol::FOUND, $name);)*
        }
    };
}

/// The result of a function that an old C library lacks. A program that looks for the function by name finds ours.
pub(super) trait Absent: Sized {
    const RESULT: Self;

    fn absent() -> Self {
        super::program::set_errno(libc::ENOSYS);
        Self::RESULT
    }
}

impl Absent for c_int {
    const RESULT: Self = -1;
}

impl Absent for i64 {
    const RESULT: Self = -1;
}

impl Absent for isize {
    const RESULT: Self = -1;
}

impl Absent for usize {
    const RESULT: Self = 0;
}

impl Absent for () {
    const RESULT: Self = ();
}

impl<T> Absent for *mut T {
    const RESULT: Self = std::ptr::null_mut();
}

/// Returns the next function of this name in the load order, and caches it in `known`.
pub(super) fn next(known: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let mut found = known.load(Ordering::Relaxed);
    if found.is_null() {
        // SAFETY: the name is a C string.
        found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        known.store(found, Ordering::Relaxed);
    }
    found
}
