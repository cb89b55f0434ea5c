//! Conversion of panics in third-party code to errors.

use std::any::Any;
use std::cell::Cell;

thread_local! {
    /// A panic of this thread will be caught and reported as an error.
    static PANICS_ARE_CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether the current panic of this thread will be caught, and needs no report of its own.
pub fn is_caught() -> bool {
    PANICS_ARE_CAUGHT.get()
}

/// Runs third-party code that panics where it should return an error.
///
/// # Errors
/// The text of the panic.
pub fn catch<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    let before = PANICS_ARE_CAUGHT.replace(true);
    // No state of `work` is used after a panic: the callers end with an error.
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
