//! Sweeps try many cases of one kind. `make test` runs a part of each sweep, which changes from commit to commit, and
//! `make test-full` runs them whole.

/// Returns a number from an environment variable.
fn setting(name: &str) -> Option<usize> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// Returns which of so many parts of each sweep this run takes, or `None` for all of them. `TURBIDITE_TURN` is the
/// number of commits, so that consecutive commits take consecutive parts.
pub(crate) fn part_of(parts: usize) -> Option<usize> {
    let whole = std::env::var_os("TURBIDITE_WHOLE").is_some_and(|value| !value.is_empty());
    (!whole).then(|| setting("TURBIDITE_TURN").unwrap_or(0) % parts)
}
