//! Arithmetic on chunks of rows. A number's tree is compiled to steps over a stack of reused buffers of `f64`. Integers
//! have programs of their own (`whole_program`), whose results are converted where a float needs them.

use super::chunks::{CHUNK_ROWS, Chunks, Slots};
use super::functions;
use super::tree::{BinaryOp, Number, UnaryOp, with_operator};
use super::whole_program::{Faults, WholeProgram, WholeStack};

/// A number that is equal in all rows of one call.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Scalar {
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
    /// Precedes each branch of an `if`.
    Branch,
    /// Takes each row of one of two branches, by the condition in this slot.
    Choose(usize),
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
    pub(super) fn new(number: &Number, slots: &impl Slots) -> Self {
        match number.is_whole() {
            true => Self::Whole(WholeProgram::new(number, slots)),
            false => Self::Float(Program::new(number, slots)),
        }
    }

    /// Computes up to [`CHUNK_ROWS`] rows from `first_row` on. Returns the values, and the rows without a result, which
    /// have any value.
    pub(super) fn run<'s>(
        &self,
        inputs: &impl Chunks,
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
                program.run(inputs, first_row, rows, buffers, whole);
                (Values::Float(&buffers[0][..rows]), &whole.faults)
            }
        }
    }
}

fn binary(op: BinaryOp, left: &mut [f64], right: &[f64]) {
    macro_rules! pairs {
        ($op:ident) => {
            left.iter_mut().zip(right).for_each(|(value, right)| *value = BinaryOp::$op.apply(*value, *right))
        };
    }
    match op {
        BinaryOp::Power => functions::raise_each(left, right),
        op => with_operator!(op, pairs),
    }
}

fn scalar_right(op: BinaryOp, values: &mut [f64], right: f64) {
    macro_rules! each {
        ($op:ident) => {
            values.iter_mut().for_each(|value| *value = BinaryOp::$op.apply(*value, right))
        };
    }
    match op {
        BinaryOp::Remainder => {
            for value in values {
                // A value below the divisor is its own remainder. Coordinates within their period need no division.
                let is_remainder = value.abs() < right.abs();
                if !is_remainder {
                    *value %= right;
                }
            }
        }
        BinaryOp::Power => functions::raise(values, right),
        op => with_operator!(op, each),
    }
}

fn scalar_left(op: BinaryOp, left: f64, values: &mut [f64]) {
    macro_rules! each {
        ($op:ident) => {
            values.iter_mut().for_each(|value| *value = BinaryOp::$op.apply(left, *value))
        };
    }
    with_operator!(op, each);
}

fn unary(op: UnaryOp, values: &mut [f64]) {
    // Each operation has its own loop, so that no loop branches on the operation.
    macro_rules! each {
        ($($op:ident),*) => {
            match op {
                UnaryOp::Sin => functions::sines(values),
                UnaryOp::Cos => functions::cosines(values),
                $(UnaryOp::$op => values.iter_mut().for_each(|value| *value = UnaryOp::$op.apply(*value)),)*
            }
        };
    }
    each!(Negate, Invert, Abs, Sqrt, Floor, Round, Sign, Exp, Log, Log10);
}

impl Program {
    /// Compiles a number.
    pub(super) fn new(number: &Number, slots: &impl Slots) -> Self {
        let mut program = Self { steps: Vec::new(), buffers: 0, wholes: Vec::new() };
        let needed = program.push(number, slots);
        program.buffers = needed;
        program
    }

    /// Appends the steps of `number`, and returns the number of buffers that they need.
    fn push(&mut self, number: &Number, slots: &impl Slots) -> usize {
        if let Some(scalar) = scalar(number) {
            self.steps.push(Step::Fill(scalar));
            return 1;
        }
        if number.is_computed_whole() {
            self.steps.push(Step::Whole(self.wholes.len()));
            self.wholes.push(WholeProgram::new(number, slots));
            return 1;
        }
        if let Some(root) = number.root() {
            let needed = self.push(root, slots);
            self.steps.push(Step::Square);
            return needed;
        }
        match number {
            Number::Column(column) => self.steps.push(Step::Load(slots.column(column.index))),
            Number::Bits(column) => self.steps.push(Step::Bits(slots.column(column.index))),
            Number::Unary(op, operand) => {
                let needed = self.push(operand, slots);
                self.steps.push(Step::Unary(*op));
                return needed;
            }
            Number::Binary(op, left, right) => return self.push_binary(*op, left, right, slots),
            Number::If(condition, then, otherwise) => {
                self.steps.push(Step::Branch);
                let then = self.push(then, slots);
                self.steps.push(Step::Branch);
                let otherwise = self.push(otherwise, slots);
                self.steps.push(Step::Choose(slots.condition(condition)));
                return then.max(otherwise + 1);
            }
            // Scalars were handled above.
            Number::Epoch | Number::Literal(_) | Number::Single(_) | Number::Constant(..) => {}
        }
        1
    }

    fn push_binary(&mut self, op: BinaryOp, left: &Number, right: &Number, slots: &impl Slots) -> usize {
        if let Some(scalar) = scalar(right) {
            let needed = self.push(left, slots);
            self.steps.push(Step::ScalarRight(op, scalar));
            return needed;
        }
        if let Some(scalar) = scalar(left) {
            let needed = self.push(right, slots);
            self.steps.push(Step::ScalarLeft(op, scalar));
            return needed;
        }
        let left = self.push(left, slots);
        let right = self.push(right, slots);
        self.steps.push(Step::Binary(op));
        left.max(right + 1)
    }

    /// Computes up to [`CHUNK_ROWS`] rows from `first_row` on in the first buffer.
    fn run(
        &self,
        inputs: &impl Chunks,
        first_row: usize,
        rows: usize,
        buffers: &mut Vec<Vec<f64>>,
        whole: &mut WholeStack,
    ) {
        debug_assert!(rows <= CHUNK_ROWS);
        while buffers.len() < self.buffers {
            buffers.push(vec![0.0; CHUNK_ROWS]);
        }
        let value = |scalar| match scalar {
            Scalar::Literal(value) => value,
            Scalar::Epoch => inputs.epoch() as f64,
            Scalar::Constant(index) => inputs.constant(index),
        };
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
                    buffers[top][..rows].fill(value(scalar));
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
                Step::Branch => whole.branch(),
                Step::Choose(slot) => {
                    top -= 1;
                    let taken = whole.choose(inputs, slot, first_row, rows);
                    let (below, above) = buffers.split_at_mut(top);
                    taken.select(&mut below[top - 1][..rows], &above[0][..rows]);
                }
                Step::Unary(op) => unary(op, &mut buffers[top - 1][..rows]),
                Step::Square => buffers[top - 1][..rows].iter_mut().for_each(|value| *value *= *value),
                Step::ScalarRight(op, right) => scalar_right(op, &mut buffers[top - 1][..rows], value(right)),
                Step::ScalarLeft(op, left) => scalar_left(op, value(left), &mut buffers[top - 1][..rows]),
            }
        }
    }
}

fn scalar(number: &Number) -> Option<Scalar> {
    match number {
        Number::Epoch => Some(Scalar::Epoch),
        Number::Constant(index, _) => Some(Scalar::Constant(*index)),
        number => number.literal().map(|value| Scalar::Literal(value.as_f64())),
    }
}
