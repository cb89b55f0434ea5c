//! The syntax of all patterns: text, and placeholders in braces.

/// A piece of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    Text(String),
    Epoch,
    /// The rank that wrote the file.
    Rank,
    /// The id of a single-record file.
    Id,
}

/// The numbers bound to placeholders.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Bound {
    pub(super) epoch: Option<u64>,
    pub(super) rank: Option<u64>,
    pub(super) id: Option<u64>,
}

/// A brace that does not belong to a placeholder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Malformed<'a> {
    /// The brace is not closed.
    Unclosed,
    /// The name between the braces is unknown. Contains the name with its braces.
    Unknown(&'a str),
}

/// An iterator over the pieces of a pattern's text.
#[derive(Debug, Clone)]
pub(super) struct Tokens<'a> {
    rest: &'a str,
}

impl<'a> Tokens<'a> {
    /// Creates an iterator over a whole pattern.
    pub(super) fn of(text: &'a str) -> Self {
        Self { rest: text }
    }

    /// Returns the text from the next piece on.
    pub(super) fn rest(&self) -> &'a str {
        self.rest
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Result<Token, Malformed<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let begin = self.rest.find('{').unwrap_or(self.rest.len());
        if begin > 0 {
            let (text, rest) = self.rest.split_at(begin);
            self.rest = rest;
            return Some(Ok(Token::Text(text.to_owned())));
        }
        let Some(end) = self.rest.find('}') else { return Some(Err(Malformed::Unclosed)) };
        let (name, rest) = self.rest.split_at(end + 1);
        let piece = match name {
            "{epoch}" => Token::Epoch,
            "{rank}" => Token::Rank,
            "{id}" => Token::Id,
            other => return Some(Err(Malformed::Unknown(other))),
        };
        self.rest = rest;
        Some(Ok(piece))
    }
}

/// Returns the numbers bound to placeholders if the whole `text` matches. `bound` holds the numbers that are already
/// bound.
pub(super) fn bind(pieces: &[Token], text: &str, mut bound: Bound) -> Option<Bound> {
    let mut rest = text;
    for piece in pieces {
        let number = match piece {
            Token::Text(text) => {
                rest = rest.strip_prefix(text.as_str())?;
                continue;
            }
            Token::Epoch => &mut bound.epoch,
            Token::Rank => &mut bound.rank,
            Token::Id => &mut bound.id,
        };
        // A placeholder matches all digits that follow, so text that begins with a digit cannot match after it.
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let found: u64 = rest[..digits].parse().ok()?;
        if *number.get_or_insert(found) != found {
            return None;
        }
        rest = &rest[digits..];
    }
    rest.is_empty().then_some(bound)
}
