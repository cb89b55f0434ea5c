//! Distinguishes the program's calls from ours.

use std::cell::Cell;

thread_local! {
    // It has no destructor, so it needs no registration and works throughout a thread's life.
    static OURS: Cell<bool> = const { Cell::new(false) };
}

/// Marks the calls of this thread as ours until it is dropped.
pub(crate) struct Guard(());

impl Guard {
    /// Sets the mark, or returns `None` when this thread is in our code already.
    pub(crate) fn enter() -> Option<Self> {
        // Constructed only when this call sets the mark: dropping it clears the mark.
        OURS.with(|ours| (!ours.replace(true)).then(|| Self(())))
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
