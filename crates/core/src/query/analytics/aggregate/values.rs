//! Values that are kept for quantiles.

use std::sync::Arc;

use crate::error::{Result, UsageError};
use crate::expr::Numbers;
use crate::query::analytics::aggregate::groups::{Placement, code};
use crate::query::analytics::aggregate::sum::Sum;
use crate::query::analytics::estimate::position;

/// Maximum size of the values that a request keeps and sorts.
pub(super) const MAX_BYTES: u64 = 1 << 30;

/// The values of rows that have a place, without NaN.
#[derive(Debug, Clone)]
pub(super) struct PieceValues {
    places: Vec<u32>,
    /// Codes, which ascend with the values.
    codes: Vec<u64>,
    /// Weights, if the quantiles are weighted.
    weights: Option<Vec<f64>>,
}

/// The values of all pieces, each with the group of each place.
#[derive(Debug, Clone, Default)]
pub(super) struct KeptValues {
    pieces: Vec<Arc<(PieceValues, Arc<[u32]>)>>,
}

/// Returns the code of a float that is not NaN. -0.0 has that of 0.0.
fn float_code(value: f64) -> u64 {
    let bits = (value + 0.0).to_bits();
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

/// Returns the float of a code.
pub(super) fn float(code: u64) -> f64 {
    f64::from_bits(if code >> 63 == 1 { code & !(1 << 63) } else { !code })
}

fn refused(what: String) -> UsageError {
    UsageError::Option { option: "aggregates", what }
}

impl PieceValues {
    /// Keeps the values of the rows that have a place. Integers are of a `u64` column, or signed.
    ///
    /// # Errors
    /// A usage error for an integer of more than 64 bits, and for a weight that is negative or not finite.
    pub(super) fn of(
        placement: &Placement,
        (values, is_unsigned): (&Numbers, bool),
        weights: Option<&[f64]>,
    ) -> Result<Self> {
        let mut found = Self { places: Vec::new(), codes: Vec::new(), weights: weights.map(|_| Vec::new()) };
        let mut wrong = None;
        let mut keep = |place: usize, row: usize, code: Option<u64>| {
            if place == 0 {
                return;
            }
            if let (Some(weights), Some(kept)) = (weights, &mut found.weights) {
                if !(weights[row] >= 0.0 && weights[row].is_finite()) {
                    wrong.get_or_insert_with(|| {
                        format!("weights of a quantile must be finite and 0 or more, not {}", weights[row])
                    });
                }
                kept.push(weights[row]);
            }
            found.places.push(place as u32);
            found.codes.push(code.unwrap_or_else(|| {
                wrong.get_or_insert_with(|| "a value of a quantile exceeds 64 bits; multiply it by 1.0".to_owned());
                0
            }));
        };
        match values {
            Numbers::Float(values) => placement.each(values.iter().enumerate(), |place, (row, value)| {
                if !value.is_nan() {
                    keep(place, row, Some(float_code(*value)));
                }
            }),
            Numbers::Whole(values) => placement
                .each(values.iter().enumerate(), |place, (row, value)| keep(place, row, code(*value, is_unsigned))),
        }
        found.places.shrink_to_fit();
        found.codes.shrink_to_fit();
        found.weights.iter_mut().for_each(Vec::shrink_to_fit);
        wrong.map_or(Ok(found), |what| Err(refused(what).into()))
    }

    /// Returns the size of the values in bytes: with places as they are read, by group, and if they have weights, while
    /// a group is sorted.
    pub(super) fn bytes(&self) -> u64 {
        self.codes.len() as u64 * if self.weights.is_some() { 60 } else { 20 }
    }
}

impl KeptValues {
    pub(super) fn add(&mut self, values: PieceValues, groups: &Arc<[u32]>) {
        self.pieces.push(Arc::new((values, groups.clone())));
    }

    /// Returns the codes of quantiles at some shares: for each share, one for each of `groups` groups that has values.
    pub(super) fn quantiles(&self, groups: usize, shares: &[f64]) -> Vec<Vec<Option<u64>>> {
        let group = |piece: &(PieceValues, Arc<[u32]>), at: usize| piece.1[piece.0.places[at] as usize];
        let mut starts = vec![0usize; groups + 1];
        for piece in &self.pieces {
            (0..piece.0.codes.len()).for_each(|at| starts[group(piece, at) as usize + 1] += 1);
        }
        (0..groups).for_each(|group| starts[group + 1] += starts[group]);
        let mut next = starts.clone();
        let mut codes = vec![0u64; starts[groups]];
        let is_weighted = self.pieces.first().is_some_and(|piece| piece.0.weights.is_some());
        let mut weights = vec![0.0; if is_weighted { codes.len() } else { 0 }];
        for piece in &self.pieces {
            for (at, code) in piece.0.codes.iter().enumerate() {
                let place = &mut next[group(piece, at) as usize];
                codes[*place] = *code;
                if let Some(of_piece) = &piece.0.weights {
                    weights[*place] = of_piece[at];
                }
                *place += 1;
            }
        }
        let mut found = vec![vec![None; groups]; shares.len()];
        for group in 0..groups {
            let range = starts[group]..starts[group + 1];
            let own = match is_weighted {
                true => of_weighted(&codes[range.clone()], &weights[range], shares),
                false => of_equal(&mut codes[range], shares),
            };
            found.iter_mut().zip(own).for_each(|(found, own)| found[group] = own);
        }
        found
    }
}

/// Returns the quantiles of values that have the same weight.
fn of_equal(codes: &mut [u64], shares: &[f64]) -> Vec<Option<u64>> {
    if codes.is_empty() {
        return vec![None; shares.len()];
    }
    // One quantile takes a pass over the values, a sort several.
    if shares.len() > 3 {
        codes.sort_unstable();
        return shares.iter().map(|share| Some(codes[at(*share, codes.len())])).collect();
    }
    shares.iter().map(|share| Some(*codes.select_nth_unstable(at(*share, codes.len())).1)).collect()
}

/// Returns the index of the value at a share.
fn at(share: f64, values: usize) -> usize {
    position(share, values as u64).saturating_sub(1) as usize
}

/// Returns the quantiles of weighted values: each the least value up to which the weights reach the share of all
/// weights. A value without weight is none.
fn of_weighted(codes: &[u64], weights: &[f64], shares: &[f64]) -> Vec<Option<u64>> {
    let with_weight = codes.iter().copied().zip(weights.iter().copied()).filter(|(_, weight)| *weight > 0.0);
    let mut values: Vec<(u64, f64)> = with_weight.collect();
    values.sort_unstable_by(|(one, weight), (other, its)| one.cmp(other).then(weight.total_cmp(its)));
    let sums = |unit: f64| {
        let mut all = Sum::ZERO;
        let up_to: Vec<f64> = values.iter().map(|(_, weight)| (all.add(*weight * unit), all.value()).1).collect();
        (all, up_to)
    };
    let (mut all, mut up_to) = sums(1.0);
    if !all.value().is_finite() {
        // Fewer than 2^64 finite weights have a finite sum in this unit.
        (all, up_to) = sums(1.0 / 2f64.powi(64));
    }
    let quantile = |share: &f64| {
        // As in `position`: rounding does not take a quantile to the next value.
        let wanted = share * all.value() * (1.0 - 4.0 * f64::EPSILON);
        let first = up_to.partition_point(|weight| *weight < wanted);
        values.get(first.min(values.len().saturating_sub(1))).map(|(code, _)| *code)
    };
    shares.iter().map(quantile).collect()
}

/// Refuses more values than fit into memory.
///
/// # Errors
/// A usage error that states their size, if it exceeds the maximum.
pub(super) fn check_bytes(bytes: u64) -> Result<()> {
    if bytes <= MAX_BYTES {
        return Ok(());
    }
    let what = format!(
        "the values of its quantiles take more than {MAX_BYTES} bytes, of 20 for each row and 60 with a weight; \
         select fewer rows or epochs"
    );
    Err(refused(what).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::analytics::aggregate::groups::NO_GROUP;

    #[test]
    fn quantiles_are_those_of_the_inverted_distribution() {
        let values = Numbers::Float(vec![3.0, f64::NAN, -0.0, 1.0, 2.0, f64::NEG_INFINITY]);
        let kept = |weights: Option<&[f64]>| {
            let mut kept = KeptValues::default();
            let piece = PieceValues::of(&Placement::Each(vec![1, 1, 1, 1, 0, 1]), (&values, false), weights).unwrap();
            kept.add(piece, &Arc::from([NO_GROUP, 1]));
            let shares = [0.0, 0.25, 0.5, 0.51, 1.0];
            let found = kept.quantiles(2, &shares);
            assert!(found.iter().all(|of_groups| of_groups[0].is_none()));
            found.iter().map(|of_groups| of_groups[1].map(float).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(kept(None), [f64::NEG_INFINITY, f64::NEG_INFINITY, 0.0, 1.0, 3.0]);
        assert_eq!(kept(Some(&[1.0, 9.0, 2.0, 1.0, 9.0, 0.0])), [0.0, 0.0, 0.0, 1.0, 3.0]);
        // The sum of the weights is beyond any float.
        assert_eq!(kept(Some(&[5e307, 0.0, 1e308, 5e307, 0.0, 0.0])), [0.0, 0.0, 0.0, 1.0, 3.0]);
    }

    #[test]
    fn values_beyond_the_maximum_are_refused_with_their_size() {
        assert!(check_bytes(MAX_BYTES).is_ok());
        let refused = check_bytes(MAX_BYTES + 1).unwrap_err().to_string();
        assert!(refused.contains("more than 1073741824 bytes, of 20 for each row and 60 with a weight"), "{refused}");
        let values = (Numbers::Float(vec![1.0, f64::NAN, 2.0]), Placement::Each(vec![1, 1, 1]));
        let bytes = |weights| PieceValues::of(&values.1, (&values.0, false), weights).unwrap().bytes();
        assert_eq!((bytes(None), bytes(Some(&[1.0; 3]))), (2 * 20, 2 * 60));
    }

    #[test]
    fn weights_must_be_finite_and_not_negative() {
        for weight in [-1.0, f64::NAN, f64::INFINITY] {
            let values = Numbers::Float(vec![1.0]);
            assert!(PieceValues::of(&Placement::Each(vec![1]), (&values, false), Some(&[weight])).is_err());
            assert!(
                PieceValues::of(&Placement::Each(vec![0]), (&values, false), Some(&[weight])).is_ok(),
                "the row has no group"
            );
        }
    }
}
