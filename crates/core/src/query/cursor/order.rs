//! The order in which a cursor visits the units of a level, and the share of the rows that it has returned.
//!
//! Each unit has a *turn*: a place on a cycle, as a fraction of 2^64. A cursor visits the units of a level by ascending
//! turns. The turns of a run's units are evenly spaced, and in bit-reversed order of the units, so that the units of
//! any stretch of the cycle are spread evenly over the run, which is in k-d order. Receivers take turns between each
//! other's units. Runs of one receiver with equally many units have the same turns, so that units of one place follow
//! each other.
//!
//! The seed of the levels turns the cycle. Over the seeds, each unit is among the first ones with the same probability.

use crate::random::{STEP, mix};

/// Returns the place at which the cycle of a level begins.
pub(super) fn beginning(seed: u64, epoch: u64, level: u8) -> u64 {
    mix(mix(mix(seed).wrapping_add(epoch)).wrapping_add(u64::from(level)).wrapping_add(STEP))
}

/// Returns how far the turns of a receiver are behind those of the first one, in units of the distance of two turns of
/// a run: any first ones of the receivers are spread evenly.
pub(super) fn delay(receiver: u32) -> u64 {
    u64::from(receiver).reverse_bits()
}

/// Returns the order of a run among runs whose units have the same turns.
pub(super) fn tie(run: u32, beginning: u64) -> u64 {
    mix(beginning.wrapping_add(u64::from(run).wrapping_mul(STEP)))
}

/// Returns the turns of the units of a run, in the order of the run.
pub(super) fn turns(units: u32, delay: u64, beginning: u64) -> Vec<u64> {
    let mut turns = vec![0; units as usize];
    let bits = units.next_power_of_two().trailing_zeros();
    let mut rank = 0u128;
    for number in 0..1u64 << bits {
        let unit = number.reverse_bits().checked_shr(u64::BITS - bits).unwrap_or(0);
        if let Some(turn) = turns.get_mut(unit as usize) {
            // Below 2^64, since the rank is below the number of units.
            let place = ((rank << 64) + u128::from(delay)) / u128::from(units);
            *turn = (place as u64).wrapping_sub(beginning);
            rank += 1;
        }
    }
    turns
}

/// The number of groups of a level of which one row moves up, as a floating-point number.
pub(super) const GROUP: f64 = 8.0;

/// Returns the probability that a row is at a level or above.
fn probability(level: u8) -> f64 {
    GROUP.powi(-i32::from(level))
}

/// Returns the level whose units a cursor has to visit to return this share of the rows, and the share of these units.
/// All units of coarser levels are visited before. `top` is the coarsest level.
pub(super) fn goal_of(quality: f64, top: u8) -> (u8, f64) {
    let level = (0..=top).rev().find(|level| quality <= probability(*level)).unwrap_or(0);
    let coarser = if level == top { 0.0 } else { probability(level + 1) };
    (level, ((quality - coarser) / (probability(level) - coarser)).clamp(0.0, 1.0))
}

/// Returns the number of rows that each returned row stands for when a share of the units of a level has been visited,
/// and all units of coarser levels. Infinite if none has been visited.
pub(super) fn stands_for(level: u8, share: f64, top: u8) -> f64 {
    let coarser = if level == top { 0.0 } else { probability(level + 1) };
    1.0 / (coarser + share * (probability(level) - coarser))
}

/// Returns the distance of a point from a box. Along a periodic coordinate, it is that from the nearest image of the
/// box.
pub(super) fn distance(point: &[f64], bounds: &[(f64, f64)], periods: &[Option<f64>]) -> f64 {
    let along = |((at, (low, high)), period): ((&f64, &(f64, f64)), &Option<f64>)| match period {
        Some(period) => distance_modulo(*at, (*low, *high), *period),
        None => (low - at).max(at - high).max(0.0),
    };
    point.iter().zip(bounds).zip(periods).map(along).fold(0.0, f64::hypot)
}

/// Returns the distance of a number from the images of an interval, which lie a period apart.
fn distance_modulo(at: f64, (low, high): (f64, f64), period: f64) -> f64 {
    let width = high - low;
    if width >= period {
        return 0.0;
    }
    // How far the number is above the image that begins below it. NaN if the interval is infinity, which has no images.
    let above = (at - low).rem_euclid(period);
    if above.is_nan() {
        return f64::INFINITY;
    }
    (above - width).min(period - above).max(0.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_stretch_of_the_cycle_is_spread_over_the_run(
            units in 1u32..300,
            receiver in 0u32..100,
            seed in any::<u64>(),
            share in 0.0f64..1.0,
        ) {
            let turns = turns(units, delay(receiver), beginning(seed, 1, 2));
            let mut sorted = turns.clone();
            sorted.sort_unstable();
            sorted.dedup();
            prop_assert_eq!(sorted.len(), turns.len(), "no two units share a turn");
            let visited: Vec<usize> =
                (0..turns.len()).filter(|unit| (turns[*unit] as f64) < share * 2f64.powi(64)).collect();
            let expected = share * f64::from(units);
            prop_assert!((visited.len() as f64 - expected).abs() <= 1.001, "{} of {expected}", visited.len());
            // Van der Corput's sequence: the discrepancy of any stretch is at most about the binary digits.
            let digits = f64::from(32 - units.leading_zeros());
            for end in 0..turns.len() {
                let before = visited.iter().filter(|unit| **unit < end).count() as f64;
                prop_assert!((before - share * end as f64).abs() <= 1.0 + digits, "{before} before {end}");
            }
        }

        #[test]
        fn a_cursor_that_reached_a_quality_stands_for_its_inverse(quality in 1e-6f64..1.0, top in 1u8..7) {
            let (level, share) = goal_of(quality, top);
            prop_assert!(level <= top && share > 0.0);
            prop_assert!((stands_for(level, share, top) * quality - 1.0).abs() < 1e-9);
        }

        #[test]
        fn units_have_their_turn_at_any_time(units in 1u32..20, receiver in 0u32..9) {
            // Over the seeds, each unit is in the first third with the same probability.
            let seeds = 3_000;
            let mut first = vec![0.0f64; units as usize];
            for seed in 0..seeds {
                for (count, turn) in first.iter_mut().zip(turns(units, delay(receiver), beginning(seed, 7, 1))) {
                    *count += f64::from(u8::from(turn < u64::MAX / 3));
                }
            }
            let expected = seeds as f64 / 3.0;
            let deviation = (expected * 2.0 / 3.0).sqrt();
            prop_assert!(first.iter().all(|count| (count - expected).abs() < 6.0 * deviation), "{first:?}");
        }
    }

    #[test]
    fn whole_levels_are_powers_of_eight() {
        assert_eq!(goal_of(1.0, 3), (0, 1.0));
        assert_eq!(goal_of(0.125, 3), (1, 1.0));
        assert_eq!(goal_of(1.0 / 64.0, 2), (2, 1.0));
        assert_eq!(goal_of(1.0 / 128.0, 2), (2, 0.5));
        assert_eq!(goal_of(0.0, 2), (2, 0.0));
        assert_eq!([stands_for(0, 1.0, 3), stands_for(1, 1.0, 3), stands_for(3, 1.0, 3)], [1.0, 8.0, 512.0]);
        assert_eq!([stands_for(0, 0.0, 3), stands_for(3, 0.5, 3), stands_for(3, 0.0, 3)], [8.0, 1024.0, f64::INFINITY]);
    }

    #[test]
    fn distances_are_those_to_the_nearest_point_of_a_box() {
        let bounds = [(0.0, 2.0), (-1.0, f64::INFINITY)];
        let distance = |point: &[f64]| distance(point, &bounds, &[None; 2]);
        assert_eq!(distance(&[1.0, 5.0]), 0.0);
        assert_eq!(distance(&[5.0, -5.0]), 5.0);
        assert_eq!(distance(&[-2.0, 1e300]), 2.0);
    }

    #[test]
    fn distances_along_periodic_coordinates_are_those_to_the_nearest_image() {
        let from = |at: f64, low: f64, high: f64| distance(&[at], &[(low, high)], &[Some(10.0)]);
        for (at, low, high, expected) in [
            (1.0, 0.0, 2.0, 0.0),
            (9.0, 0.0, 2.0, 1.0),
            (5.0, 0.0, 2.0, 3.0),
            (7.0, 0.0, 2.0, 3.0),
            (6.0, 0.0, 2.0, 4.0),
            (-1.0, 0.0, 2.0, 1.0),
            (101.0, -20.0, -18.0, 0.0),
            (4.0, 9.0, 19.0, 0.0),
            (4.0, 9.0, f64::INFINITY, 0.0),
            (4.0, f64::INFINITY, f64::INFINITY, f64::INFINITY),
            (4.0, f64::NEG_INFINITY, f64::NEG_INFINITY, f64::INFINITY),
            (4.0, f64::NEG_INFINITY, f64::INFINITY, 0.0),
            (4.0, 7.0, 7.0, 3.0),
        ] {
            assert_eq!(from(at, low, high), expected, "{at} from {low} to {high}");
        }
        assert_eq!(distance(&[9.0, 9.0], &[(0.0, 2.0), (0.0, 5.0)], &[Some(12.0), None]), 5.0);
    }
}
