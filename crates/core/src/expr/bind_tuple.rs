//! Binding of comparisons of tuples and byte strings: `(cpu, id) IN ((3, 17))`, `uuid = x'0a1b'`.

use crate::schema::{DataType, Value};

use super::ExpressionError;
use super::bind::Binder;
use super::parse::{Syntax, SyntaxKind};
use super::tree::{ColumnRef, CompareOp, Condition};
use super::tuples::{TupleSet, pack_integer};

type Result<T> = std::result::Result<T, ExpressionError>;

/// Decodes pairs of hexadecimal digits.
fn decode_hex(digits: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = digits.chars().map(|digit| digit.to_digit(16).map(|digit| digit as u8)).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    Some(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

impl Binder<'_> {
    /// Returns the columns that an expression names, if it is a tuple or a `fixed_bytes` column.
    fn tuple_columns(&self, expr: &Syntax<'_>) -> Result<Option<Vec<ColumnRef>>> {
        match &expr.kind {
            SyntaxKind::Tuple(items) => {
                items.iter().map(|item| self.tuple_column(item)).collect::<Result<_>>().map(Some)
            }
            SyntaxKind::Name(name) => {
                let is_bytes = |column: &ColumnRef| !column.data_type.is_numeric();
                Ok(self.column(name, expr.place).ok().filter(is_bytes).map(|column| vec![column]))
            }
            _ => Ok(None),
        }
    }

    fn tuple_column(&self, item: &Syntax<'_>) -> Result<ColumnRef> {
        let SyntaxKind::Name(name) = &item.kind else {
            return Err(self.source.syntax(item.place, "expected a column in the tuple"));
        };
        let column = self.column(name, item.place)?;
        if column.data_type.is_float() {
            let what =
                format!("column '{}' is {}, but tuples have integers and fixed_bytes", column.name, column.data_type);
            return Err(self.source.syntax(item.place, what));
        }
        Ok(column)
    }

    /// Appends the stored bytes of a literal. Returns false if an integer is outside its column's type.
    fn pack_literal(&self, column: &ColumnRef, item: &Syntax<'_>, out: &mut Vec<u8>) -> Result<bool> {
        let DataType::FixedBytes(width) = column.data_type else {
            let Some(Value::Int(value)) = self.number(item, 0)?.literal() else {
                let what = format!("expected an integer for column '{}'", column.name);
                return Err(self.source.syntax(item.place, what));
            };
            return Ok(pack_integer(column.data_type, value, out));
        };
        let bytes = match item.kind {
            SyntaxKind::Bytes(digits) => decode_hex(digits),
            _ => None,
        };
        let bytes = bytes.filter(|bytes| bytes.len() == width as usize).ok_or_else(|| {
            let what = format!("expected a literal of {width} bytes for column '{}', such as x'0a1b'", column.name);
            self.source.syntax(item.place, what)
        })?;
        out.extend_from_slice(&bytes);
        Ok(true)
    }

    /// Returns the condition that the columns have one of the listed values.
    fn tuple_in(&self, columns: Vec<ColumnRef>, list: &[&Syntax<'_>], negated: bool) -> Result<Condition> {
        let (mut packed, mut tuple) = (Vec::new(), Vec::new());
        for item in list {
            let values = match (&item.kind, columns.len()) {
                (SyntaxKind::Tuple(values), _) => values.as_slice(),
                (_, 1) => std::slice::from_ref(*item),
                _ => &[],
            };
            if values.len() != columns.len() {
                let what = format!("expected a tuple of {} values", columns.len());
                return Err(self.source.syntax(item.place, what));
            }
            tuple.clear();
            let mut fits = true;
            for (column, value) in columns.iter().zip(values) {
                fits &= self.pack_literal(column, value, &mut tuple)?;
            }
            if fits {
                packed.extend_from_slice(&tuple);
            }
        }
        let members = TupleSet::new(columns.iter().map(|column| column.data_type).collect(), &packed);
        if members.len() == 0 {
            // No row has an integer outside its column's type.
            return Ok(Condition::Constant(negated));
        }
        Ok(Condition::Tuple { columns, members, negated })
    }

    /// Binds `IN` with a tuple or a `fixed_bytes` column before it. Returns `None` for other values.
    pub(super) fn tuple_list(
        &self,
        value: &Syntax<'_>,
        list: &[Syntax<'_>],
        negated: bool,
    ) -> Result<Option<Condition>> {
        let Some(columns) = self.tuple_columns(value)? else { return Ok(None) };
        self.tuple_in(columns, &list.iter().collect::<Vec<_>>(), negated).map(Some)
    }

    /// Binds a comparison with a tuple or a `fixed_bytes` column on one side. Returns `None` for others.
    pub(super) fn tuple_compare(
        &self,
        op: Option<CompareOp>,
        left: &Syntax<'_>,
        right: &Syntax<'_>,
    ) -> Result<Option<Condition>> {
        let is_named = |expr: &Syntax<'_>| match &expr.kind {
            SyntaxKind::Tuple(items) => items.iter().all(|item| matches!(item.kind, SyntaxKind::Name(_))),
            SyntaxKind::Name(_) => true,
            _ => false,
        };
        let (named, other) = if is_named(left) { (left, right) } else { (right, left) };
        let Some(columns) = self.tuple_columns(named)? else { return Ok(None) };
        let negated = match op {
            Some(CompareOp::Equal) => false,
            Some(CompareOp::NotEqual) => true,
            _ if columns.len() > 1 => {
                return Err(self.source.syntax(named.place, "tuples can be compared with =, <> and IN only"));
            }
            _ => return Err(self.opaque(&columns[0], named.place)),
        };
        self.tuple_in(columns, &[other], negated).map(Some)
    }
}
