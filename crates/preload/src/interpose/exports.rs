//! Functions exported under the C library's names, and the real functions behind them.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// Exports functions of the C library, each under its name and with its own type:
/// `fn name(argument: type, …) -> type, c"name"`, and a body that receives the real function as `real`. The real
/// functions are resolved when this library is loaded: a later call to the loader would clear the program's last error
/// (`dlerror`).
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
            /// As for the C library's.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $symbol($($argument: $type),*) -> $result {
                let found = crate::interpose::exports::next(&$symbol::FOUND, $name);
                // SAFETY: the symbol of this name is a function of this type. A program that calls a function which the
                // C library lacks could not be loaded with that library.
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

/// Returns the next function of this name in the order of loading.
pub(super) fn next(known: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let mut found = known.load(Ordering::Relaxed);
    if found.is_null() {
        // SAFETY: looks up a symbol.
        found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        known.store(found, Ordering::Relaxed);
    }
    found
}
