//! Integer arithmetic on chunks of rows. A number's tree is compiled to steps over a stack of reused buffers.

use super::chunks::{CHUNK_ROWS, Chunks, Slots};
use super::mask::Mask;
use super::tree::{BinaryOp, Number, UnaryOp, with_operator};
use super::whole::{self, Fault};
use crate::schema::Value;

/// An integer that is equal in all rows of one call.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Scalar {
    Literal(i128),
    Epoch,
}

/// One step of a program. A step pops its operands from the stack and pushes its result.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Step {
    Load(usize),
    Fill(Scalar),
    Unary(UnaryOp),
    Binary(BinaryOp),
    /// An operator whose right operand is a scalar.
    ScalarRight(BinaryOp, Scalar),
    /// Precedes each branch of an `if`.
    Branch,
    /// Takes each row of one of two branches, by the condition in this slot.
    Choose(usize),
}

/// The rows of a chunk that have no result, each with its first fault.
#[derive(Debug, Default)]
pub(super) struct Faults {
    rows: Vec<Option<Fault>>,
    any: bool,
}

impl Faults {
    /// Forgets the faults of the previous chunk.
    pub(super) fn clear(&mut self) {
        if self.any {
            self.rows.fill(None);
            self.any = false;
        }
    }

    /// Returns the first row with a fault.
    pub(super) fn first(&self) -> Option<(usize, Fault)> {
        self.rows().next()
    }

    /// Iterates over the rows with faults.
    pub(super) fn rows(&self) -> impl Iterator<Item = (usize, Fault)> {
        let rows = if self.any { self.rows.as_slice() } else { &[] };
        rows.iter().enumerate().filter_map(|(row, fault)| Some((row, (*fault)?)))
    }

    #[cold]
    fn add(&mut self, row: usize, fault: Fault) {
        self.rows.resize(CHUNK_ROWS, None);
        self.rows[row].get_or_insert(fault);
        self.any = true;
    }
}

/// A stack of buffers that is reused for all chunks.
#[derive(Debug, Default)]
pub(super) struct WholeStack {
    buffers: Vec<Vec<i128>>,
    pub(super) faults: Faults,
    /// Faults before the branches of an `if`, and those of its first branch.
    aside: Vec<Faults>,
}

impl WholeStack {
    /// Begins a branch of an `if`, whose faults count only where the branch is taken.
    pub(super) fn branch(&mut self) {
        self.aside.push(std::mem::take(&mut self.faults));
    }

    /// Returns the rows that take the first of two branches, and keeps the faults of the branches that rows take.
    pub(super) fn choose(&mut self, inputs: &impl Chunks, slot: usize, first_row: usize, rows: usize) -> Mask {
        let otherwise = std::mem::take(&mut self.faults);
        let then = self.aside.pop().unwrap_or_default();
        self.faults = self.aside.pop().unwrap_or_default();
        let faults = &mut self.faults;
        let taken = inputs.condition(slot, first_row, rows, &mut |row| faults.add(row, Fault::Condition));
        then.rows().filter(|(row, _)| taken.get(*row)).for_each(|(row, fault)| faults.add(row, fault));
        otherwise.rows().filter(|(row, _)| !taken.get(*row)).for_each(|(row, fault)| faults.add(row, fault));
        taken
    }

    /// Returns the first buffer, which has the result of a program.
    pub(super) fn top(&self, rows: usize) -> &[i128] {
        &self.buffers[0][..rows]
    }
}

/// A compiled integer.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct WholeProgram {
    steps: Vec<Step>,
    buffers: usize,
}

/// Replaces each value by the result of an operation. A row without a result has any value from then on.
#[inline(always)]
fn replace(values: &mut [i128], faults: &mut Faults, mut result: impl FnMut(usize, i128) -> Result<i128, Fault>) {
    for (row, value) in values.iter_mut().enumerate() {
        match result(row, *value) {
            Ok(result) => *value = result,
            Err(fault) => faults.add(row, fault),
        }
    }
}

fn binary(op: BinaryOp, left: &mut [i128], right: &[i128], faults: &mut Faults) {
    macro_rules! pairs {
        ($op:ident) => {
            replace(left, faults, |row, value| whole::binary(BinaryOp::$op, value, right[row]))
        };
    }
    with_operator!(op, pairs);
}

fn scalar_right(op: BinaryOp, values: &mut [i128], right: i128, faults: &mut Faults) {
    macro_rules! each {
        ($op:ident) => {
            replace(values, faults, |_, value| whole::binary(BinaryOp::$op, value, right))
        };
    }
    with_operator!(op, each);
}

fn scalar(number: &Number) -> Option<Scalar> {
    match number {
        Number::Epoch => Some(Scalar::Epoch),
        Number::Literal(Value::Int(value)) => Some(Scalar::Literal(*value)),
        _ => None,
    }
}

impl WholeProgram {
    /// Compiles an integer.
    pub(super) fn new(number: &Number, slots: &impl Slots) -> Self {
        let mut program = Self { steps: Vec::new(), buffers: 0 };
        program.buffers = program.push(number, slots);
        program
    }

    /// Appends the steps of `number`, and returns the number of buffers that they need.
    fn push(&mut self, number: &Number, slots: &impl Slots) -> usize {
        match number {
            Number::Column(column) => self.steps.push(Step::Load(slots.column(column.index))),
            Number::Unary(op, operand) => {
                let needed = self.push(operand, slots);
                self.steps.push(Step::Unary(*op));
                return needed;
            }
            Number::Binary(op, left, right) => {
                let needed = self.push(left, slots);
                if let Some(scalar) = scalar(right) {
                    self.steps.push(Step::ScalarRight(*op, scalar));
                    return needed;
                }
                let right = self.push(right, slots);
                self.steps.push(Step::Binary(*op));
                return needed.max(right + 1);
            }
            Number::If(condition, then, otherwise) => {
                self.steps.push(Step::Branch);
                let then = self.push(then, slots);
                self.steps.push(Step::Branch);
                let otherwise = self.push(otherwise, slots);
                self.steps.push(Step::Choose(slots.condition(condition)));
                return then.max(otherwise + 1);
            }
            number => match scalar(number) {
                Some(scalar) => self.steps.push(Step::Fill(scalar)),
                None => unreachable!("the other numbers are floats"),
            },
        }
        1
    }

    /// Computes up to [`CHUNK_ROWS`] rows from `first_row` on, and adds the rows without a result to the faults of the
    /// stack.
    pub(super) fn run(&self, inputs: &impl Chunks, first_row: usize, rows: usize, stack: &mut WholeStack) {
        debug_assert!(rows <= CHUNK_ROWS);
        while stack.buffers.len() < self.buffers {
            stack.buffers.push(vec![0; CHUNK_ROWS]);
        }
        let value = |scalar| match scalar {
            Scalar::Literal(value) => value,
            Scalar::Epoch => inputs.epoch().into(),
        };
        // Buffers below `top` hold operands.
        let mut top = 0usize;
        for step in &self.steps {
            let WholeStack { buffers, faults, .. } = stack;
            match *step {
                Step::Load(slot) => {
                    inputs.load_whole(slot, first_row, &mut buffers[top][..rows]);
                    top += 1;
                }
                Step::Fill(scalar) => {
                    buffers[top][..rows].fill(value(scalar));
                    top += 1;
                }
                Step::Unary(op) => {
                    replace(&mut buffers[top - 1][..rows], faults, |_, value| whole::unary(op, value));
                }
                Step::Binary(op) => {
                    top -= 1;
                    let (below, above) = buffers.split_at_mut(top);
                    binary(op, &mut below[top - 1][..rows], &above[0][..rows], faults);
                }
                Step::ScalarRight(op, scalar) => {
                    scalar_right(op, &mut buffers[top - 1][..rows], value(scalar), faults);
                }
                Step::Branch => stack.branch(),
                Step::Choose(slot) => {
                    top -= 1;
                    let taken = stack.choose(inputs, slot, first_row, rows);
                    let (below, above) = stack.buffers.split_at_mut(top);
                    taken.select(&mut below[top - 1][..rows], &above[0][..rows]);
                }
            }
        }
    }
}
