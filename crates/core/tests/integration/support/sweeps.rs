//! Sweeps try many cases of one kind. `make test` runs a part of each sweep, which changes from commit to commit, and
//! `make test-full` runs them whole.

/// Returns whether this run takes all parts of each sweep.
pub(crate) fn is_whole() -> bool {
    std::env::var_os("TURBIDITE_WHOLE").is_some_and(|value| !value.is_empty())
}

/// Returns which of so many parts of each sweep this run takes, or `None` for all of them. `TURBIDITE_TURN` is the
/// number of commits, so that consecutive commits take consecutive parts.
pub(crate) fn part_of(parts: usize) -> Option<usize> {
    let turn = std::env::var("TURBIDITE_TURN").unwrap_or_else(|_| "0".to_owned());
    let turn: usize = turn.parse().unwrap_or_else(|_| panic!("TURBIDITE_TURN={turn} is no number"));
    (!is_whole()).then_some(turn % parts)
}

/// Returns the cases of this run: all of them, or every one in `parts`.
pub(crate) fn taken<T>(cases: impl IntoIterator<Item = T>, parts: usize) -> Vec<T> {
    let (first, step) = part_of(parts).map_or((0, 1), |part| (part, parts));
    cases.into_iter().skip(first).step_by(step).collect()
}

/// Returns the cases of this run for the input with this number: all of them, or one, such that the inputs of one run
/// have different cases.
pub(crate) fn taken_by_turns<T, const CASES: usize>(mut cases: [T; CASES], number: usize) -> Vec<T> {
    cases.rotate_left(number % CASES);
    taken(cases, CASES)
}
