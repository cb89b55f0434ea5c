//! A predicate as comparisons joined by connectives, for callers that evaluate each comparison separately.

use super::plan::{ExpressionPlan, Source};
use super::prune::{ColumnBounds, Pruner, TruthValue};
use super::tree::gather;

/// A connective of conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connective {
    /// True if the only operand is false.
    Not,
    /// True if all operands are true.
    And,
    /// True if at least one operand is true.
    Or,
}

/// A condition without connectives: one comparison, membership test or NaN test.
#[derive(Debug)]
pub struct Comparison<'a> {
    plan: &'a ExpressionPlan,
}

impl Comparison<'_> {
    /// Returns the columns that the comparison reads, as ascending indexes into the schema.
    pub fn columns(&self) -> Vec<usize> {
        let (mut columns, mut epoch) = (Vec::new(), false);
        let mut source = |source: &Source| {
            if let Source::Column { index, .. } = source {
                columns.push(*index);
            }
        };
        match self.plan {
            ExpressionPlan::Range { source: of, .. } | ExpressionPlan::Member { source: of, .. } => source(of),
            ExpressionPlan::Tuple { columns, .. } => columns.iter().for_each(source),
            ExpressionPlan::Compare { left, right, .. } => {
                gather(&left.tree, &mut columns, &mut epoch);
                gather(&right.tree, &mut columns, &mut epoch);
            }
            ExpressionPlan::ComputedRange { value, .. }
            | ExpressionPlan::ComputedMember { value, .. }
            | ExpressionPlan::IsNan(value) => gather(&value.tree, &mut columns, &mut epoch),
            ExpressionPlan::Constant(_) | ExpressionPlan::Not(_) | ExpressionPlan::And(_) | ExpressionPlan::Or(_) => {}
        }
        columns.sort_unstable();
        columns.dedup();
        columns
    }

    /// Evaluates the comparison on the column statistics of rows of `epoch`, as [`super::Predicate::prune`] does.
    pub fn prune(&self, epoch: u64, summary: &dyn Fn(usize) -> Option<ColumnBounds>) -> TruthValue {
        Pruner { epoch, summary }.truth(self.plan)
    }
}

/// Folds a plan bottom-up: `comparison` returns the value of a comparison, and `join` that of a connective.
pub(super) fn fold<T, E>(
    plan: &ExpressionPlan,
    comparison: &mut dyn FnMut(&Comparison<'_>) -> Result<T, E>,
    join: &dyn Fn(Connective, Vec<T>) -> T,
) -> Result<T, E> {
    let (connective, operands) = match plan {
        ExpressionPlan::Not(operand) => (Connective::Not, std::slice::from_ref(&**operand)),
        ExpressionPlan::And(operands) => (Connective::And, operands.as_slice()),
        ExpressionPlan::Or(operands) => (Connective::Or, operands.as_slice()),
        ExpressionPlan::Constant(_)
        | ExpressionPlan::Range { .. }
        | ExpressionPlan::Member { .. }
        | ExpressionPlan::Compare { .. }
        | ExpressionPlan::ComputedRange { .. }
        | ExpressionPlan::ComputedMember { .. }
        | ExpressionPlan::Tuple { .. }
        | ExpressionPlan::IsNan(_) => return comparison(&Comparison { plan }),
    };
    let mut joined = Vec::with_capacity(operands.len());
    for operand in operands {
        joined.push(fold(operand, comparison, join)?);
    }
    Ok(join(connective, joined))
}
