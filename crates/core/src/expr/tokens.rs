//! Splits the text of an expression into tokens, within limits that hold for any text.
//!
//! Parentheses, signs and operators are counted here, so that the parser's recursion is bounded before it starts.

use super::error::{ExpressionError, MAX_OPERATORS, MAX_TEXT_BYTES};
use super::tree::{BinaryOp, CompareOp};

/// Maximum nesting of parentheses and calls.
pub(super) const MAX_DEPTH: usize = 60;

/// Maximum number of consecutive signs or NOTs.
const MAX_PREFIXES: usize = 20;

/// Maximum length of a quotation in an error message, in characters.
const NEAR_CHARACTERS: usize = 24;

/// The text of an expression, as a section of the user's text. Places are offsets in bytes.
#[derive(Clone, Copy)]
pub(super) struct SourceText<'a> {
    pub(super) text: &'a str,
    /// Number of characters of the user's text before `text`.
    skipped: usize,
}

impl<'a> SourceText<'a> {
    pub(super) fn new(text: &'a str, skipped: usize) -> Self {
        Self { text, skipped }
    }

    /// Returns the position of a place in the user's text, counted in characters from 1.
    pub(super) fn position(&self, place: usize) -> usize {
        self.skipped + self.text[..place].chars().count() + 1
    }

    /// Returns the text at a place, shortened.
    pub(super) fn near(&self, place: usize) -> String {
        let mut rest = self.text[place..].chars();
        let mut near: String = rest.by_ref().take(NEAR_CHARACTERS).collect();
        if rest.next().is_some() {
            near.push('…');
        }
        if near.trim().is_empty() { "the end".to_owned() } else { near.trim().to_owned() }
    }

    pub(super) fn syntax(&self, place: usize, what: impl Into<String>) -> ExpressionError {
        ExpressionError::Syntax { position: self.position(place), near: self.near(place), what: what.into() }
    }

    pub(super) fn too_deep(&self, place: usize) -> ExpressionError {
        ExpressionError::TooDeep { position: self.position(place) }
    }
}

/// A word with a meaning of its own, in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keyword {
    And,
    Or,
    Not,
    Between,
    In,
    True,
    False,
}

const KEYWORDS: [(&str, Keyword); 7] = [
    ("and", Keyword::And),
    ("or", Keyword::Or),
    ("not", Keyword::Not),
    ("between", Keyword::Between),
    ("in", Keyword::In),
    ("true", Keyword::True),
    ("false", Keyword::False),
];

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind<'a> {
    Number(&'a str),
    /// Hexadecimal digits.
    Bytes(&'a str),
    /// A name without quotes that is no keyword.
    Word(&'a str),
    /// The content of a quoted name.
    Quoted(String),
    Keyword(Keyword),
    Arithmetic(BinaryOp),
    /// `~`, which precedes its operand.
    Invert,
    Compare(CompareOp),
    Open,
    Close,
    Comma,
    Period,
    End,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Token<'a> {
    pub(super) kind: Kind<'a>,
    /// Offset of the first byte.
    pub(super) place: usize,
    /// Offset behind the last byte.
    pub(super) end: usize,
}

/// Symbols, of which none precedes a longer one that it begins.
const SYMBOLS: [(&str, Kind<'static>); 23] = [
    ("==", Kind::Compare(CompareOp::Equal)),
    ("=", Kind::Compare(CompareOp::Equal)),
    ("<<", Kind::Arithmetic(BinaryOp::ShiftLeft)),
    (">>", Kind::Arithmetic(BinaryOp::ShiftRight)),
    ("<>", Kind::Compare(CompareOp::NotEqual)),
    ("!=", Kind::Compare(CompareOp::NotEqual)),
    ("<=", Kind::Compare(CompareOp::LessOrEqual)),
    ("<", Kind::Compare(CompareOp::Less)),
    (">=", Kind::Compare(CompareOp::GreaterOrEqual)),
    (">", Kind::Compare(CompareOp::Greater)),
    ("+", Kind::Arithmetic(BinaryOp::Add)),
    ("-", Kind::Arithmetic(BinaryOp::Subtract)),
    ("**", Kind::Arithmetic(BinaryOp::Power)),
    ("*", Kind::Arithmetic(BinaryOp::Multiply)),
    ("//", Kind::Arithmetic(BinaryOp::Quotient)),
    ("/", Kind::Arithmetic(BinaryOp::Divide)),
    ("%", Kind::Arithmetic(BinaryOp::Remainder)),
    ("&", Kind::Arithmetic(BinaryOp::And)),
    ("|", Kind::Arithmetic(BinaryOp::Or)),
    ("~", Kind::Invert),
    ("(", Kind::Open),
    (")", Kind::Close),
    (",", Kind::Comma),
];

fn is_first_of_name(character: char) -> bool {
    character.is_alphabetic() || "_#@".contains(character)
}

fn is_of_name(character: char) -> bool {
    character.is_alphabetic() || character.is_ascii_digit() || "_#@$".contains(character)
}

/// Returns the length of the text's beginning whose characters fulfil a condition.
fn span(text: &str, holds: impl Fn(char) -> bool) -> usize {
    text.find(|character| !holds(character)).unwrap_or(text.len())
}

/// Returns the length of the number at the beginning of a text: digits, a fraction, an exponent with digits.
fn number_bytes(text: &str) -> usize {
    let digits = |from: usize| span(&text[from..], |character| character.is_ascii_digit());
    let mut bytes = digits(0);
    if text[bytes..].starts_with('.') {
        bytes += 1 + digits(bytes + 1);
    }
    if text[bytes..].starts_with(['e', 'E']) {
        let sign = usize::from(text[bytes + 1..].starts_with(['+', '-']));
        let exponent = digits(bytes + 1 + sign);
        if exponent > 0 {
            bytes += 1 + sign + exponent;
        }
    }
    bytes
}

/// Returns the first token of the text that begins at `place`, which is no blank.
fn token<'a>(source: &SourceText<'a>, place: usize) -> Result<(Kind<'a>, usize), ExpressionError> {
    let rest = &source.text[place..];
    let refused = |what: &str| Err(source.syntax(place, what));
    let first = rest.chars().next().unwrap_or('\0');
    let second = rest[first.len_utf8()..].chars().next().unwrap_or('\0');
    if rest.starts_with("--") || rest.starts_with("/*") {
        return refused("this starts a comment in SQL; put a space between the two characters");
    }
    for (symbol, keyword) in [("&&", "AND"), ("||", "OR"), ("^", "**")] {
        if rest.starts_with(symbol) {
            return refused(&format!("not supported in an expression; write {keyword}"));
        }
    }
    if (first == 'x' || first == 'X') && second == '\'' {
        let Some(digits) = rest[2..].find('\'') else { return refused("the byte string does not end") };
        return Ok((Kind::Bytes(&rest[2..2 + digits]), digits + 3));
    }
    if let Some(rest) = rest.strip_prefix("0x") {
        let digits = span(rest, |character| character.is_ascii_hexdigit());
        return Ok((Kind::Bytes(&rest[..digits]), digits + 2));
    }
    if first.is_ascii_digit() || first == '.' && second.is_ascii_digit() {
        let bytes = number_bytes(rest);
        // A suffix, as C has it.
        return if rest[bytes..].starts_with('L') {
            refused("not supported in an expression")
        } else {
            Ok((Kind::Number(&rest[..bytes]), bytes))
        };
    }
    if is_first_of_name(first) {
        let bytes = span(rest, is_of_name);
        let word = &rest[..bytes];
        let keyword = KEYWORDS.iter().find(|(name, _)| name.eq_ignore_ascii_case(word));
        return Ok((keyword.map_or(Kind::Word(word), |(_, keyword)| Kind::Keyword(*keyword)), bytes));
    }
    if first == '"' || first == '`' {
        return quoted(&rest[1..], first).map_or_else(|| refused("the quoted name does not end"), Ok);
    }
    if first == '.' {
        return Ok((Kind::Period, 1));
    }
    match SYMBOLS.iter().find(|(symbol, _)| rest.starts_with(symbol)) {
        Some((symbol, kind)) => Ok((kind.clone(), symbol.len())),
        None => refused("not supported in an expression"),
    }
}

/// Returns the name that a text begins with, behind the opening quote, and the length of the token. Two quotes stand
/// for one.
fn quoted(text: &str, quote: char) -> Option<(Kind<'static>, usize)> {
    let (mut name, mut read) = (String::new(), 0);
    loop {
        let end = text[read..].find(quote)?;
        name.push_str(&text[read..read + end]);
        read += end + 1;
        if !text[read..].starts_with(quote) {
            return Some((Kind::Quoted(name), read + 1));
        }
        name.push(quote);
        read += 1;
    }
}

/// Splits a text into tokens, the last of which is [`Kind::End`].
pub(super) fn tokens<'a>(source: &SourceText<'a>) -> Result<Vec<Token<'a>>, ExpressionError> {
    let text = source.text;
    if text.len() > MAX_TEXT_BYTES {
        return Err(ExpressionError::TooLong { bytes: text.len() });
    }
    let mut tokens: Vec<Token<'a>> = Vec::new();
    let (mut place, mut depth, mut operators, mut prefixes) = (0, 0usize, 0usize, 0usize);
    loop {
        place += span(&text[place..], char::is_whitespace);
        if place == text.len() {
            break;
        }
        let (kind, bytes) = token(source, place)?;
        match kind {
            Kind::Open => depth += 1,
            Kind::Close => depth = depth.saturating_sub(1),
            _ => {}
        }
        let is_sign = matches!(kind, Kind::Arithmetic(BinaryOp::Add | BinaryOp::Subtract));
        // A sign in a list such as (-1, -2) is part of a number, and adds no depth.
        let is_in_list = is_sign && tokens.last().is_some_and(|last| matches!(last.kind, Kind::Comma | Kind::Open));
        operators += usize::from(match kind {
            Kind::Keyword(keyword) => !matches!(keyword, Keyword::True | Keyword::False),
            Kind::Arithmetic(_) | Kind::Compare(_) => !is_in_list,
            Kind::Invert => true,
            // The parenthesis of a call: each call costs as much as an operator.
            Kind::Open => tokens.last().is_some_and(|last| matches!(last.kind, Kind::Word(_))),
            _ => false,
        });
        let is_prefix = is_sign || matches!(kind, Kind::Invert | Kind::Keyword(Keyword::Not));
        prefixes = if is_prefix { prefixes + 1 } else { 0 };
        if depth > MAX_DEPTH || prefixes > MAX_PREFIXES {
            return Err(source.too_deep(place));
        }
        if operators > MAX_OPERATORS {
            return Err(ExpressionError::TooManyOperators);
        }
        tokens.push(Token { kind, place, end: place + bytes });
        place += bytes;
    }
    tokens.push(Token { kind: Kind::End, place, end: place });
    Ok(tokens)
}
