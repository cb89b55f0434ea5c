//! The table of the groups and their aggregates.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, Float64Array, Int64Array, RecordBatch, UInt64Array};
use arrow_schema::{Field, Schema as ArrowSchema};

use crate::error::{Error, Result, UsageError};
use crate::query::analytics::aggregate::groups::{GroupKind, integer};
use crate::query::analytics::aggregate::moments::Moments;
use crate::query::analytics::aggregate::plan::{Aggregate, Plan};
use crate::query::analytics::aggregate::states::State;
use crate::query::analytics::aggregate::total::Total;
use crate::query::analytics::aggregate::values::float;

/// Columns in the order of the table.
#[derive(Default)]
struct Columns {
    fields: Vec<Field>,
    arrays: Vec<ArrayRef>,
}

impl Columns {
    fn add(&mut self, name: &str, array: ArrayRef, is_nullable: bool) -> Result<()> {
        if self.fields.iter().any(|field| field.name() == name) {
            let what = format!("two columns of the result are called '{name}'; name one of them, as in m = mean(x)");
            return Err(UsageError::Option { option: "aggregates", what }.into());
        }
        self.fields.push(Field::new(name, array.data_type().clone(), is_nullable));
        self.arrays.push(array);
        Ok(())
    }

    fn floats(&mut self, name: &str, values: impl Iterator<Item = f64>) -> Result<()> {
        // -0.0 is 0.0.
        self.add(name, Arc::new(Float64Array::from_iter_values(values.map(|value| value + 0.0))), false)
    }

    fn counts(&mut self, name: &str, values: impl Iterator<Item = u64>) -> Result<()> {
        self.whole(name, false, values.map(i128::from))
    }

    fn whole(&mut self, name: &str, is_unsigned: bool, values: impl Iterator<Item = i128>) -> Result<()> {
        self.optional(name, is_unsigned, values.map(Some), false)
    }

    fn optional(
        &mut self,
        name: &str,
        is_unsigned: bool,
        values: impl Iterator<Item = Option<i128>>,
        is_nullable: bool,
    ) -> Result<()> {
        let array: ArrayRef = match is_unsigned {
            true => Arc::new(fitting(name, values).collect::<Result<UInt64Array>>()?),
            false => Arc::new(fitting(name, values).collect::<Result<Int64Array>>()?),
        };
        self.add(name, array, is_nullable)
    }
}

/// Converts integers to a type of 64 bits.
fn fitting<T: TryFrom<i128>>(
    name: &str,
    values: impl Iterator<Item = Option<i128>>,
) -> impl Iterator<Item = Result<Option<T>>> {
    let fit = move |value: i128| {
        T::try_from(value).map_err(|_| {
            let what = format!("'{name}' is {value}, which exceeds 64 bits; multiply the integer by 1.0");
            Error::from(UsageError::Option { option: "aggregates", what })
        })
    };
    values.map(move |value| value.map(&fit).transpose())
}

impl Total {
    /// Returns the table: columns of the groups, then of the aggregates. Groups are in ascending order. `times` are those
    /// of the `epochs`, if they are a group.
    ///
    /// # Errors
    /// Usage errors: integers of more than 64 bits, equal names.
    pub(super) fn table(&self, plan: &Plan, epochs: &[u64], times: &[f64]) -> Result<RecordBatch> {
        let keys = self.keys(plan);
        let mut order: Vec<usize> = (0..self.counts.len()).collect();
        let compare = |one: &usize, other: &usize| {
            let pairs = keys.iter().map(|keys| keys[*one].cmp(&keys[*other]));
            pairs.fold(Ordering::Equal, Ordering::then)
        };
        if !order.is_sorted_by(|one, other| compare(one, other).is_lt()) {
            order.sort_unstable_by(compare);
        }
        let mut columns = Columns::default();
        for ((name, kind), keys) in plan.groups.terms.iter().zip(&keys) {
            let keys = order.iter().map(|group| keys[*group]);
            match kind {
                GroupKind::Epoch => columns.counts(name, keys.map(|epoch| epochs[epoch as usize]))?,
                GroupKind::Time => columns.floats(name, keys.map(|epoch| times[epoch as usize]))?,
                GroupKind::Whole { is_unsigned, .. } => {
                    columns.whole(name, *is_unsigned, keys.map(|code| integer(code, *is_unsigned)))?;
                }
                GroupKind::Bins { edges, .. } => {
                    columns.floats(&format!("{name}_from"), keys.clone().map(|bin| edges.ends(bin as usize).0))?;
                    columns.floats(&format!("{name}_to"), keys.map(|bin| edges.ends(bin as usize).1))?;
                }
            }
        }
        let quantiles = self.quantiles(plan);
        for (number, (name, aggregate)) in plan.aggregates.iter().enumerate() {
            self.column(&mut columns, name, (*aggregate, quantiles.get(&number)), &order)?;
        }
        let Columns { fields, arrays } = columns;
        RecordBatch::try_new(Arc::new(ArrowSchema::new(fields)), arrays)
            .map_err(|cause| Error::internal(format!("a table does not fit its schema: {cause}")))
    }

    /// Returns the keys of each term, by group: numbers of epochs and of bins, and codes of integers.
    fn keys(&self, plan: &Plan) -> Vec<Vec<u64>> {
        let terms = &plan.groups.terms;
        let mut keys = vec![Vec::with_capacity(self.counts.len()); terms.len()];
        for group in 0..self.counts.len() {
            let (epoch, mut integers, mut cell) = self.groups.codes(group);
            for ((_, kind), keys) in terms.iter().zip(&mut keys).rev() {
                keys.push(match kind {
                    GroupKind::Epoch | GroupKind::Time => epoch as u64,
                    GroupKind::Whole { .. } => integers.pop().unwrap_or_default(),
                    GroupKind::Bins { edges, .. } => {
                        let bin = cell % edges.count();
                        cell /= edges.count();
                        bin as u64
                    }
                });
            }
        }
        keys
    }

    /// Returns the quantiles of each aggregate that is one, by group, as codes. Those of the same values are computed
    /// together.
    fn quantiles(&self, plan: &Plan) -> HashMap<usize, Vec<Option<u64>>> {
        let mut found = HashMap::new();
        for (number, state) in self.states.iter().enumerate() {
            let State::KeptValues(values) = state else { continue };
            let of_state = |aggregate: &Aggregate| match aggregate {
                Aggregate::Quantile { state, share, .. } if *state == number => Some(*share),
                _ => None,
            };
            let aggregates = plan.aggregates.iter().enumerate();
            let (numbers, shares): (Vec<usize>, Vec<f64>) =
                aggregates.filter_map(|(number, (_, aggregate))| Some((number, of_state(aggregate)?))).unzip();
            found.extend(numbers.into_iter().zip(values.quantiles(self.counts.len(), &shares)));
        }
        found
    }

    fn sums(&self, state: usize, order: &[usize]) -> impl Iterator<Item = f64> {
        let State::Sums(sums) = &self.states[state] else { unreachable!("the state of a sum") };
        order.iter().map(|group| sums[*group].value())
    }

    fn integers(&self, state: usize, order: &[usize]) -> impl Iterator<Item = i128> {
        let State::Integers(integers) = &self.states[state] else { unreachable!("the state of an integer") };
        order.iter().map(|group| integers[*group])
    }

    fn moments(&self, state: usize, order: &[usize]) -> impl Iterator<Item = Moments> {
        let State::Moments(moments) = &self.states[state] else { unreachable!("the state of a moment") };
        order.iter().map(|group| moments[*group])
    }

    fn column(
        &self,
        columns: &mut Columns,
        name: &str,
        (aggregate, quantiles): (Aggregate, Option<&Vec<Option<u64>>>),
        order: &[usize],
    ) -> Result<()> {
        let counts = || order.iter().map(|group| self.counts[*group]);
        let quotients = |values: &mut dyn Iterator<Item = f64>, by: &mut dyn Iterator<Item = f64>| {
            values.zip(by).map(|(value, by)| value / by).collect::<Vec<f64>>().into_iter()
        };
        let of_rows = &mut counts().map(|count| count as f64);
        match aggregate {
            Aggregate::Count => columns.counts(name, counts()),
            Aggregate::CountError => columns.floats(name, of_rows.map(f64::sqrt)),
            Aggregate::Sum(state) => columns.floats(name, self.sums(state, order)),
            Aggregate::SumError(state) => columns.floats(name, self.sums(state, order).map(f64::sqrt)),
            Aggregate::WholeSum { state, is_unsigned } => columns.whole(name, is_unsigned, self.integers(state, order)),
            Aggregate::Mean { sum, weights: None } => {
                columns.floats(name, quotients(&mut self.sums(sum, order), of_rows))
            }
            Aggregate::Mean { sum, weights: Some(weights) } => {
                columns.floats(name, quotients(&mut self.sums(sum, order), &mut self.sums(weights, order)))
            }
            Aggregate::WholeMean(state) => {
                let sums = &mut self.integers(state, order).map(|sum| sum as f64);
                columns.floats(name, quotients(sums, of_rows))
            }
            Aggregate::Variance(state) => columns.floats(name, self.moments(state, order).map(Moments::variance)),
            Aggregate::Deviation(state) => {
                columns.floats(name, self.moments(state, order).map(|moments| moments.variance().sqrt()))
            }
            Aggregate::Covariance(state) => columns.floats(name, self.moments(state, order).map(Moments::covariance)),
            Aggregate::Extreme(state) => {
                let State::Floats(extremes) = &self.states[state] else { unreachable!("the state of an extreme") };
                columns.floats(name, order.iter().map(|group| extremes[*group]))
            }
            Aggregate::WholeExtreme { state, is_unsigned } => {
                let extremes = self.integers(state, order).zip(counts());
                columns.optional(name, is_unsigned, extremes.map(|(extreme, rows)| (rows > 0).then_some(extreme)), true)
            }
            Aggregate::Quantile { whole, .. } => {
                let codes = order.iter().map(|group| quantiles.and_then(|codes| codes[*group]));
                match whole {
                    Some(is_unsigned) => {
                        let values = codes.map(|code| code.map(|code| integer(code, is_unsigned)));
                        columns.optional(name, is_unsigned, values, true)
                    }
                    None => columns.floats(name, codes.map(|code| code.map_or(f64::NAN, float))),
                }
            }
            Aggregate::Nan(None) => columns.counts(name, counts().map(|_| 0)),
            Aggregate::Nan(Some(state)) => {
                let State::Counts(found) = &self.states[state] else { unreachable!("the state of a count") };
                columns.counts(name, order.iter().map(|group| found[*group]))
            }
            Aggregate::EffectiveCount { weights, squares } => {
                let squared = &mut self.sums(weights, order).map(|weights| weights * weights);
                columns.floats(name, quotients(squared, &mut self.sums(squares, order)))
            }
        }
    }
}
