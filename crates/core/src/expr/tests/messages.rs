//! Tests of each message, with the position in it.

use std::sync::Arc;

use arrow_array::{ArrayRef, Float32Array, Float64Array};

use super::super::{ExpressionError, Predicate};
use super::schema;
use crate::schema::{Column, DataType, Schema};

fn message(text: &str) -> String {
    match Predicate::parse(text, &schema()) {
        Ok(predicate) => panic!("{text} was understood as {predicate}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn each_mistake_has_its_message() {
    for (text, beginning) in [
        ("", "the expression is empty"),
        ("  \n", "the expression is empty"),
        (
            "energy > 1",
            "at character 1: there is no column 'energy'; the columns are single, double, small, int, long, big",
        ),
        ("single > 1 and\n nope < 2", "at character 17: there is no column 'nope'"),
        (
            "single > payload",
            "at character 10: column 'payload' is fixed_bytes(3), which can be stored and returned, and compared by = and IN",
        ),
        ("isnan(PAYLOAD)", "at character 7: column 'payload' is fixed_bytes(3)"),
        (
            "cube(single) > 1",
            "at character 1: there is no function 'cube'; the functions are abs, atan2, bits_i32, cos, exp, floor, \
             greatest, if, isnan, least, log, log10, pow, round, sign, sin and sqrt",
        ),
        ("if(single > 1, 2) = 2", "at character 1: if takes a condition and two numbers, not 2"),
        ("if(single, 1, 2) = 2", "at character 4, near 'single, 1, 2) = 2': expected a condition"),
        ("if(single > 1, single > 2, 2) = 2", "at character 16, near 'single > 2, 2) = 2': expected a number"),
        ("if(single > 1 & int < 2, 1, 2) = 2", "at character 13, near '1 & int < 2, 1, 2) = 2': '&' binds more"),
        ("least(1) > single", "at character 1: least takes two or more arguments, not 1"),
        ("pow(single) > 1", "at character 1: pow takes two arguments, not 1"),
        ("atan2(single, 1, 2) > 1", "at character 1: atan2 takes two arguments, not 3"),
        ("1 < a.sqrt(single)", "at character 5: there is no function 'a.sqrt'"),
        ("sqrt(single, 2) > 1", "at character 1: sqrt takes one argument, not 2"),
        ("1 < abs()", "at character 5: abs takes one argument, not 0"),
        ("bits_i32(int) > 1", "at character 1: bits_i32 takes an f32 column by name; 'int' is not one"),
        ("bits_i32(single + 1) > 1", "at character 1: bits_i32 takes an f32 column by name; 'single + 1' is not one"),
        ("single", "at character 1, near 'single': expected a condition"),
        ("single > 1 and int + 1", "at character 16, near 'int + 1': expected a condition"),
        ("not 3", "at character 5, near '3': expected a condition"),
        ("(single > 1) + 2 > 1", "at character 2, near 'single > 1) + 2 > 1': expected a number"),
        ("1 < single < 3", "at character 1, near '1 < single < 3': expected a number"),
        ("single = TRUE", "at character 10, near 'TRUE': expected a number"),
        (
            "single > header.x0",
            "at character 10: 'header.x0' is a constant of source files; predicates can use columns only",
        ),
        ("single > 1 2", "at character 12, near '2': expected an operator"),
        ("single > 1)", "at character 11, near ')': expected an operator"),
        ("single >", "at character 9, near 'the end': expected an expression"),
        ("single in ()", "at character 12, near ')': expected an expression, found )"),
        ("(single > 1", "at character 12, near 'the end': "),
        ("single > 'a'", "at character 10, near ''a'': not supported"),
        ("single > 'a", "at character 10, near ''a': "),
        ("single > 1 -- 2", "at character 12, near '-- 2': this starts a comment in SQL"),
        ("single > /* a */ 2", "at character 10, near '/* a */ 2': this starts a comment in SQL"),
        ("single ^ 2 > 1", "at character 8, near '^ 2 > 1': not supported in an expression; write **"),
        ("single ** > 1", "at character 11, near '> 1': expected an expression, found >"),
        ("single && 2", "at character 8, near '&& 2': not supported"),
        (
            "single >= 1 and (single, int) > 2",
            "at character 18, near 'single, int) > 2': column 'single' is f32, but tuples",
        ),
        (
            "(int, long) > (2, 3)",
            "at character 2, near 'int, long) > (2, 3)': tuples can be compared with =, <> and IN only",
        ),
        ("(int, long) = (2, 3, 4)", "at character 16, near '2, 3, 4)': expected a tuple of 2 values"),
        ("(int, long) IN (2, 3)", "at character 17, near '2, 3)': expected a tuple of 2 values"),
        ("(int, nope) = (2, 3)", "at character 7: there is no column 'nope'"),
        ("(int, 3) = (2, 3)", "at character 13, near '2, 3)': expected a column in the tuple"),
        ("(int, long) = (2, 3.5)", "at character 19, near '3.5)': expected an integer for column 'long'"),
        ("(int, epoch) = (2, 3)", "at character 7: there is no column 'epoch'"),
        ("payload = x'0a1b'", "at character 11, near 'x'0a1b'': expected a literal of 3 bytes for column 'payload'"),
        ("payload = 7", "at character 11, near '7': expected a literal of 3 bytes for column 'payload'"),
        ("payload IN (x'0a1b2c', x'0a1b2')", "at character 24, near 'x'0a1b2')': expected a literal of 3 bytes"),
        ("int = x'0a1b2c'", "at character 7, near 'x'0a1b2c'': byte strings can be compared with fixed_bytes columns"),
        ("payload BETWEEN x'00' AND x'01'", "at character 1: column 'payload' is fixed_bytes(3)"),
        ("single IS NULL", "at character 8, near 'IS NULL': expected an operator"),
        ("single in (select 1)", "at character 19, near '1)': "),
        ("single > 0x1F", "at character 10, near '0x1F': byte strings can be compared with fixed_bytes columns only"),
        ("single > 10L", "at character 10, near '10L': not supported"),
    ] {
        assert!(message(text).starts_with(beginning), "{text:?} gives {:?}", message(text));
    }
}

#[test]
fn positions_count_characters_not_bytes() {
    assert!(message("int = 1 OR ä > 1").starts_with("at character 12: there is no column 'ä'"));
    assert!(message("\"ä\" > 1 and x < 2").starts_with("at character 1: there is no column 'ä'"));
}

#[test]
fn limits_are_told() {
    assert!(message(&"(".repeat(70)).starts_with("at character 61: the expression nests too deeply"));
    assert!(
        message(&vec!["int<2"; 2_000].join(" OR ")).starts_with("the expression has more than 1000 operators; use IN")
    );
    assert!(message(&" ".repeat(2_000_000)).starts_with("the expression has 2000000 bytes; the maximum is 1048576"));
}

#[test]
fn ambiguity_needs_names_that_differ_only_in_case() {
    use super::super::Derivation;
    let inputs = [Column::new("Ux", DataType::F32), Column::new("uX", DataType::F32)];
    let error = Derivation::parse("a = ux + 1", &inputs, &|_| None).unwrap_err();
    assert_eq!(error.to_string(), "at character 5: 'ux' is ambiguous: Ux, uX; use the exact name");
    assert_eq!(Derivation::parse("a = uX + 1", &inputs, &|_| None).unwrap().inputs(), [1]);
}

#[test]
fn input_that_does_not_fit_is_refused() {
    let schema = Schema::new(vec![Column::new("energy", DataType::F32)], "energy").unwrap();
    let predicate = Predicate::parse("energy > 1", &schema).unwrap();
    let single: ArrayRef = Arc::new(Float32Array::from(vec![1.0, 2.0]));
    let double: ArrayRef = Arc::new(Float64Array::from(vec![1.0, 2.0]));
    let nulls: ArrayRef = Arc::new(Float32Array::from(vec![Some(1.0), None]));
    assert!(predicate.input(0, 2, std::slice::from_ref(&single)).is_ok());
    let refused = |rows, arrays: &[ArrayRef]| match predicate.input(0, rows, arrays) {
        Err(ExpressionError::Input(what)) => what,
        other => panic!("{other:?}"),
    };
    assert!(refused(2, &[]).ends_with("0 arrays for 1 columns"));
    assert!(refused(3, std::slice::from_ref(&single)).ends_with("column 0 has 2 values and 0 nulls, not 3 values"));
    assert!(refused(2, &[double]).ends_with("column 0 is f32, the array Float64"));
    assert!(refused(2, &[nulls]).ends_with("column 0 has 2 values and 1 nulls, not 2 values"));
}
