//! Names and types that texts give to expressions: `gamma = sqrt(1 + ux*ux)`, `id:u64 = id // 2`.

use crate::schema::DataType;

use super::ExpressionError;
use super::tokens::{Kind, SourceText, tokens};

/// An expression with the name and the type that its text gives it.
#[derive(Debug)]
pub(crate) struct NamedText<'a> {
    pub(crate) name: Option<String>,
    pub(crate) data_type: Option<DataType>,
    pub(crate) expression: &'a str,
    /// Number of characters before the expression.
    pub(crate) skipped: usize,
}

impl<'a> NamedText<'a> {
    /// Splits `name = expression` and `name:type = expression`. A text that begins otherwise is an expression.
    ///
    /// # Errors
    /// [`ExpressionError::DerivationType`] for a type that is not a number's.
    pub(crate) fn of(text: &'a str) -> Result<Self, ExpressionError> {
        let unnamed = Self { name: None, data_type: None, expression: text, skipped: 0 };
        let Some((head, expression)) = text.split_once('=') else { return Ok(unnamed) };
        let (name, type_name) = head.split_once(':').map_or((head, None), |(name, of)| (name, Some(of.trim())));
        let named = tokens(&SourceText::new(name, 0));
        let name = match named.as_deref() {
            Ok([name, _]) if !expression.starts_with('=') => match &name.kind {
                Kind::Word(name) => (*name).to_owned(),
                Kind::Quoted(name) => name.clone(),
                _ => return Ok(unnamed),
            },
            _ => return Ok(unnamed),
        };
        let data_type = type_name.map(|type_name| number_type(&name, type_name)).transpose()?;
        Ok(Self { name: Some(name), data_type, expression, skipped: head.chars().count() + 1 })
    }
}

/// Returns whether a text is one name, and therefore no expression.
pub(crate) fn is_name(text: &str) -> bool {
    let tokens = tokens(&SourceText::new(text, 0));
    tokens.is_ok_and(|tokens| matches!(tokens.as_slice(), [name, _] if matches!(name.kind, Kind::Word(_))))
}

/// Parses the type of a column.
///
/// # Errors
/// [`ExpressionError::DerivationType`] for a type that is not a number's.
pub(super) fn number_type(name: &str, type_name: &str) -> Result<DataType, ExpressionError> {
    let parsed = type_name.parse().ok().filter(|parsed: &DataType| parsed.is_numeric());
    parsed.ok_or_else(|| ExpressionError::DerivationType { name: name.to_owned(), type_name: type_name.to_owned() })
}

/// Splits lists such as `id, m = least(ux, uy)` at their commas, except those within parentheses or quotes. If one of
/// these does not end, every comma of the list separates.
pub fn split_list(list: &str) -> Vec<&str> {
    let (mut items, mut start, mut depth, mut quote) = (Vec::new(), 0, 0usize, None);
    for (place, character) in list.char_indices() {
        match (quote, character) {
            (Some(end), _) => quote = quote.filter(|_| character != end),
            (None, '"' | '`' | '\'') => quote = Some(character),
            (None, '(') => depth += 1,
            (None, ')') => depth = depth.saturating_sub(1),
            (None, ',') if depth == 0 => {
                items.push(&list[start..place]);
                start = place + 1;
            }
            _ => {}
        }
    }
    items.push(&list[start..]);
    let items = if depth > 0 || quote.is_some() { list.split(',').collect() } else { items };
    items.into_iter().map(str::trim).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_in_parentheses_and_quotes_do_not_separate() {
        assert_eq!(split_list("id, ux"), ["id", "ux"]);
        assert_eq!(
            split_list("id,m = least(ux, (uy), 2), \"a,b\" ,c"),
            ["id", "m = least(ux, (uy), 2)", "\"a,b\"", "c"]
        );
        assert_eq!(split_list("a(b,c"), ["a(b", "c"]);
        assert_eq!(split_list("a\"b,c)"), ["a\"b", "c)"]);
        assert_eq!(split_list(""), [""]);
    }

    #[test]
    fn a_name_is_a_word_or_quoted() {
        let split = |text| NamedText::of(text).map(|named| (named.name, named.data_type, named.expression)).unwrap();
        let name = |name: &str| Some(name.to_owned());
        assert_eq!(split("g = x + 1"), (name("g"), None, " x + 1"));
        assert_eq!(split("\"my g\":f32 =x"), (name("my g"), Some(DataType::F32), "x"));
        for text in ["x + 1", "a == b", "x >= 1", "if(a = b, 1, 0)", "= x"] {
            assert_eq!(split(text), (None, None, text));
        }
        assert!(matches!(NamedText::of("g:text = x"), Err(ExpressionError::DerivationType { .. })));
    }
}
