//! Telling the program's calls from our own.

use std::cell::Cell;

thread_local! {
    // Without a destructor, so that it needs no registration and works at any time in a thread's life.
    static OURS: Cell<bool> = const { Cell::new(false) };
}

/// While it lives, calls of this thread are our own.
pub(crate) struct Guard(());

impl Guard {
    /// `None` when this thread is in our code already.
    pub(crate) fn enter() -> Option<Self> {
        // Made only when this call sets the mark: dropping one takes it off.
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
