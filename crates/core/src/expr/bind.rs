//! Binding: converts the syntax tree to the typed tree, resolves names, checks types, and folds and rounds literals.

use std::cell::RefCell;
use std::sync::Arc;

use crate::schema::{Column, DataType, EPOCH_COLUMN, Value};

use super::ExpressionError;
use super::parse::{Chained, Name, Syntax, SyntaxKind};
use super::tokens::SourceText;
use super::tree::{BinaryOp, ColumnRef, CompareOp, Condition, Number, UnaryOp, rounded};
use super::whole::{self, Fault};

/// Maximum depth of a tree. A chain of one arithmetic operator is as deep as it is long. All walks over the tree are
/// recursive and rely on this limit.
const MAX_TREE_DEPTH: usize = 200;

/// The names in scope.
pub(super) enum Names<'a> {
    /// Names in a predicate: columns and `epoch`.
    Predicate,
    /// Names in a derivation: columns and constants of the source.
    Derivation(&'a dyn Fn(&str) -> Option<f64>),
}

/// A binder of expressions to columns. The binder collects the source constants that the expressions use.
pub(super) struct Binder<'a> {
    pub(super) source: SourceText<'a>,
    columns: &'a [Column],
    names: Names<'a>,
    constants: RefCell<Vec<Arc<str>>>,
}

/// A function of the language.
#[derive(Clone, Copy)]
enum Function {
    Unary(UnaryOp),
    Binary(BinaryOp),
    /// A function of two or more numbers, applied from the left.
    Chain(BinaryOp),
    If,
    IsNan,
    Bits,
}

impl Function {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "abs" => Self::Unary(UnaryOp::Abs),
            "atan2" => Self::Binary(BinaryOp::Atan2),
            "bits_i32" => Self::Bits,
            "cos" => Self::Unary(UnaryOp::Cos),
            "exp" => Self::Unary(UnaryOp::Exp),
            "floor" => Self::Unary(UnaryOp::Floor),
            "greatest" => Self::Chain(BinaryOp::Greatest),
            "if" => Self::If,
            "isnan" => Self::IsNan,
            "least" => Self::Chain(BinaryOp::Least),
            "log" => Self::Unary(UnaryOp::Log),
            "log10" => Self::Unary(UnaryOp::Log10),
            "pow" => Self::Binary(BinaryOp::Power),
            "round" => Self::Unary(UnaryOp::Round),
            "sign" => Self::Unary(UnaryOp::Sign),
            "sin" => Self::Unary(UnaryOp::Sin),
            "sqrt" => Self::Unary(UnaryOp::Sqrt),
            _ => return None,
        })
    }

    /// Returns the arguments in words.
    fn takes(self) -> &'static str {
        match self {
            Self::Unary(_) | Self::IsNan | Self::Bits => "one argument",
            Self::Binary(_) => "two arguments",
            Self::Chain(_) => "two or more arguments",
            Self::If => "a condition and two numbers",
        }
    }
}

/// A bound expression: a number or a condition.
enum Bound {
    Number(Number),
    Condition(Condition),
}

type Result<T> = std::result::Result<T, ExpressionError>;

/// Returns the literal of a computed integer, or else the computation. The least integer has no text that parses to it,
/// and a computation without a result has its effect where it is evaluated.
fn fold_whole(result: std::result::Result<i128, Fault>, computation: impl FnOnce() -> Number) -> Number {
    match result {
        Ok(value) if value != i128::MIN => Number::Literal(Value::Int(value)),
        _ => computation(),
    }
}

fn fold_unary(op: UnaryOp, operand: Number) -> Number {
    match (op, operand.literal()) {
        (UnaryOp::Floor | UnaryOp::Round, _) if operand.is_whole() => operand,
        (op, Some(Value::Int(value))) if op.is_whole() => {
            fold_whole(whole::unary(op, value), || Number::Unary(op, Box::new(operand)))
        }
        (_, Some(value)) => Number::Literal(Value::Float(op.apply(value.as_f64()))),
        (_, None) => Number::Unary(op, Box::new(operand)),
    }
}

fn fold_binary(op: BinaryOp, left: Number, right: Number) -> Number {
    let (Some(a), Some(b)) = (left.literal(), right.literal()) else {
        return Number::Binary(op, Box::new(left), Box::new(right));
    };
    match (a, b) {
        (Value::Int(a), Value::Int(b)) if op.is_whole(&right) => {
            fold_whole(whole::binary(op, a, b), || Number::Binary(op, Box::new(left), Box::new(right)))
        }
        _ => Number::Literal(Value::Float(op.apply(a.as_f64(), b.as_f64()))),
    }
}

/// Returns advice for those who join conditions by operators of bits, as in NumPy.
fn advice(op: BinaryOp) -> Option<&'static str> {
    match op {
        BinaryOp::And => Some("; join conditions by AND"),
        BinaryOp::Or => Some("; join conditions by OR"),
        _ => None,
    }
}

/// Rounds a literal to the type of the float column that it is compared with.
fn round_to(other: &Number, literal: Number) -> Number {
    let (Number::Column(column), Some(value)) = (other, literal.literal()) else { return literal };
    match (column.data_type, rounded(column.data_type, value)) {
        // Exact: the value was rounded to f32.
        (DataType::F32, value) => Number::Single(value.as_f64() as f32),
        (_, value) => Number::Literal(value),
    }
}

/// Returns a comparison. A literal is rounded to the type of the column that it is compared with.
pub(super) fn compare(op: CompareOp, left: Number, right: Number) -> Condition {
    let right = round_to(&left, right);
    let left = round_to(&right, left);
    match (left.literal(), right.literal()) {
        (Some(a), Some(b)) => Condition::Constant(op.holds_exactly(a, b)),
        _ => Condition::Compare(op, left, right),
    }
}

/// Returns the index of the column with this name, or else of the only column whose name differs in case only. If there
/// are none or several of those, returns them as the error.
pub(super) fn find_column(columns: &[Column], name: &str) -> std::result::Result<usize, Vec<usize>> {
    if let Some(index) = columns.iter().position(|column| column.name == name) {
        return Ok(index);
    }
    let is_alike = |column: &Column| column.name.to_lowercase() == name.to_lowercase();
    let alike: Vec<usize> = (0..columns.len()).filter(|index| is_alike(&columns[*index])).collect();
    match alike[..] {
        [index] => Ok(index),
        _ => Err(alike),
    }
}

impl<'a> Binder<'a> {
    pub(super) fn new(source: SourceText<'a>, columns: &'a [Column], names: Names<'a>) -> Self {
        Self { source, columns, names, constants: RefCell::default() }
    }

    /// Binds a whole predicate.
    pub(super) fn predicate(&self, expr: &Syntax<'_>) -> Result<Condition> {
        self.condition(expr, 0)
    }

    /// Binds a whole derivation.
    pub(super) fn derivation(&self, expr: &Syntax<'_>) -> Result<Number> {
        self.number(expr, 0)
    }

    /// Returns the source constants in use.
    pub(super) fn constants(self) -> Vec<Arc<str>> {
        self.constants.into_inner()
    }

    fn condition(&self, expr: &Syntax<'_>, depth: usize) -> Result<Condition> {
        match self.bind(expr, depth)? {
            Bound::Condition(condition) => Ok(condition),
            Bound::Number(_) => {
                let (position, near) = (self.source.position(expr.place), self.source.near(expr.place));
                Err(ExpressionError::NotACondition { position, near })
            }
        }
    }

    pub(super) fn number(&self, expr: &Syntax<'_>, depth: usize) -> Result<Number> {
        match self.bind(expr, depth)? {
            Bound::Number(number) => Ok(number),
            Bound::Condition(_) => Err(self.not_a_number(expr)),
        }
    }

    fn not_a_number(&self, expr: &Syntax<'_>) -> ExpressionError {
        // In `a > 1 & b < 2`, the comparison `a > (1 & b)` is compared with 2.
        if let SyntaxKind::Compare(_, _, last) | SyntaxKind::Between { high: last, .. } = &expr.kind
            && let SyntaxKind::Arithmetic(op, ..) = &last.kind
            && let Some(advice) = advice(*op)
        {
            let what = format!("'{}' binds more tightly than comparisons{advice}", op.sign());
            return self.source.syntax(last.place, what);
        }
        let (position, near) = (self.source.position(expr.place), self.source.near(expr.place));
        ExpressionError::NotANumber { position, near }
    }

    /// Binds an operand of an operator of arithmetic.
    fn operand(&self, op: BinaryOp, expr: &Syntax<'_>, depth: usize) -> Result<Number> {
        let advice = advice(op).unwrap_or_default();
        match self.bind(expr, depth)? {
            Bound::Number(number) if number.is_whole() || !op.is_of_bits() => Ok(number),
            Bound::Number(number) => {
                let what = format!("'{}' takes integers, and {number} is a float{advice}", op.sign());
                Err(self.source.syntax(expr.place, what))
            }
            Bound::Condition(_) if !advice.is_empty() => {
                Err(self.source.syntax(expr.place, format!("'{}' takes integers, not conditions{advice}", op.sign())))
            }
            Bound::Condition(_) => Err(self.not_a_number(expr)),
        }
    }

    /// Binds `~` and its operand.
    fn inverted(&self, operand: &Syntax<'_>, depth: usize) -> Result<Number> {
        let what = match self.bind(operand, depth)? {
            Bound::Number(number) if number.is_whole() => return Ok(fold_unary(UnaryOp::Invert, number)),
            Bound::Number(number) => format!("'~' takes integers, and {number} is a float"),
            Bound::Condition(_) => "'~' takes integers, not conditions; negate conditions by NOT".to_owned(),
        };
        Err(self.source.syntax(operand.place, what))
    }

    fn bind(&self, expr: &Syntax<'_>, depth: usize) -> Result<Bound> {
        if depth > MAX_TREE_DEPTH {
            return Err(ExpressionError::TooDeep { position: self.source.position(expr.place) });
        }
        let depth = depth + 1;
        match &expr.kind {
            SyntaxKind::Name(name) => self.name(name, expr.place).map(Bound::Number),
            SyntaxKind::Path(name) => self.constant(name, expr.place).map(Bound::Number),
            SyntaxKind::Number(text) => self.literal(text, expr.place).map(Bound::Number),
            SyntaxKind::Bytes(_) => {
                Err(self.source.syntax(expr.place, "byte strings can be compared with fixed_bytes columns only"))
            }
            SyntaxKind::Boolean(value) => Ok(Bound::Condition(Condition::Constant(*value))),
            SyntaxKind::Call { name, is_plain, arguments } => self.call(name, *is_plain, arguments, expr.place, depth),
            SyntaxKind::Plus(operand) => self.number(operand, depth).map(Bound::Number),
            SyntaxKind::Negate(operand) => Ok(Bound::Number(fold_unary(UnaryOp::Negate, self.number(operand, depth)?))),
            SyntaxKind::Invert(operand) => self.inverted(operand, depth).map(Bound::Number),
            SyntaxKind::Not(operand) => Ok(Bound::Condition(Condition::Not(Box::new(self.condition(operand, depth)?)))),
            SyntaxKind::Chain(op, ..) => {
                let operands = self.chain(expr, *op, depth)?;
                Ok(Bound::Condition(match op {
                    Chained::And => Condition::And(operands),
                    Chained::Or => Condition::Or(operands),
                }))
            }
            SyntaxKind::Arithmetic(op, left, right) => {
                if let Some(condition) = self.tuple_compare(None, left, right)? {
                    return Ok(Bound::Condition(condition));
                }
                let (left, right) = (self.operand(*op, left, depth)?, self.operand(*op, right, depth)?);
                Ok(Bound::Number(fold_binary(*op, left, right)))
            }
            SyntaxKind::Compare(op, left, right) => {
                if let Some(condition) = self.tuple_compare(Some(*op), left, right)? {
                    return Ok(Bound::Condition(condition));
                }
                Ok(Bound::Condition(compare(*op, self.number(left, depth)?, self.number(right, depth)?)))
            }
            SyntaxKind::Between { value, low, high, negated } => {
                self.between(value, *negated, low, high, depth).map(Bound::Condition)
            }
            SyntaxKind::In { value, list, negated } => {
                if let Some(condition) = self.tuple_list(value, list, *negated)? {
                    return Ok(Bound::Condition(condition));
                }
                let value = self.number(value, depth)?;
                let item = |item| Ok(round_to(&value, self.number(item, depth)?));
                let list = list.iter().map(item).collect::<Result<Vec<_>>>()?;
                Ok(Bound::Condition(Condition::In { value, list, negated: *negated }))
            }
            SyntaxKind::Tuple(_) => Err(self.source.syntax(expr.place, "not supported in an expression")),
        }
    }

    /// Binds the operands of a chain of ANDs or ORs. The walk is not recursive, since the chain is left-deep and may be
    /// long.
    fn chain(&self, expr: &Syntax<'_>, chained: Chained, depth: usize) -> Result<Vec<Condition>> {
        let mut operands = Vec::new();
        let mut rest = expr;
        while let SyntaxKind::Chain(op, left, right) = &rest.kind
            && *op == chained
        {
            operands.push(right.as_ref());
            rest = left;
        }
        operands.push(rest);
        let mut conditions = Vec::with_capacity(operands.len());
        for operand in operands.into_iter().rev() {
            match (self.condition(operand, depth)?, chained) {
                (Condition::And(inner), Chained::And) | (Condition::Or(inner), Chained::Or) => {
                    conditions.extend(inner);
                }
                (condition, _) => conditions.push(condition),
            }
        }
        Ok(conditions)
    }

    fn between(
        &self,
        value: &Syntax<'_>,
        negated: bool,
        low: &Syntax<'_>,
        high: &Syntax<'_>,
        depth: usize,
    ) -> Result<Condition> {
        let value = self.number(value, depth)?;
        let low = round_to(&value, self.number(low, depth)?);
        let high = round_to(&value, self.number(high, depth)?);
        if let (Some(value), Some(low), Some(high)) = (value.literal(), low.literal(), high.literal()) {
            let within = CompareOp::GreaterOrEqual.holds_exactly(value, low)
                && CompareOp::LessOrEqual.holds_exactly(value, high);
            return Ok(Condition::Constant(within != negated));
        }
        Ok(Condition::Between { value, low, high, negated })
    }

    fn literal(&self, text: &str, place: usize) -> Result<Number> {
        if let Ok(whole) = text.parse() {
            return Ok(Number::Literal(Value::Int(whole)));
        }
        let number = text.parse().map_err(|_| self.source.syntax(place, "not a number"))?;
        Ok(Number::Literal(Value::Float(number)))
    }

    fn call(&self, name: &str, is_plain: bool, arguments: &[Syntax<'_>], place: usize, depth: usize) -> Result<Bound> {
        let position = self.source.position(place);
        let name = if is_plain { name.to_ascii_lowercase() } else { name.to_owned() };
        let Some(function) = Function::named(&name) else {
            return Err(ExpressionError::UnknownFunction { position, name });
        };
        Ok(Bound::Number(match (function, arguments) {
            (Function::Unary(op), [operand]) => fold_unary(op, self.number(operand, depth)?),
            (Function::Binary(op), [left, right]) => {
                fold_binary(op, self.number(left, depth)?, self.number(right, depth)?)
            }
            (Function::Chain(op), [first, others @ ..]) if !others.is_empty() => {
                // The tree of a chain is as deep as the chain is long.
                let depth = depth + others.len();
                let mut chain = self.number(first, depth)?;
                for other in others {
                    chain = fold_binary(op, chain, self.number(other, depth)?);
                }
                chain
            }
            (Function::If, [condition, then, otherwise]) => {
                let condition = self.condition(condition, depth)?;
                let (then, otherwise) = (self.number(then, depth)?, self.number(otherwise, depth)?);
                Number::If(Box::new(condition), Box::new(then), Box::new(otherwise))
            }
            (Function::Bits, [operand]) => match self.number(operand, depth)? {
                Number::Column(column) if column.data_type == DataType::F32 => Number::Bits(column),
                operand => return Err(ExpressionError::BitsArgument { position, argument: operand.to_string() }),
            },
            (Function::IsNan, [operand]) => {
                let operand = self.number(operand, depth)?;
                return Ok(Bound::Condition(match operand.literal() {
                    Some(value) => Condition::Constant(value.as_f64().is_nan()),
                    None => Condition::IsNan(operand),
                }));
            }
            (function, arguments) => {
                let (takes, found) = (function.takes(), arguments.len());
                return Err(ExpressionError::ArgumentCount { position, function: name, takes, found });
            }
        }))
    }

    fn name(&self, name: &Name<'_>, place: usize) -> Result<Number> {
        if let Name::Word(word) = name {
            let literal = match word.to_ascii_lowercase().as_str() {
                "inf" | "infinity" => Some(f64::INFINITY),
                "nan" => Some(f64::NAN),
                _ => None,
            };
            if let Some(value) = literal {
                return Ok(Number::Literal(Value::Float(value)));
            }
        }
        if matches!(self.names, Names::Predicate) && name.as_str().eq_ignore_ascii_case(EPOCH_COLUMN) {
            return Ok(Number::Epoch);
        }
        let column = self.column(name, place)?;
        if !column.data_type.is_numeric() {
            return Err(self.opaque(&column, place));
        }
        Ok(Number::Column(column))
    }

    /// Returns the column with this name.
    pub(super) fn column(&self, name: &Name<'_>, place: usize) -> Result<ColumnRef> {
        let index = self.find(name.as_str(), self.source.position(place))?;
        let Column { name, data_type, .. } = &self.columns[index];
        Ok(ColumnRef { index, data_type: *data_type, name: name.as_str().into() })
    }

    /// Returns the error that a column has no order.
    pub(super) fn opaque(&self, column: &ColumnRef, place: usize) -> ExpressionError {
        let (position, name, data_type) = (self.source.position(place), column.name.to_string(), column.data_type);
        ExpressionError::Opaque { position, name, data_type }
    }

    fn find(&self, name: &str, position: usize) -> Result<usize> {
        let names = |found: &mut dyn Iterator<Item = &Column>| found.map(|column| column.name.clone()).collect();
        find_column(self.columns, name).map_err(|alike| match alike.is_empty() {
            true => {
                let known = names(&mut self.columns.iter());
                ExpressionError::UnknownColumn { position, name: name.to_owned(), known }
            }
            false => {
                let candidates = names(&mut alike.iter().map(|index| &self.columns[*index]));
                ExpressionError::AmbiguousColumn { position, name: name.to_owned(), candidates }
            }
        })
    }

    fn constant(&self, name: &str, place: usize) -> Result<Number> {
        let (position, name) = (self.source.position(place), name.to_owned());
        let Names::Derivation(lookup) = &self.names else {
            return Err(ExpressionError::ConstantInPredicate { position, name });
        };
        if lookup(&name).is_none() {
            return Err(ExpressionError::UnknownConstant { position, name });
        }
        let name: Arc<str> = name.into();
        let mut constants = self.constants.borrow_mut();
        let index = constants.iter().position(|known| *known == name).unwrap_or_else(|| {
            constants.push(Arc::clone(&name));
            constants.len() - 1
        });
        Ok(Number::Constant(index, name))
    }
}
