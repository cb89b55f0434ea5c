//! Converts panics in third-party code to errors.

use std::any::Any;
use std::cell::Cell;

thread_local! {
    /// Whether a panic of this thread will be caught and reported as an error.
    static PANICS_ARE_CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether the current panic of this thread will be caught and reported as an error. A panic hook need not
/// report such a panic.
pub fn is_caught() -> bool {
    PANICS_ARE_CAUGHT.get()
}

/// Runs third-party code that may panic instead of returning an error. Catches the panic.
///
/// # Errors
/// Returns the text of the panic.
pub fn catch<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    let before = PANICS_ARE_CAUGHT.replace(true);
    // Callers return an error after a panic, so the state of `work` is no longer used.
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    PANICS_ARE_CAUGHT.set(before);
    done.map_err(|payload| text(payload.as_ref()))
}

/// Returns the text of a panic.
pub fn text(payload: &(dyn Any + Send)) -> String {
    let literal = payload.downcast_ref::<&str>().copied();
    literal.or(payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("unknown").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_panic_says_is_given_and_the_next_is_not_hidden() {
        assert_eq!(catch(|| 7), Ok(7));
        let caught: Result<u8, String> = catch(|| {
            assert!(is_caught());
            assert_eq!(catch(|| -> u8 { panic!("inner") }), Err("inner".to_owned()));
            assert!(is_caught());
            panic!("number {}", 1 + 1)
        });
        assert_eq!(caught, Err("number 2".to_owned()));
        assert!(!is_caught());
    }
}
