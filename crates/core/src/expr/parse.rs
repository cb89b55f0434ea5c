//! Parsing of text to sqlparser's tree, within limits that hold for any text.
//!
//! The tokens are checked before parsing. Only tokens of the language are accepted, so other SQL (subqueries, casts,
//! comments) cannot be reached. Other keywords lose their SQL meaning, so that columns may be named `time`, `position`
//! or `interval`. Parentheses and operators are counted here, since sqlparser's left-deep chains are as deep as they
//! are long, and would overflow the stack on drop.

use sqlparser::ast::{BinaryOperator, Expr, Ident, UnaryOperator, Value, ValueWithSpan};
use sqlparser::dialect::GenericDialect;
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Location, Span, Token, TokenWithSpan, Tokenizer, Whitespace};

use super::error::{ExpressionError, MAX_OPERATORS, MAX_TEXT_BYTES};

/// Maximum nesting of parentheses and calls.
const MAX_DEPTH: usize = 60;

/// Maximum recursion depth of the parser: nested parentheses, each with a sign or NOT before it.
const MAX_LEVELS: usize = 2 * MAX_DEPTH + 10;

/// Maximum number of consecutive signs or NOTs.
const MAX_PREFIXES: usize = 20;

/// Maximum length of a quotation in an error message, in characters.
const NEAR_CHARACTERS: usize = 24;

/// A section of the user's text, with its offset there. Converts sqlparser's locations to positions in the user's text.
pub(super) struct SourceText<'a> {
    text: &'a str,
    /// Number of characters of the user's text before `text`.
    skipped: usize,
}

impl<'a> SourceText<'a> {
    pub(super) fn new(text: &'a str, skipped: usize) -> Self {
        Self { text, skipped }
    }

    /// Returns the number of characters of `text` before a location.
    fn offset(&self, place: Location) -> usize {
        let line = usize::try_from(place.line).unwrap_or(1).max(1);
        let column = usize::try_from(place.column).unwrap_or(1).max(1);
        let before: usize = self.text.split_inclusive('\n').take(line - 1).map(|line| line.chars().count()).sum();
        before + column - 1
    }

    /// Returns the position of a location in the user's text, counted in characters from 1.
    pub(super) fn position(&self, place: Location) -> usize {
        self.skipped + self.offset(place) + 1
    }

    /// Returns the text at a location, shortened.
    pub(super) fn near(&self, place: Location) -> String {
        let mut rest = self.text.chars().skip(self.offset(place));
        let mut near: String = rest.by_ref().take(NEAR_CHARACTERS).collect();
        if rest.next().is_some() {
            near.push('…');
        }
        if near.trim().is_empty() { "the end".to_owned() } else { near.trim().to_owned() }
    }

    /// Returns the location after the last character.
    fn end(&self) -> Location {
        Location::new(1, self.text.chars().count() as u64 + 1)
    }

    pub(super) fn syntax(&self, place: Location, what: impl Into<String>) -> ExpressionError {
        ExpressionError::Syntax { position: self.position(place), near: self.near(place), what: what.into() }
    }
}

/// Parses one expression. The expression is the whole text.
pub(super) fn parse(source: &SourceText<'_>) -> Result<Expr, ExpressionError> {
    if source.text.len() > MAX_TEXT_BYTES {
        return Err(ExpressionError::TooLong { bytes: source.text.len() });
    }
    if source.text.trim().is_empty() {
        return Err(ExpressionError::Empty);
    }
    match equality(source.text) {
        Some(expr) => Ok(expr),
        None => parse_any(source),
    }
}

/// Returns the tree of an expression such as `id = 17`, which is that of the parser. `None` for other expressions.
/// Lookups of single ids have this form, and the parser would take longer than some of them.
fn equality(text: &str) -> Option<Expr> {
    let (left, right) = text.split_once('=')?;
    let (name, digits) = (left.trim_end_matches(' '), right.trim_matches(' '));
    let span = |start: usize, bytes: usize| {
        // All characters up to there are ASCII. Locations count them from 1.
        let location = |offset: usize| Location::new(1, offset as u64 + 1);
        Span::new(location(start), location(start + bytes))
    };
    let quoted = name.strip_prefix('"').and_then(|name| name.strip_suffix('"'));
    let bare = quoted.unwrap_or(name);
    let is_word = !bare.starts_with(|first: char| first.is_ascii_digit())
        && bare.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let has_meaning = ["and", "or", "not", "between", "in", "true", "false"];
    if bare.is_empty() || !is_word || has_meaning.iter().any(|word| bare.eq_ignore_ascii_case(word)) {
        return None;
    }
    let unsigned = digits.strip_prefix('-').unwrap_or(digits);
    if unsigned.is_empty() || !unsigned.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let end = left.len() + 1 + right.trim_end_matches(' ').len();
    let span_of_number = span(end - unsigned.len(), unsigned.len());
    let number = Expr::Value(ValueWithSpan { value: Value::Number(unsigned.to_owned(), false), span: span_of_number });
    let right = match unsigned.len() == digits.len() {
        true => number,
        false => Expr::UnaryOp { op: UnaryOperator::Minus, expr: Box::new(number) },
    };
    let quote_style = quoted.map(|_| '"');
    let name = Ident { value: bare.to_owned(), quote_style, span: span(0, name.len()) };
    Some(Expr::BinaryOp { left: Box::new(Expr::Identifier(name)), op: BinaryOperator::Eq, right: Box::new(right) })
}

fn parse_any(source: &SourceText<'_>) -> Result<Expr, ExpressionError> {
    let dialect = GenericDialect {};
    let tokens = Tokenizer::new(&dialect, source.text)
        .tokenize_with_location()
        .map_err(|error| source.syntax(error.location, error.message.clone()))?;
    let tokens = admit(source, tokens)?;
    let mut parser = Parser::new(&dialect).with_recursion_limit(MAX_LEVELS).with_tokens_with_locations(tokens);
    let parsed = parser.parse_expr();
    let place = parser.peek_token_ref().span.start;
    let expr = parsed.map_err(|error| match error {
        ParserError::RecursionLimitExceeded => ExpressionError::TooDeep { position: source.position(place) },
        ParserError::ParserError(what) | ParserError::TokenizerError(what) => refusal(source, &what),
    })?;
    match parser.peek_token_ref().token {
        Token::EOF => Ok(expr),
        _ => Err(source.syntax(place, "expected an operator or the end of the expression")),
    }
}

/// Converts the parser's message, such as "Expected: an expression, found: ) at Line: 1, Column: 12", to our error. If
/// the message has no location, the error is at the end of the text.
fn refusal(source: &SourceText<'_>, message: &str) -> ExpressionError {
    let (what, place) = message.split_once(" at Line: ").unwrap_or((message, ""));
    let place = place
        .split_once(", Column: ")
        .and_then(|(line, column)| Some(Location::new(line.parse().ok()?, column.parse().ok()?)))
        .unwrap_or_else(|| source.end());
    let what = what.replace("Expected: ", "expected ").replace(", found: EOF", "").replace(", found: ", ", found ");
    source.syntax(place, what)
}

/// Accepts only tokens of the language, removes the meaning of other SQL keywords, and limits depth and size.
fn admit(source: &SourceText<'_>, tokens: Vec<TokenWithSpan>) -> Result<Vec<TokenWithSpan>, ExpressionError> {
    let mut admitted: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    let mut depth = 0usize;
    let mut operators = 0usize;
    let mut prefixes = 0usize;
    for mut token in tokens {
        let place = token.span.start;
        let mut is_operator = false;
        match &mut token.token {
            Token::Whitespace(Whitespace::SingleLineComment { .. } | Whitespace::MultiLineComment(_)) => {
                return Err(
                    source.syntax(place, "this starts a comment in SQL; put a space between the two characters")
                );
            }
            // Whitespace is dropped, since the parser's look-ahead skips it token by token.
            Token::Whitespace(_) => continue,
            Token::Number(_, false) | Token::HexStringLiteral(_) | Token::Comma | Token::Period | Token::EOF => {}
            Token::LParen => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return Err(ExpressionError::TooDeep { position: source.position(place) });
                }
            }
            Token::RParen => depth = depth.saturating_sub(1),
            Token::Word(word) => match word.keyword {
                Keyword::AND | Keyword::OR | Keyword::NOT | Keyword::BETWEEN | Keyword::IN => is_operator = true,
                Keyword::TRUE | Keyword::FALSE => {}
                _ => word.keyword = Keyword::NoKeyword,
            },
            // A sign in a list such as (-1, -2) is part of a number, and adds no depth.
            Token::Minus | Token::Plus => {
                is_operator = !matches!(admitted.last().map(|last| &last.token), Some(Token::Comma | Token::LParen));
            }
            Token::Mul | Token::Div | Token::Mod => is_operator = true,
            Token::Eq | Token::DoubleEq | Token::Neq | Token::Lt | Token::LtEq | Token::Gt | Token::GtEq => {
                is_operator = true;
            }
            _ => return Err(source.syntax(place, "not supported in an expression")),
        }
        let is_prefix = match &token.token {
            Token::Word(word) => word.keyword == Keyword::NOT,
            token => matches!(token, Token::Minus | Token::Plus),
        };
        prefixes = if is_prefix { prefixes + 1 } else { 0 };
        if prefixes > MAX_PREFIXES {
            return Err(ExpressionError::TooDeep { position: source.position(place) });
        }
        operators += usize::from(is_operator);
        if operators > MAX_OPERATORS {
            return Err(ExpressionError::TooManyOperators);
        }
        admitted.push(token);
    }
    Ok(admitted)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tree of an equality, its locations included, is the parser's. Other expressions are left to the parser.
    #[test]
    fn equalities_are_parsed_as_the_parser_does() {
        let names =
            ["id", "\"id\"", "ID_2", "_", "x", "E", "case", "interval", "date", "Infinity", "\"a b\"", "2a", "a.b"];
        let names =
            names.into_iter().chain(["not", "TRUE", "In", "\"not\"", "é", "", "\"\"", "\"\"\"\"", "(id)", " id"]);
        let numbers =
            ["17", "-17", "0", "007", "340282366920938463463374607431768211456", "- 1", "--1", "+1", "1.5", "1e3"];
        let numbers: Vec<&str> = numbers.into_iter().chain(["x'00'", "", "1 2", "id", "=1", "17 ", "-5  "]).collect();
        let mut equalities = 0;
        for name in names {
            for number in &numbers {
                for equals in ["=", " = ", "= ", "  =", " == ", "\t=", " <= ", " =\n"] {
                    let text = format!("{name}{equals}{number}");
                    let Some(expr) = equality(&text) else { continue };
                    let parsed = parse_any(&SourceText::new(&text, 0));
                    assert_eq!(format!("{:?}", parsed.unwrap()), format!("{expr:?}"), "{text}");
                    equalities += 1;
                }
            }
        }
        assert!(equalities > 100, "{equalities}");
        assert!(equality("id = 17").is_some() && equality("\"id\" = -17").is_some());
    }
}
