//! Distinguishes the program's calls from ours.

use std::cell::Cell;

thread_local! {
    // A type without a destructor needs no registration, so the flag is valid throughout a thread's life.
    static OURS: Cell<bool> = const { Cell::new(false) };
}

/// A guard that marks the calls of this thread as ours until it is dropped.
pub(crate) struct Guard(());

impl Guard {
    /// Sets the mark, or returns `None` if this thread is already in our code.
    pub(crate) fn enter() -> Option<Self> {
        // The guard is constructed only if this call sets the mark, since dropping the guard clears it.
        OURS.with(|ours| (!ours.replace(true)).then(|| Self(())))
    }

    /// Marks all further calls of this thread as ours, for a thread that our own code has started.
    pub(crate) fn enter_for_good() {
        OURS.with(|ours| ours.set(true));
    }

    /// Returns whether the calls of this thread are the program's.
    pub(crate) fn is_free() -> bool {
        OURS.with(|ours| !ours.get())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        OURS.with(|ours| ours.set(false));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_stays_until_the_outermost_guard_goes() {
        let outer = Guard::enter();
        assert!(outer.is_some());
        assert!(Guard::enter().is_none());
        assert!(Guard::enter().is_none(), "a refused guard takes nothing off");
        drop(outer);
        assert!(Guard::enter().is_some());
    }
}
