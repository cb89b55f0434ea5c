//! Tests that any text returns a result or an error, without a panic, a stack overflow or unbounded work.

use proptest::prelude::*;
use proptest::sample::select;

use super::super::{ComputedColumn, Derivation, ExpressionError, Predicate};
use super::schema;

fn parse(text: &str) -> Result<Predicate, ExpressionError> {
    Predicate::parse(text, &schema())
}

#[test]
fn deep_nesting_is_refused_not_followed() {
    let nested = format!("{}1{} < 2", "(".repeat(100_000), ")".repeat(100_000));
    assert!(matches!(parse(&nested), Err(ExpressionError::TooDeep { position: 61 })));
    let calls = format!("{}single{} < 2", "abs(".repeat(100_000), ")".repeat(100_000));
    assert!(matches!(parse(&calls), Err(ExpressionError::TooDeep { .. })));
    for depth in [200, 900, 100_000] {
        let negations = format!("{} TRUE", "NOT ".repeat(depth));
        assert!(parse(&negations).is_err_and(|error| matches!(error, ExpressionError::TooDeep { .. })), "{depth}");
        let signs = format!("single < {}1", "- ".repeat(depth));
        assert!(parse(&signs).is_err_and(|error| matches!(error, ExpressionError::TooDeep { .. })), "{depth}");
        let sum = format!("single < {}1", "1 + single * ".repeat(depth));
        assert!(parse(&sum).is_err(), "{depth}");
        assert!(parse(&"NOT 1 = ".repeat(depth)).is_err(), "{depth}");
        assert!(parse(&"- 1 * ".repeat(depth)).is_err(), "{depth}");
    }
}

#[test]
fn what_the_limits_allow_fits_a_small_stack() {
    let nested = format!("{}single{} < 2", "abs(".repeat(60), ")".repeat(60));
    let negated = format!("{}single < 2{}", "NOT (".repeat(60), ")".repeat(60));
    let signed = format!("{}single{} < 2", "-(".repeat(58), ")".repeat(58));
    let chained = vec!["single < 2"; 500].join(" AND ");
    let summed = format!("{} < 2", vec!["single"; 190].join(" + "));
    let texts = [nested, negated, signed, chained, summed];
    // The threads of a simulation have small stacks. Frames of code that is not optimised are several times larger.
    let stack_bytes = if cfg!(debug_assertions) { 8 << 20 } else { 1 << 20 };
    let thread = std::thread::Builder::new().stack_size(stack_bytes).spawn(move || {
        for text in texts {
            let predicate = parse(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
            predicate.prune(0, &|_| None);
            assert_eq!(super::evaluate(&predicate, 0, &[super::Row::ZERO]), [true], "{text}");
            parse(&predicate.to_string()).unwrap();
        }
    });
    thread.unwrap().join().unwrap();
}

#[test]
fn long_chains_are_refused_and_long_lists_are_not() {
    let chain = vec!["single < 2"; 100_000].join(" AND ");
    assert!(matches!(parse(&chain), Err(ExpressionError::TooLong { .. })));
    let chain = vec!["int<2"; 20_000].join(" OR ");
    assert_eq!(parse(&chain).unwrap_err(), ExpressionError::TooManyOperators);
    let list: Vec<String> = (0..100_000).map(|value| (value - 50_000).to_string()).collect();
    let predicate = parse(&format!("long IN ({})", list.join(","))).unwrap();
    let rows = [49_999, 50_000, -50_000].map(|long| super::Row { long, ..super::Row::ZERO });
    assert_eq!(super::evaluate(&predicate, 0, &rows), [true, false, true]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn any_text_is_answered(text in "\\PC{0,60}") {
        // Only termination is tested.
        let _ = parse(&text).map(|predicate| predicate.to_string());
        let _ = Derivation::parse(&text, schema().columns(), &|_| Some(1.0)).map(|derivation| derivation.to_string());
        let _ = ComputedColumn::parse(&text, &schema());
    }

    #[test]
    fn any_row_of_words_and_signs_is_answered(
        words in prop::collection::vec(select(&[
            "single", "big", "epoch", "header.x0", "1", "2.5e3", ".5", "1e", "9e999", "(", ")", ",", "+", "-", "--", "*", "/", "%", "//", "&", "|", "~", "<<", ">>", "**", "if(", "least(", "pow(", "log10(", "sign(", "^",
            "<", "=", "==", "<>", "!", "and", "or", "not", "between", "in", "in (", "abs(", "isnan(", "bits_i32(", "nan", "inf",
            "true", "null", "is", "case", "when", "select", "'", "\"", "cast(", "exists(", "interval", "::", "->", "[", "]", "$1",
            "?", "x'", ";", "/*", "*/", "\n", "payload", "date '2020-01-01'", "array[", "{", "}", "like", "collate", "at time zone",
        ][..]), 0..14),
        spaced in any::<bool>(),
    ) {
        let text = words.join(if spaced { " " } else { "" });
        if let Ok(predicate) = parse(&text) {
            // The normalized text parses again.
            let shown = predicate.to_string();
            let again = parse(&shown).map_err(|error| TestCaseError::fail(format!("{text} shown as {shown}: {error}")))?;
            prop_assert_eq!(again.to_string(), shown);
        }
        let _ = Derivation::parse(&format!("d = {text}"), schema().columns(), &|_| Some(1.0));
        let named = ComputedColumn::parse(&format!("d = {text}"), &schema());
        let whole = ComputedColumn::parse(&text, &schema());
        // A text with a name of its own begins with one.
        if let (Ok(named), Ok(whole)) = (named, whole) {
            prop_assert_eq!(named.column().data_type, whole.column().data_type, "{}", text);
        }
    }
}
