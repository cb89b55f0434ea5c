//! Binding: converts sqlparser's tree to the typed tree, resolves names, checks types, and folds and rounds literals.

use std::cell::RefCell;
use std::sync::Arc;

use sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectNamePart,
    UnaryOperator, Value as SqlValue,
};
use sqlparser::tokenizer::Location;

use crate::schema::{Column, DataType, EPOCH_COLUMN, Value};

use super::ExpressionError;
use super::parse::SourceText;
use super::tree::{BinaryOp, ColumnRef, CompareOp, Condition, Number, UnaryOp, rounded};

/// Maximum depth of a tree. A chain of one arithmetic operator is as deep as it is long. All walks over the tree are
/// recursive and rely on this limit.
const MAX_TREE_DEPTH: usize = 200;

/// Magnitude above which integer literals are converted to `f64`. [`Value::compare`] is exact for integers below it.
pub(super) const MAX_WHOLE: i128 = 1 << 100;

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

/// A bound expression: a number or a condition.
enum Bound {
    Number(Number),
    Condition(Condition),
}

type Result<T> = std::result::Result<T, ExpressionError>;

/// Returns the start of an expression, or (1, 1) if sqlparser does not provide it.
///
/// sqlparser's own `span()` is recursive, and the depth of sqlparser's tree is not limited yet.
pub(super) fn place(mut expr: &Expr) -> Location {
    loop {
        expr = match expr {
            Expr::BinaryOp { left, .. } => left,
            Expr::Between { expr, .. }
            | Expr::InList { expr, .. }
            | Expr::UnaryOp { expr, .. }
            | Expr::Nested(expr) => expr,
            Expr::Identifier(name) => return name.span.start,
            Expr::CompoundIdentifier(parts) => {
                return parts.first().map_or(Location::new(1, 1), |part| part.span.start);
            }
            Expr::Value(value) => return value.span.start,
            Expr::Function(function) => return function_place(function),
            Expr::Tuple(items) if !items.is_empty() => &items[0],
            _ => return Location::new(1, 1),
        }
    }
}

fn function_place(function: &Function) -> Location {
    match function.name.0.first() {
        Some(ObjectNamePart::Identifier(name)) => name.span.start,
        _ => Location::new(1, 1),
    }
}

fn fold_unary(op: UnaryOp, operand: Number) -> Number {
    match (op, operand.literal()) {
        (UnaryOp::Negate, Some(Value::Int(value))) => Number::Literal(Value::Int(-value)),
        (UnaryOp::Abs, Some(Value::Int(value))) => Number::Literal(Value::Int(value.abs())),
        (_, Some(value)) => Number::Literal(Value::Float(op.apply(value.as_f64()))),
        (_, None) => Number::Unary(op, Box::new(operand)),
    }
}

fn fold_binary(op: BinaryOp, left: Number, right: Number) -> Number {
    let (Some(a), Some(b)) = (left.literal(), right.literal()) else {
        return Number::Binary(op, Box::new(left), Box::new(right));
    };
    if let (Value::Int(a), Value::Int(b)) = (a, b) {
        let whole = match op {
            BinaryOp::Add => a.checked_add(b),
            BinaryOp::Subtract => a.checked_sub(b),
            BinaryOp::Multiply => a.checked_mul(b),
            BinaryOp::Divide | BinaryOp::Remainder => None,
        };
        if let Some(whole) = whole.filter(|whole| (-MAX_WHOLE..=MAX_WHOLE).contains(whole)) {
            return Number::Literal(Value::Int(whole));
        }
    }
    Number::Literal(Value::Float(op.apply(a.as_f64(), b.as_f64())))
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
    pub(super) fn predicate(&self, expr: &Expr) -> Result<Condition> {
        self.condition(expr, 0)
    }

    /// Binds a whole derivation.
    pub(super) fn derivation(&self, expr: &Expr) -> Result<Number> {
        self.number(expr, 0)
    }

    /// Returns the source constants in use.
    pub(super) fn constants(self) -> Vec<Arc<str>> {
        self.constants.into_inner()
    }

    fn condition(&self, expr: &Expr, depth: usize) -> Result<Condition> {
        match self.bind(expr, depth)? {
            Bound::Condition(condition) => Ok(condition),
            Bound::Number(_) => {
                let place = place(expr);
                let (position, near) = (self.source.position(place), self.source.near(place));
                Err(ExpressionError::NotACondition { position, near })
            }
        }
    }

    pub(super) fn number(&self, expr: &Expr, depth: usize) -> Result<Number> {
        match self.bind(expr, depth)? {
            Bound::Number(number) => Ok(number),
            Bound::Condition(_) => {
                let place = place(expr);
                let (position, near) = (self.source.position(place), self.source.near(place));
                Err(ExpressionError::NotANumber { position, near })
            }
        }
    }

    fn bind(&self, expr: &Expr, depth: usize) -> Result<Bound> {
        if depth > MAX_TREE_DEPTH {
            return Err(ExpressionError::TooDeep { position: self.source.position(place(expr)) });
        }
        let depth = depth + 1;
        match expr {
            Expr::Nested(inner) => self.bind(inner, depth),
            Expr::Identifier(name) => self.identifier(name).map(Bound::Number),
            Expr::CompoundIdentifier(parts) => self.constant(expr, parts).map(Bound::Number),
            Expr::Value(value) => self.literal(&value.value, value.span.start),
            Expr::Function(function) => self.function(function, depth),
            Expr::UnaryOp { op, expr: operand } => self.unary(expr, *op, operand, depth),
            Expr::BinaryOp { op: BinaryOperator::And, .. } => {
                self.chain(expr, &BinaryOperator::And, depth).map(|all| Bound::Condition(Condition::And(all)))
            }
            Expr::BinaryOp { op: BinaryOperator::Or, .. } => {
                self.chain(expr, &BinaryOperator::Or, depth).map(|any| Bound::Condition(Condition::Or(any)))
            }
            Expr::BinaryOp { left, op, right } => self.binary(expr, left, op, right, depth),
            Expr::Between { expr: value, negated, low, high } => {
                self.between(value, *negated, low, high, depth).map(Bound::Condition)
            }
            Expr::InList { expr: value, list, negated } => {
                if let Some(condition) = self.tuple_list(value, list, *negated)? {
                    return Ok(Bound::Condition(condition));
                }
                let value = self.number(value, depth)?;
                let item = |item| Ok(round_to(&value, self.number(item, depth)?));
                let list = list.iter().map(item).collect::<Result<Vec<_>>>()?;
                Ok(Bound::Condition(Condition::In { value, list, negated: *negated }))
            }
            _ => Err(self.source.syntax(place(expr), "not supported in an expression")),
        }
    }

    /// Binds the operands of a chain of ANDs or ORs. The walk is not recursive, since the chain is left-deep and may be
    /// long.
    fn chain(&self, expr: &Expr, chained: &BinaryOperator, depth: usize) -> Result<Vec<Condition>> {
        let mut operands = Vec::new();
        let mut rest = expr;
        while let Expr::BinaryOp { left, op, right } = rest
            && op == chained
        {
            operands.push(right.as_ref());
            rest = left;
        }
        operands.push(rest);
        let mut conditions = Vec::with_capacity(operands.len());
        for operand in operands.into_iter().rev() {
            match (self.condition(operand, depth)?, chained) {
                (Condition::And(inner), BinaryOperator::And) | (Condition::Or(inner), BinaryOperator::Or) => {
                    conditions.extend(inner);
                }
                (condition, _) => conditions.push(condition),
            }
        }
        Ok(conditions)
    }

    fn unary(&self, whole: &Expr, op: UnaryOperator, operand: &Expr, depth: usize) -> Result<Bound> {
        match op {
            UnaryOperator::Not => Ok(Bound::Condition(Condition::Not(Box::new(self.condition(operand, depth)?)))),
            UnaryOperator::Minus => Ok(Bound::Number(fold_unary(UnaryOp::Negate, self.number(operand, depth)?))),
            UnaryOperator::Plus => Ok(Bound::Number(self.number(operand, depth)?)),
            _ => Err(self.source.syntax(place(whole), "not supported in an expression")),
        }
    }

    fn binary(&self, whole: &Expr, left: &Expr, op: &BinaryOperator, right: &Expr, depth: usize) -> Result<Bound> {
        let arithmetic = match op {
            BinaryOperator::Plus => Some(BinaryOp::Add),
            BinaryOperator::Minus => Some(BinaryOp::Subtract),
            BinaryOperator::Multiply => Some(BinaryOp::Multiply),
            BinaryOperator::Divide => Some(BinaryOp::Divide),
            BinaryOperator::Modulo => Some(BinaryOp::Remainder),
            _ => None,
        };
        let comparison = match op {
            BinaryOperator::Eq => Some(CompareOp::Equal),
            BinaryOperator::NotEq => Some(CompareOp::NotEqual),
            BinaryOperator::Lt => Some(CompareOp::Less),
            BinaryOperator::LtEq => Some(CompareOp::LessOrEqual),
            BinaryOperator::Gt => Some(CompareOp::Greater),
            BinaryOperator::GtEq => Some(CompareOp::GreaterOrEqual),
            _ => None,
        };
        if arithmetic.is_none() && comparison.is_none() {
            return Err(self.source.syntax(place(whole), "not supported in an expression"));
        }
        if let Some(condition) = self.tuple_compare(comparison, left, right)? {
            return Ok(Bound::Condition(condition));
        }
        let left = self.number(left, depth)?;
        let right = self.number(right, depth)?;
        Ok(match (arithmetic, comparison) {
            (Some(op), _) => Bound::Number(fold_binary(op, left, right)),
            (None, Some(op)) => Bound::Condition(compare(op, left, right)),
            (None, None) => unreachable!("refused above"),
        })
    }

    fn between(&self, value: &Expr, negated: bool, low: &Expr, high: &Expr, depth: usize) -> Result<Condition> {
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

    fn literal(&self, value: &SqlValue, place: Location) -> Result<Bound> {
        match value {
            SqlValue::Boolean(value) => Ok(Bound::Condition(Condition::Constant(*value))),
            SqlValue::Number(text, _) => {
                if let Some(whole) = text.parse::<i128>().ok().filter(|whole| *whole <= MAX_WHOLE) {
                    return Ok(Bound::Number(Number::Literal(Value::Int(whole))));
                }
                let number = text.parse().map_err(|_| self.source.syntax(place, "not a number"))?;
                Ok(Bound::Number(Number::Literal(Value::Float(number))))
            }
            SqlValue::HexStringLiteral(_) => {
                Err(self.source.syntax(place, "byte strings can be compared with fixed_bytes columns only"))
            }
            _ => Err(self.source.syntax(place, "only numbers, x'…', TRUE and FALSE are supported as literals")),
        }
    }

    fn function(&self, function: &Function, depth: usize) -> Result<Bound> {
        let place = function_place(function);
        let position = self.source.position(place);
        let name = match function.name.0.as_slice() {
            [ObjectNamePart::Identifier(name)] if name.quote_style.is_none() => name.value.to_ascii_lowercase(),
            _ => return Err(ExpressionError::UnknownFunction { position, name: function.name.to_string() }),
        };
        let unary = match name.as_str() {
            "abs" => Some(UnaryOp::Abs),
            "sqrt" => Some(UnaryOp::Sqrt),
            "floor" => Some(UnaryOp::Floor),
            "isnan" | "bits_i32" => None,
            _ => return Err(ExpressionError::UnknownFunction { position, name }),
        };
        let FunctionArguments::List(list) = &function.args else {
            return Err(ExpressionError::ArgumentCount { position, function: name, found: 0 });
        };
        let [FunctionArg::Unnamed(FunctionArgExpr::Expr(argument))] = list.args.as_slice() else {
            return Err(ExpressionError::ArgumentCount { position, function: name, found: list.args.len() });
        };
        let operand = self.number(argument, depth)?;
        Ok(match (unary, operand) {
            (Some(op), operand) => Bound::Number(fold_unary(op, operand)),
            (None, Number::Column(column)) if name == "bits_i32" && column.data_type == DataType::F32 => {
                Bound::Number(Number::Bits(column))
            }
            (None, operand) if name == "bits_i32" => {
                return Err(ExpressionError::BitsArgument { position, argument: operand.to_string() });
            }
            (None, operand) => Bound::Condition(match operand.literal() {
                Some(value) => Condition::Constant(value.as_f64().is_nan()),
                None => Condition::IsNan(operand),
            }),
        })
    }

    fn identifier(&self, name: &Ident) -> Result<Number> {
        if name.quote_style.is_none() {
            let literal = match name.value.to_ascii_lowercase().as_str() {
                "inf" | "infinity" => Some(f64::INFINITY),
                "nan" => Some(f64::NAN),
                _ => None,
            };
            if let Some(value) = literal {
                return Ok(Number::Literal(Value::Float(value)));
            }
        }
        if matches!(self.names, Names::Predicate) && name.value.eq_ignore_ascii_case(EPOCH_COLUMN) {
            return Ok(Number::Epoch);
        }
        let column = self.column(name)?;
        if !column.data_type.is_numeric() {
            return Err(self.opaque(&column, name.span.start));
        }
        Ok(Number::Column(column))
    }

    /// Returns the column with this name.
    pub(super) fn column(&self, name: &Ident) -> Result<ColumnRef> {
        let index = self.find(&name.value, self.source.position(name.span.start))?;
        let Column { name, data_type, .. } = &self.columns[index];
        Ok(ColumnRef { index, data_type: *data_type, name: name.as_str().into() })
    }

    /// Returns the error that a column has no order.
    pub(super) fn opaque(&self, column: &ColumnRef, place: Location) -> ExpressionError {
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

    fn constant(&self, whole: &Expr, parts: &[Ident]) -> Result<Number> {
        let position = self.source.position(place(whole));
        let name = parts.iter().map(|part| part.value.as_str()).collect::<Vec<_>>().join(".");
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
