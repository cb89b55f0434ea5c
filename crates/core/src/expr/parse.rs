//! Parses an expression to a syntax tree, by precedence climbing over one table of operators (`precedence`).

use super::error::ExpressionError;
use super::precedence::{self, NOT, SIGN};
use super::tokens::{Keyword, Kind, MAX_DEPTH, SourceText, Token, tokens};
use super::tree::{BinaryOp, CompareOp};

/// Maximum recursion depth: nested parentheses, each with a sign or NOT before it.
const MAX_LEVELS: usize = 2 * MAX_DEPTH + 10;

/// An expression whose names are not resolved yet.
#[derive(Debug)]
pub(super) struct Syntax<'a> {
    /// Offset of the first name or number.
    pub(super) place: usize,
    pub(super) kind: SyntaxKind<'a>,
}

#[derive(Debug)]
pub(super) enum SyntaxKind<'a> {
    Name(Name<'a>),
    /// A name with periods, such as `header.x0`.
    Path(String),
    Number(&'a str),
    /// Hexadecimal digits.
    Bytes(&'a str),
    Boolean(bool),
    Call {
        /// As written.
        name: String,
        is_plain: bool,
        arguments: Vec<Syntax<'a>>,
    },
    Plus(Box<Syntax<'a>>),
    Negate(Box<Syntax<'a>>),
    Invert(Box<Syntax<'a>>),
    Not(Box<Syntax<'a>>),
    Arithmetic(BinaryOp, Box<Syntax<'a>>, Box<Syntax<'a>>),
    Compare(CompareOp, Box<Syntax<'a>>, Box<Syntax<'a>>),
    Chain(Chained, Box<Syntax<'a>>, Box<Syntax<'a>>),
    Between {
        value: Box<Syntax<'a>>,
        low: Box<Syntax<'a>>,
        high: Box<Syntax<'a>>,
        negated: bool,
    },
    In {
        value: Box<Syntax<'a>>,
        list: Vec<Syntax<'a>>,
        negated: bool,
    },
    Tuple(Vec<Syntax<'a>>),
}

/// A connective of two conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Chained {
    And,
    Or,
}

#[derive(Debug, Clone)]
pub(super) enum Name<'a> {
    Word(&'a str),
    Quoted(String),
}

impl Name<'_> {
    pub(super) fn as_str(&self) -> &str {
        match self {
            Self::Word(name) => name,
            Self::Quoted(name) => name,
        }
    }
}

/// An operator between two operands.
#[derive(Clone, Copy)]
enum Infix {
    Chain(Chained),
    Compare(CompareOp),
    Arithmetic(BinaryOp),
    Between,
    In,
}

impl Infix {
    fn binding(self) -> u8 {
        match self {
            Self::Chain(Chained::Or) => precedence::OR,
            Self::Chain(Chained::And) => precedence::AND,
            Self::Compare(_) | Self::Between | Self::In => precedence::COMPARISON,
            Self::Arithmetic(op) => op.binding(),
        }
    }
}

type Result<T> = std::result::Result<T, ExpressionError>;

/// Parses one expression. The expression is the whole text.
pub(super) fn parse<'a>(source: &SourceText<'a>) -> Result<Syntax<'a>> {
    let tokens = tokens(source)?;
    if tokens.len() == 1 {
        return Err(ExpressionError::Empty);
    }
    let mut parser = Parser { source, tokens, next: 0, levels: 0 };
    let expression = parser.expression(0)?;
    match parser.kind() {
        Kind::End => Ok(expression),
        _ => Err(source.syntax(parser.place(), "expected an operator or the end of the expression")),
    }
}

struct Parser<'s, 'a> {
    source: &'s SourceText<'a>,
    tokens: Vec<Token<'a>>,
    next: usize,
    levels: usize,
}

impl<'a> Parser<'_, 'a> {
    fn kind(&self) -> &Kind<'a> {
        &self.tokens[self.next].kind
    }

    fn place(&self) -> usize {
        self.tokens[self.next].place
    }

    /// Advances, unless at the end.
    fn advance(&mut self) -> Token<'a> {
        let token = self.tokens[self.next].clone();
        self.next = (self.next + 1).min(self.tokens.len() - 1);
        token
    }

    /// Advances over a token of a kind, if it is next.
    fn accept(&mut self, kind: &Kind<'_>) -> bool {
        let is_next = self.kind() == kind;
        if is_next {
            self.advance();
        }
        is_next
    }

    fn expected<T>(&self, what: &str) -> Result<T> {
        let Token { kind, place, end } = &self.tokens[self.next];
        let found = match kind {
            Kind::End => String::new(),
            _ => format!(", found {}", &self.source.text[*place..*end]),
        };
        Err(self.source.syntax(*place, format!("expected {what}{found}")))
    }

    /// Parses an expression whose operators bind more tightly than `loosest`.
    fn expression(&mut self, loosest: u8) -> Result<Syntax<'a>> {
        self.levels += 1;
        if self.levels > MAX_LEVELS {
            return Err(self.source.too_deep(self.place()));
        }
        let mut left = self.operand()?;
        while let Some((operator, negated)) = self.infix()
            && operator.binding() > loosest
        {
            self.next += 1 + usize::from(negated);
            left = self.continued(left, operator, negated)?;
        }
        self.levels -= 1;
        Ok(left)
    }

    /// Returns the operator that is next, and whether NOT precedes it.
    fn infix(&self) -> Option<(Infix, bool)> {
        let keyword = |kind: &Kind<'_>| match kind {
            Kind::Keyword(Keyword::Between) => Some(Infix::Between),
            Kind::Keyword(Keyword::In) => Some(Infix::In),
            _ => None,
        };
        let operator = match self.kind() {
            Kind::Keyword(Keyword::And) => Infix::Chain(Chained::And),
            Kind::Keyword(Keyword::Or) => Infix::Chain(Chained::Or),
            Kind::Keyword(Keyword::Not) => {
                return keyword(&self.tokens[self.next + 1].kind).map(|operator| (operator, true));
            }
            Kind::Compare(op) => Infix::Compare(*op),
            Kind::Arithmetic(op) => Infix::Arithmetic(*op),
            other => keyword(other)?,
        };
        Some((operator, false))
    }

    /// Parses what follows an operator, and returns both operands with it.
    fn continued(&mut self, left: Syntax<'a>, operator: Infix, negated: bool) -> Result<Syntax<'a>> {
        let place = left.place;
        let left = Box::new(left);
        let kind = match operator {
            Infix::In => {
                if !self.accept(&Kind::Open) {
                    return self.expected("(");
                }
                SyntaxKind::In { value: left, list: self.list()?, negated }
            }
            Infix::Between => {
                let low = Box::new(self.expression(operator.binding())?);
                if !self.accept(&Kind::Keyword(Keyword::And)) {
                    return self.expected("AND");
                }
                SyntaxKind::Between { value: left, low, high: Box::new(self.expression(operator.binding())?), negated }
            }
            Infix::Chain(chained) => SyntaxKind::Chain(chained, left, self.right(operator)?),
            Infix::Compare(op) => SyntaxKind::Compare(op, left, self.right(operator)?),
            Infix::Arithmetic(op) => SyntaxKind::Arithmetic(op, left, self.right(operator)?),
        };
        Ok(Syntax { place, kind })
    }

    fn right(&mut self, operator: Infix) -> Result<Box<Syntax<'a>>> {
        // The right operand of `**` may have a sign, or be a power: `2 ** -3 ** 2` is `2 ** (-(3 ** 2))`.
        let loosest = match operator {
            Infix::Arithmetic(BinaryOp::Power) => SIGN,
            operator => operator.binding(),
        };
        self.expression(loosest).map(Box::new)
    }

    /// Parses an operand with its signs.
    fn operand(&mut self) -> Result<Syntax<'a>> {
        let Token { kind, place, .. } = self.tokens[self.next].clone();
        let kind = match kind {
            Kind::Keyword(Keyword::Not) => return self.prefix(NOT, SyntaxKind::Not),
            Kind::Arithmetic(BinaryOp::Subtract) => return self.prefix(SIGN, SyntaxKind::Negate),
            Kind::Arithmetic(BinaryOp::Add) => return self.prefix(SIGN, SyntaxKind::Plus),
            Kind::Invert => return self.prefix(SIGN, SyntaxKind::Invert),
            Kind::Open => {
                self.advance();
                return self.parenthesized();
            }
            Kind::Word(name) => return self.named(Name::Word(name)),
            Kind::Quoted(name) => return self.named(Name::Quoted(name)),
            Kind::Number(text) => SyntaxKind::Number(text),
            Kind::Bytes(digits) => SyntaxKind::Bytes(digits),
            Kind::Keyword(Keyword::True) => SyntaxKind::Boolean(true),
            Kind::Keyword(Keyword::False) => SyntaxKind::Boolean(false),
            _ => return self.expected("an expression"),
        };
        self.advance();
        Ok(Syntax { place, kind })
    }

    fn prefix(&mut self, binding: u8, of: fn(Box<Syntax<'a>>) -> SyntaxKind<'a>) -> Result<Syntax<'a>> {
        self.advance();
        let operand = self.expression(binding)?;
        Ok(Syntax { place: operand.place, kind: of(Box::new(operand)) })
    }

    /// Parses what follows an opening parenthesis: an expression, or a tuple.
    fn parenthesized(&mut self) -> Result<Syntax<'a>> {
        let mut items = self.list()?;
        match items.len() {
            1 => Ok(items.remove(0)),
            _ => Ok(Syntax { place: items[0].place, kind: SyntaxKind::Tuple(items) }),
        }
    }

    /// Parses expressions between commas, of which there is one at least, and the closing parenthesis.
    fn list(&mut self) -> Result<Vec<Syntax<'a>>> {
        let mut items = vec![self.expression(0)?];
        while self.accept(&Kind::Comma) {
            items.push(self.expression(0)?);
        }
        if self.accept(&Kind::Close) { Ok(items) } else { self.expected(")") }
    }

    /// Parses a column, a constant or a call.
    fn named(&mut self, first: Name<'a>) -> Result<Syntax<'a>> {
        let start = self.advance();
        let (place, mut end, mut parts) = (start.place, start.end, vec![first.as_str().to_owned()]);
        while self.accept(&Kind::Period) {
            let part = self.advance();
            parts.push(match part.kind {
                Kind::Word(name) => name.to_owned(),
                Kind::Quoted(name) => name,
                Kind::Keyword(_) => self.source.text[part.place..part.end].to_owned(),
                _ => return Err(self.source.syntax(part.place, "expected a name")),
            });
            end = part.end;
        }
        let is_path = parts.len() > 1;
        if self.accept(&Kind::Open) {
            let arguments = if self.accept(&Kind::Close) { Vec::new() } else { self.list()? };
            let is_plain = !is_path && matches!(first, Name::Word(_));
            let name = self.source.text[place..end].to_owned();
            return Ok(Syntax { place, kind: SyntaxKind::Call { name, is_plain, arguments } });
        }
        let kind = if is_path { SyntaxKind::Path(parts.join(".")) } else { SyntaxKind::Name(first) };
        Ok(Syntax { place, kind })
    }
}
