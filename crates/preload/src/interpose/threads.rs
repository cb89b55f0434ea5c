//! Marks the threads that our own code starts, so that their calls pass through.

use std::ffi::{c_int, c_void};

use libc::{pthread_attr_t, pthread_t};

use crate::guard::Guard;

type Routine = extern "C-unwind" fn(*mut c_void) -> *mut c_void;

/// The function that a new thread runs, and its argument.
struct Start {
    routine: Routine,
    argument: *mut c_void,
}

/// Runs the function of a thread of ours. It may end by unwinding (`pthread_exit`).
extern "C-unwind" fn run_ours(start: *mut c_void) -> *mut c_void {
    // SAFETY: the creator of this thread has passed the box.
    let Start { routine, argument } = *unsafe { Box::from_raw(start.cast::<Start>()) };
    Guard::enter_for_good();
    routine(argument)
}

exports! {
    fn pthread_create(thread: *mut pthread_t, attributes: *const pthread_attr_t, routine: Routine, argument: *mut c_void)
        -> c_int, c"pthread_create", |real| {
            if Guard::is_free() {
                return real(thread, attributes, routine, argument);
            }
            let start = Box::into_raw(Box::new(Start { routine, argument }));
            let result = real(thread, attributes, run_ours, start.cast());
            if result != 0 {
                drop(Box::from_raw(start));
            }
            result
        };
}
