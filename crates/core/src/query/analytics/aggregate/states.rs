//! The state of aggregates: what a piece adds to each group, and what all pieces have added.

use std::sync::Arc;

use crate::error::{Result, UsageError};
use crate::expr::Numbers;
use crate::query::analytics::aggregate::groups::{Located, Placement};
use crate::query::analytics::aggregate::moments::Moments;
use crate::query::analytics::aggregate::sum::Sum;
use crate::query::analytics::aggregate::values::{KeptValues, PieceValues};

/// A state, of expressions by their indexes. All but `Whole`, `Least`, `Greatest` and `Values` are of floats.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum StateKind {
    Sum(usize),
    /// The sum of the products of two numbers.
    Products(usize, usize),
    /// The sum of an integer.
    Whole(usize),
    Moments {
        a: usize,
        b: usize,
        weight: Option<usize>,
    },
    Least(usize),
    Greatest(usize),
    /// The number of rows with NaN.
    Nan(usize),
    Values {
        value: usize,
        is_unsigned: bool,
        weight: Option<usize>,
    },
}

/// The state of each group, or of each place of a piece.
#[derive(Debug, Clone)]
pub(super) enum State {
    Sums(Vec<Sum>),
    Integers(Vec<i128>),
    Moments(Vec<Moments>),
    /// Extremes, NaN without values.
    Floats(Vec<f64>),
    Counts(Vec<u64>),
    PieceValues(PieceValues),
    KeptValues(KeptValues),
}

impl State {
    /// Returns the size of the values of a piece.
    pub(super) fn value_bytes(&self) -> u64 {
        match self {
            Self::PieceValues(values) => values.bytes(),
            _ => 0,
        }
    }
}

fn refused(what: &str) -> UsageError {
    UsageError::Option { option: "aggregates", what: what.to_owned() }
}

/// Sums integers. The sums of a piece are checked as those of all pieces are.
fn sum_integers(located: &Located, values: &[i128]) -> Result<Vec<i128>> {
    let (mut sums, mut has_overflown) = (vec![0i128; located.count], false);
    located.placement.each(values.iter(), |place, value| {
        let (sum, overflows) = sums[place].overflowing_add(*value);
        // The rows at place 0 have no group.
        (sums[place], has_overflown) = (sum, has_overflown | (overflows & (place != 0)));
    });
    if has_overflown { Err(too_large().into()) } else { Ok(sums) }
}

fn too_large() -> UsageError {
    refused("a sum of integers exceeds 128 bits; multiply the integer by 1.0")
}

fn is_less<T: PartialOrd>(value: T, least: T) -> bool {
    value < least
}

fn is_greater<T: PartialOrd>(value: T, greatest: T) -> bool {
    value > greatest
}

/// Returns the extreme of each place: a value that no other is beyond.
#[inline(always)]
fn extremes(
    located: &Located,
    numbers: &Numbers,
    is_beyond: (impl Fn(f64, f64) -> bool, impl Fn(i128, i128) -> bool),
    none: i128,
) -> State {
    if let Numbers::Whole(values) = numbers {
        let mut found = vec![none; located.count];
        located.placement.each(values.iter(), |place, value| {
            if is_beyond.1(*value, found[place]) {
                found[place] = *value;
            }
        });
        return State::Integers(found);
    }
    let mut found = vec![f64::NAN; located.count];
    located.placement.each(numbers.floats().iter(), |place, value| {
        if is_beyond.0(*value, found[place]) | found[place].is_nan() {
            found[place] = *value;
        }
    });
    State::Floats(found)
}

impl StateKind {
    /// Computes the state of a piece.
    ///
    /// # Errors
    /// Usage errors: an integer that is too large, a weight that a quantile cannot have.
    pub(super) fn of_piece(self, located: &Located, numbers: &[Numbers]) -> Result<State> {
        let floats = |expression: usize| numbers[expression].floats();
        Ok(match self {
            Self::Sum(value) => {
                let (values, mut sums) = (floats(value), vec![Sum::ZERO; located.count]);
                match &located.placement {
                    Placement::Runs(_) => {
                        located.placement.each_run(|place, rows| sums[place].merge(Sum::of(&values[rows])))
                    }
                    placement => placement.each(values.iter(), |place, value| sums[place].add(*value)),
                }
                State::Sums(sums)
            }
            Self::Products(one, other) => {
                let (one, other, mut sums) = (floats(one), floats(other), vec![Sum::ZERO; located.count]);
                match &located.placement {
                    Placement::Runs(_) => located.placement.each_run(|place, rows| {
                        sums[place].merge(Sum::of_products(&one[rows.clone()], &other[rows]));
                    }),
                    placement => {
                        placement.each(one.iter().zip(other), |place, (one, other)| sums[place].add(one * other));
                    }
                }
                State::Sums(sums)
            }
            Self::Whole(value) => State::Integers(sum_integers(located, numbers[value].integers())?),
            Self::Moments { a, b, weight } => {
                let (both, is_variance) = ((floats(a), floats(b)), a == b);
                State::Moments(match weight.map(floats) {
                    Some(weights) => Moments::of(located, both, is_variance, |row| weights[row]),
                    None => Moments::of(located, both, is_variance, |_| 1.0),
                })
            }
            Self::Least(value) => extremes(located, &numbers[value], (is_less, is_less), i128::MAX),
            Self::Greatest(value) => extremes(located, &numbers[value], (is_greater, is_greater), i128::MIN),
            Self::Nan(value) => {
                let mut counts = vec![0u64; located.count];
                located.placement.each(floats(value).iter(), |place, value| counts[place] += u64::from(value.is_nan()));
                State::Counts(counts)
            }
            Self::Values { value, is_unsigned, weight } => State::PieceValues(PieceValues::of(
                &located.placement,
                (&numbers[value], is_unsigned),
                weight.map(floats),
            )?),
        })
    }

    /// Adds groups without rows, up to this number of groups.
    pub(super) fn grow(self, state: &mut State, groups: usize) {
        match state {
            State::Sums(sums) => sums.resize(groups, Sum::ZERO),
            State::Integers(integers) => integers.resize(
                groups,
                match self {
                    Self::Least(_) => i128::MAX,
                    Self::Greatest(_) => i128::MIN,
                    _ => 0,
                },
            ),
            State::Moments(moments) => moments.resize(groups, Moments::EMPTY),
            State::Floats(floats) => floats.resize(groups, f64::NAN),
            State::Counts(counts) => counts.resize(groups, 0),
            State::PieceValues(_) | State::KeptValues(_) => {}
        }
    }

    /// Returns the state without groups. `is_whole` returns whether an expression is an integer.
    pub(super) fn none(self, is_whole: impl Fn(usize) -> bool) -> State {
        match self {
            Self::Sum(_) | Self::Products(..) => State::Sums(Vec::new()),
            Self::Whole(_) => State::Integers(Vec::new()),
            Self::Moments { .. } => State::Moments(Vec::new()),
            Self::Least(value) | Self::Greatest(value) if is_whole(value) => State::Integers(Vec::new()),
            Self::Least(_) | Self::Greatest(_) => State::Floats(Vec::new()),
            Self::Nan(_) => State::Counts(Vec::new()),
            Self::Values { .. } => State::KeptValues(KeptValues::default()),
        }
    }

    /// Takes a float, NaN for none, if it is beyond the extreme.
    pub(super) fn add_extreme(self, extreme: &mut f64, value: f64) {
        let is_beyond = if matches!(self, Self::Least(_)) { value < *extreme } else { value > *extreme };
        if is_beyond || extreme.is_nan() {
            *extreme = value;
        }
    }

    /// Adds the state of a piece to that of all groups. `places` are the places that have rows, each with its group.
    ///
    /// # Errors
    /// A usage error for an integer that is too large.
    pub(super) fn merge(self, all: &mut State, piece: State, places: &[(u32, u32)], groups: &Arc<[u32]>) -> Result<()> {
        let pairs = places.iter().map(|(place, group)| (*place as usize, *group as usize));
        match (all, piece) {
            (State::Sums(all), State::Sums(piece)) => pairs.for_each(|(place, group)| all[group].merge(piece[place])),
            (State::Moments(all), State::Moments(piece)) => {
                pairs.for_each(|(place, group)| all[group].merge(piece[place]));
            }
            (State::Counts(all), State::Counts(piece)) => pairs.for_each(|(place, group)| all[group] += piece[place]),
            (State::KeptValues(all), State::PieceValues(piece)) => all.add(piece, groups),
            (State::Floats(all), State::Floats(piece)) => {
                pairs.for_each(|(place, group)| self.add_extreme(&mut all[group], piece[place]));
            }
            (State::Integers(all), State::Integers(piece)) => {
                for (place, group) in pairs {
                    let (own, its) = (&mut all[group], piece[place]);
                    *own = match self {
                        Self::Least(_) => its.min(*own),
                        Self::Greatest(_) => its.max(*own),
                        _ => own.checked_add(its).ok_or_else(too_large)?,
                    };
                }
            }
            _ => unreachable!("a state and those of its pieces have one kind"),
        }
        Ok(())
    }
}

/// The states of a piece, and its groups.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) epoch: u64,
    pub(super) rows: usize,
    pub(super) located: Located,
    /// The number of rows at each place.
    pub(super) counts: Vec<u64>,
    pub(super) states: Vec<State>,
}

impl Piece {
    /// Computes the states of the rows of a piece.
    ///
    /// # Errors
    /// The errors of [`StateKind::of_piece`].
    pub(super) fn of(
        (epoch, rows): (u64, usize),
        mut located: Located,
        kinds: &[StateKind],
        numbers: &[Numbers],
    ) -> Result<Self> {
        let mut counts = vec![0u64; located.count];
        match &located.placement {
            Placement::Each(places) => places.iter().for_each(|place| counts[*place as usize] += 1),
            runs => runs.each_run(|place, rows| counts[place] += rows.len() as u64),
        }
        let states = kinds.iter().map(|kind| kind.of_piece(&located, numbers)).collect::<Result<_>>()?;
        // States have what they need of the places.
        located.placement = Placement::Runs(Vec::new());
        Ok(Self { epoch, rows, located, counts, states })
    }
}
