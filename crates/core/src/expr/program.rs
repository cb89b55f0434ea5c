//! Arithmetic in `f64` on chunks of rows. A number's tree is compiled to steps over a stack of reused buffers.

use super::tree::{BinaryOp, Number, UnaryOp};

/// Number of rows per chunk: a multiple of 64 (the rows per word of a mask), and small enough that a stack of buffers
/// fits the L1 cache.
pub(super) const CHUNK_ROWS: usize = 1024;

/// A number that is equal in all rows of one call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Scalar {
    Literal(f64),
    Epoch,
    Constant(usize),
}

/// One step of a program. A step pops its operands from the stack and pushes its result.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Step {
    Load(usize),
    Bits(usize),
    Fill(Scalar),
    Unary(UnaryOp),
    /// `x * x`, without loading `x` twice.
    Square,
    Binary(BinaryOp),
    /// An operator whose right operand is a scalar.
    ScalarRight(BinaryOp, Scalar),
    /// An operator whose left operand is a scalar.
    ScalarLeft(BinaryOp, Scalar),
}

/// A source of the columns' values.
pub(super) trait Chunks {
    /// Writes the values of column `slot` from `first_row` on to `out`, as `f64`.
    fn load(&self, slot: usize, first_row: usize, out: &mut [f64]);
    /// Writes the bits of the `f32` column `slot` from `first_row` on to `out`, interpreted as `i32`.
    fn load_bits(&self, slot: usize, first_row: usize, out: &mut [f64]);
}

/// A stack of buffers that is reused for all chunks.
#[derive(Debug, Default)]
pub(super) struct Stack {
    buffers: Vec<Vec<f64>>,
}

/// A compiled number.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Program {
    steps: Vec<Step>,
    buffers: usize,
}

/// Expands `$apply!(sign)` with the operator's sign. Each operator has its own loop, so that no loop branches on the
/// operator.
macro_rules! with_operator {
    ($op:expr, $apply:ident) => {
        match $op {
            BinaryOp::Add => $apply!(+),
            BinaryOp::Subtract => $apply!(-),
            BinaryOp::Multiply => $apply!(*),
            BinaryOp::Divide => $apply!(/),
            BinaryOp::Remainder => $apply!(%),
        }
    };
}

#[allow(clippy::assign_op_pattern, reason = "the macro has the sign only, not the assigning operator")]
fn binary(op: BinaryOp, left: &mut [f64], right: &[f64]) {
    macro_rules! pairs {
        ($sign:tt) => { left.iter_mut().zip(right).for_each(|(left, right)| *left = *left $sign *right) };
    }
    with_operator!(op, pairs);
}

#[allow(clippy::assign_op_pattern, reason = "the macro has the sign only, not the assigning operator")]
fn scalar_right(op: BinaryOp, out: &mut [f64], scalar: f64) {
    macro_rules! each {
        ($sign:tt) => { out.iter_mut().for_each(|value| *value = *value $sign scalar) };
    }
    if op == BinaryOp::Remainder {
        for value in out {
            // A value below the divisor is its own remainder. Coordinates within their period need no division.
            let is_remainder = value.abs() < scalar.abs();
            if !is_remainder {
                *value %= scalar;
            }
        }
        return;
    }
    with_operator!(op, each);
}

#[allow(clippy::assign_op_pattern, reason = "the macro has the sign only, not the assigning operator")]
fn scalar_left(op: BinaryOp, out: &mut [f64], scalar: f64) {
    macro_rules! each {
        ($sign:tt) => { out.iter_mut().for_each(|value| *value = scalar $sign *value) };
    }
    with_operator!(op, each);
}

fn unary(op: UnaryOp, out: &mut [f64]) {
    match op {
        UnaryOp::Negate => out.iter_mut().for_each(|value| *value = -*value),
        UnaryOp::Abs => out.iter_mut().for_each(|value| *value = value.abs()),
        UnaryOp::Sqrt => out.iter_mut().for_each(|value| *value = value.sqrt()),
        UnaryOp::Floor => out.iter_mut().for_each(|value| *value = value.floor()),
    }
}

impl Program {
    /// Compiles a number. `slot_of` maps a column's index to its slot among the inputs.
    pub(super) fn new(number: &Number, slot_of: &impl Fn(usize) -> usize) -> Self {
        let mut program = Self { steps: Vec::new(), buffers: 0 };
        let needed = program.push(number, slot_of);
        program.buffers = needed;
        program
    }

    /// Appends the steps of `number`, and returns the number of buffers that they need.
    fn push(&mut self, number: &Number, slot_of: &impl Fn(usize) -> usize) -> usize {
        if let Some(scalar) = scalar(number) {
            self.steps.push(Step::Fill(scalar));
            return 1;
        }
        match number {
            Number::Column(column) => self.steps.push(Step::Load(slot_of(column.index))),
            Number::Bits(column) => self.steps.push(Step::Bits(slot_of(column.index))),
            Number::Unary(op, operand) => {
                let needed = self.push(operand, slot_of);
                self.steps.push(Step::Unary(*op));
                return needed;
            }
            Number::Binary(op, left, right) => return self.push_binary(*op, left, right, slot_of),
            // Scalars were handled above.
            Number::Epoch | Number::Literal(_) | Number::Single(_) | Number::Constant(..) => {}
        }
        1
    }

    fn push_binary(&mut self, op: BinaryOp, left: &Number, right: &Number, slot_of: &impl Fn(usize) -> usize) -> usize {
        if op == BinaryOp::Multiply && left == right {
            let needed = self.push(left, slot_of);
            self.steps.push(Step::Square);
            return needed;
        }
        if let Some(scalar) = scalar(right) {
            let needed = self.push(left, slot_of);
            self.steps.push(Step::ScalarRight(op, scalar));
            return needed;
        }
        if let Some(scalar) = scalar(left) {
            let needed = self.push(right, slot_of);
            self.steps.push(Step::ScalarLeft(op, scalar));
            return needed;
        }
        let left = self.push(left, slot_of);
        let right = self.push(right, slot_of);
        self.steps.push(Step::Binary(op));
        left.max(right + 1)
    }

    /// Computes up to [`CHUNK_ROWS`] rows from `first_row` on. Returns the values.
    pub(super) fn run<'s>(
        &self,
        inputs: &impl Chunks,
        scalars: &impl Fn(Scalar) -> f64,
        first_row: usize,
        rows: usize,
        stack: &'s mut Stack,
    ) -> &'s [f64] {
        debug_assert!(rows <= CHUNK_ROWS);
        while stack.buffers.len() < self.buffers {
            stack.buffers.push(vec![0.0; CHUNK_ROWS]);
        }
        // Buffers below `top` hold operands.
        let mut top = 0usize;
        for step in &self.steps {
            match *step {
                Step::Load(slot) => {
                    inputs.load(slot, first_row, &mut stack.buffers[top][..rows]);
                    top += 1;
                }
                Step::Bits(slot) => {
                    inputs.load_bits(slot, first_row, &mut stack.buffers[top][..rows]);
                    top += 1;
                }
                Step::Fill(scalar) => {
                    stack.buffers[top][..rows].fill(scalars(scalar));
                    top += 1;
                }
                Step::Binary(op) => {
                    top -= 1;
                    let (below, above) = stack.buffers.split_at_mut(top);
                    binary(op, &mut below[top - 1][..rows], &above[0][..rows]);
                }
                step => in_place(step, scalars, &mut stack.buffers[top - 1][..rows]),
            }
        }
        &stack.buffers[0][..rows]
    }
}

/// Performs a step that changes the top buffer only.
fn in_place(step: Step, scalars: &impl Fn(Scalar) -> f64, out: &mut [f64]) {
    match step {
        Step::Unary(op) => unary(op, out),
        Step::Square => out.iter_mut().for_each(|value| *value *= *value),
        Step::ScalarRight(op, scalar) => scalar_right(op, out, scalars(scalar)),
        Step::ScalarLeft(op, scalar) => scalar_left(op, out, scalars(scalar)),
        Step::Load(_) | Step::Bits(_) | Step::Fill(_) | Step::Binary(_) => {}
    }
}

fn scalar(number: &Number) -> Option<Scalar> {
    match number {
        Number::Epoch => Some(Scalar::Epoch),
        Number::Constant(index, _) => Some(Scalar::Constant(*index)),
        number => number.literal().map(|value| Scalar::Literal(value.as_f64())),
    }
}
