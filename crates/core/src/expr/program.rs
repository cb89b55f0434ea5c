//! Arithmetic on chunks of rows. A number's tree is compiled to steps over a stack of reused buffers of `f64`. Integers
//! have programs of their own (`whole_program`), whose results are converted where a float needs them.

use super::chunks::{CHUNK_ROWS, Chunks};
use super::tree::{BinaryOp, Number, UnaryOp};
use super::whole_program::{Faults, WholeProgram, WholeStack};

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
    /// Converts the result of the program's integer at this index.
    Whole(usize),
    Unary(UnaryOp),
    /// `x * x`, without loading `x` twice.
    Square,
    Binary(BinaryOp),
    /// An operator whose right operand is a scalar.
    ScalarRight(BinaryOp, Scalar),
    /// An operator whose left operand is a scalar.
    ScalarLeft(BinaryOp, Scalar),
}

/// A stack of buffers that is reused for all chunks.
#[derive(Debug, Default)]
pub(super) struct Stack {
    buffers: Vec<Vec<f64>>,
    whole: WholeStack,
}

/// A compiled float.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Program {
    steps: Vec<Step>,
    buffers: usize,
    wholes: Vec<WholeProgram>,
}

/// A compiled number.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Formula {
    Whole(WholeProgram),
    Float(Program),
}

/// Results of a formula.
pub(super) enum Values<'s> {
    Whole(&'s [i128]),
    Float(&'s [f64]),
}

impl Formula {
    /// Compiles a number: an integer, or a float of any other number.
    pub(super) fn new(number: &Number, slot_of: &impl Fn(usize) -> usize) -> Self {
        match number.is_whole() {
            true => Self::Whole(WholeProgram::new(number, slot_of)),
            false => Self::Float(Program::new(number, slot_of)),
        }
    }

    /// Returns whether rows may have no result.
    pub(super) fn can_fault(&self) -> bool {
        match self {
            Self::Whole(_) => true,
            Self::Float(program) => !program.wholes.is_empty(),
        }
    }

    /// Computes up to [`CHUNK_ROWS`] rows from `first_row` on. Returns the values, and the rows without a result, which
    /// have any value.
    pub(super) fn run<'s>(
        &self,
        inputs: &impl Chunks,
        scalars: &impl Fn(Scalar) -> f64,
        first_row: usize,
        rows: usize,
        stack: &'s mut Stack,
    ) -> (Values<'s>, &'s Faults) {
        let Stack { buffers, whole } = stack;
        whole.faults.clear();
        match self {
            Self::Whole(program) => {
                program.run(inputs, first_row, rows, whole);
                (Values::Whole(whole.top(rows)), &whole.faults)
            }
            Self::Float(program) => {
                program.run(inputs, scalars, first_row, rows, buffers, whole);
                (Values::Float(&buffers[0][..rows]), &whole.faults)
            }
        }
    }
}

/// Expands `$apply!(|left, right| result)`. Each operator has its own loop, so that no loop branches on the operator.
macro_rules! with_operator {
    ($op:expr, $apply:ident) => {
        match $op {
            BinaryOp::Add => $apply!(|left, right| left + right),
            BinaryOp::Subtract => $apply!(|left, right| left - right),
            BinaryOp::Multiply => $apply!(|left, right| left * right),
            BinaryOp::Divide => $apply!(|left, right| left / right),
            BinaryOp::Remainder => $apply!(|left, right| left % right),
            BinaryOp::Quotient => $apply!(|left, right| (left / right).trunc()),
            BinaryOp::And | BinaryOp::Or | BinaryOp::ShiftLeft | BinaryOp::ShiftRight => {
                unreachable!("binding refuses floats")
            }
        }
    };
}

fn binary(op: BinaryOp, left: &mut [f64], right: &[f64]) {
    macro_rules! pairs {
        (|$left:ident, $right:ident| $result:expr) => {
            for (out, right) in left.iter_mut().zip(right) {
                let ($left, $right) = (*out, *right);
                *out = $result;
            }
        };
    }
    with_operator!(op, pairs);
}

fn scalar_right(op: BinaryOp, out: &mut [f64], scalar: f64) {
    macro_rules! each {
        (|$left:ident, $right:ident| $result:expr) => {
            for value in out {
                let ($left, $right) = (*value, scalar);
                *value = $result;
            }
        };
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

fn scalar_left(op: BinaryOp, out: &mut [f64], scalar: f64) {
    macro_rules! each {
        (|$left:ident, $right:ident| $result:expr) => {
            for value in out {
                let ($left, $right) = (scalar, *value);
                *value = $result;
            }
        };
    }
    with_operator!(op, each);
}

fn unary(op: UnaryOp, out: &mut [f64]) {
    match op {
        UnaryOp::Negate => out.iter_mut().for_each(|value| *value = -*value),
        UnaryOp::Abs => out.iter_mut().for_each(|value| *value = value.abs()),
        UnaryOp::Sqrt => out.iter_mut().for_each(|value| *value = value.sqrt()),
        UnaryOp::Floor => out.iter_mut().for_each(|value| *value = value.floor()),
        UnaryOp::Invert => unreachable!("binding refuses floats"),
    }
}

impl Program {
    /// Compiles a number. `slot_of` maps a column's index to its slot among the inputs.
    pub(super) fn new(number: &Number, slot_of: &impl Fn(usize) -> usize) -> Self {
        let mut program = Self { steps: Vec::new(), buffers: 0, wholes: Vec::new() };
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
        if number.is_computed_whole() {
            self.steps.push(Step::Whole(self.wholes.len()));
            self.wholes.push(WholeProgram::new(number, slot_of));
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

    /// Computes up to [`CHUNK_ROWS`] rows from `first_row` on in the first buffer.
    fn run(
        &self,
        inputs: &impl Chunks,
        scalars: &impl Fn(Scalar) -> f64,
        first_row: usize,
        rows: usize,
        buffers: &mut Vec<Vec<f64>>,
        whole: &mut WholeStack,
    ) {
        debug_assert!(rows <= CHUNK_ROWS);
        while buffers.len() < self.buffers {
            buffers.push(vec![0.0; CHUNK_ROWS]);
        }
        // Buffers below `top` hold operands.
        let mut top = 0usize;
        for step in &self.steps {
            match *step {
                Step::Load(slot) => {
                    inputs.load(slot, first_row, &mut buffers[top][..rows]);
                    top += 1;
                }
                Step::Bits(slot) => {
                    inputs.load_bits(slot, first_row, &mut buffers[top][..rows]);
                    top += 1;
                }
                Step::Fill(scalar) => {
                    buffers[top][..rows].fill(scalars(scalar));
                    top += 1;
                }
                Step::Whole(index) => {
                    self.wholes[index].run(inputs, first_row, rows, whole);
                    buffers[top].iter_mut().zip(whole.top(rows)).for_each(|(out, value)| *out = *value as f64);
                    top += 1;
                }
                Step::Binary(op) => {
                    top -= 1;
                    let (below, above) = buffers.split_at_mut(top);
                    binary(op, &mut below[top - 1][..rows], &above[0][..rows]);
                }
                step => in_place(step, scalars, &mut buffers[top - 1][..rows]),
            }
        }
    }
}

/// Performs a step that changes the top buffer only.
fn in_place(step: Step, scalars: &impl Fn(Scalar) -> f64, out: &mut [f64]) {
    match step {
        Step::Unary(op) => unary(op, out),
        Step::Square => out.iter_mut().for_each(|value| *value *= *value),
        Step::ScalarRight(op, scalar) => scalar_right(op, out, scalars(scalar)),
        Step::ScalarLeft(op, scalar) => scalar_left(op, out, scalars(scalar)),
        Step::Load(_) | Step::Bits(_) | Step::Fill(_) | Step::Whole(_) | Step::Binary(_) => {}
    }
}

fn scalar(number: &Number) -> Option<Scalar> {
    match number {
        Number::Epoch => Some(Scalar::Epoch),
        Number::Constant(index, _) => Some(Scalar::Constant(*index)),
        number => number.literal().map(|value| Scalar::Literal(value.as_f64())),
    }
}
