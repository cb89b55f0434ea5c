//! A predicate as comparisons that connectives join, for those who judge each comparison by itself.

use super::plan::{Plan, Source};
use super::prune::{ColumnBounds, Pruner, Truth};
use super::tree::gather;

/// How conditions are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connective {
    /// The only operand fails.
    Not,
    /// All operands hold.
    And,
    /// At least one operand holds.
    Or,
}

/// A condition without connectives: one comparison, membership or test.
#[derive(Debug)]
pub struct Comparison<'a> {
    plan: &'a Plan,
}

impl Comparison<'_> {
    /// Returns the columns it reads, as ascending indexes into the schema.
    pub fn columns(&self) -> Vec<usize> {
        let (mut columns, mut epoch) = (Vec::new(), false);
        let mut source = |source: &Source| {
            if let Source::Column { index, .. } = source {
                columns.push(*index);
            }
        };
        match self.plan {
            Plan::Range { source: of, .. } | Plan::Member { source: of, .. } => source(of),
            Plan::Whole { left, right, .. } => [left, right].into_iter().for_each(source),
            Plan::Compare { left, right, .. } => {
                gather(&left.tree, &mut columns, &mut epoch);
                gather(&right.tree, &mut columns, &mut epoch);
            }
            Plan::ComputedMember { value, .. } | Plan::IsNan(value) => gather(&value.tree, &mut columns, &mut epoch),
            Plan::Constant(_) | Plan::Not(_) | Plan::And(_) | Plan::Or(_) => {}
        }
        columns.sort_unstable();
        columns.dedup();
        columns
    }

    /// Judges rows of `epoch`, as [`super::Predicate::prune`] does.
    pub fn prune(&self, epoch: u64, summary: &dyn Fn(usize) -> Option<ColumnBounds>) -> Truth {
        Pruner { epoch, summary }.truth(self.plan)
    }
}

/// Folds a plan from its comparisons up.
pub(super) fn fold<T, E>(
    plan: &Plan,
    comparison: &mut dyn FnMut(&Comparison<'_>) -> Result<T, E>,
    join: &dyn Fn(Connective, Vec<T>) -> T,
) -> Result<T, E> {
    let (connective, operands) = match plan {
        Plan::Not(operand) => (Connective::Not, std::slice::from_ref(&**operand)),
        Plan::And(operands) => (Connective::And, operands.as_slice()),
        Plan::Or(operands) => (Connective::Or, operands.as_slice()),
        Plan::Constant(_)
        | Plan::Range { .. }
        | Plan::Member { .. }
        | Plan::Whole { .. }
        | Plan::Compare { .. }
        | Plan::ComputedMember { .. }
        | Plan::IsNan(_) => return comparison(&Comparison { plan }),
    };
    let mut joined = Vec::with_capacity(operands.len());
    for operand in operands {
        joined.push(fold(operand, comparison, join)?);
    }
    Ok(join(connective, joined))
}
