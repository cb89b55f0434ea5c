//! Lists of columns on the command line.

/// Splits lists such as `id,m = least(ux, uy)` at their commas, except those within parentheses or quotes. If one of
/// these does not end, every comma of the list separates.
pub(super) fn split(lists: &[String]) -> impl Iterator<Item = &str> {
    lists.iter().flat_map(|list| items(list)).map(str::trim)
}

fn items(list: &str) -> Vec<&str> {
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
    if depth > 0 || quote.is_some() { list.split(',').collect() } else { items }
}

#[cfg(test)]
mod tests {
    fn split(list: &str) -> Vec<String> {
        super::split(&[list.to_owned()]).map(str::to_owned).collect()
    }

    #[test]
    fn commas_in_parentheses_and_quotes_do_not_separate() {
        assert_eq!(split("id, ux"), ["id", "ux"]);
        assert_eq!(split("id,m = least(ux, (uy), 2), \"a,b\" ,c"), ["id", "m = least(ux, (uy), 2)", "\"a,b\"", "c"]);
        assert_eq!(split("a(b,c"), ["a(b", "c"]);
        assert_eq!(split("a\"b,c)"), ["a\"b", "c)"]);
        assert_eq!(split(""), [""]);
    }
}
