//! Random expressions over random rows. Evaluation is compared with the naive interpreter, and pruning with evaluation.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::super::{ColumnBounds, NanPresence, Predicate, TruthValue};
use super::naive::{TestCondition, TestNumber};
use super::{Row, evaluate, schema, summary};

const SPECIAL: [f64; 18] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.1,
    2.5,
    3.0,
    7.0,
    f64::NAN,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::MAX,
    f64::MIN,
    5e-324,
    1e-45,
    3.402_823_5e38,
    9_007_199_254_740_992.0,
    1.844_674_407_370_955_2e19,
];

const WHOLE: [i128; 17] = [
    0,
    1,
    -1,
    2,
    3,
    7,
    255,
    i32::MIN as i128,
    i32::MAX as i128,
    i64::MIN as i128,
    i64::MAX as i128,
    u64::MAX as i128,
    9_007_199_254_740_993,
    1 << 70,
    63,
    i128::MAX,
    -i128::MAX,
];

fn float() -> impl Strategy<Value = f64> {
    prop_oneof![4 => select(&SPECIAL[..]), 3 => -4.0..4.0f64, 1 => any::<f64>(), 2 => Just(f64::NAN)]
}

pub(super) fn rows() -> impl Strategy<Value = Vec<Row>> {
    // There are few distinct kinds of rows, so a batch often has rows of one kind, for which pruning is effective.
    let near = |anchor: i128| (-2i128..=2).prop_map(move |step| anchor.saturating_add(step));
    let whole = prop_oneof![3 => -4i128..8, 2 => select(&WHOLE[..]).prop_flat_map(near)];
    let row = (float(), float(), whole.clone(), whole.clone(), whole.clone(), whole)
        .prop_map(|(single, double, small, int, long, big)| Row {
            single: single as f32,
            double,
            small: small.clamp(0, 255) as u8,
            int: int.clamp(i32::MIN.into(), i32::MAX.into()) as i32,
            long: long.clamp(i64::MIN.into(), i64::MAX.into()) as i64,
            big: big.clamp(0, u64::MAX.into()) as u64,
        })
        .boxed();
    prop_oneof![
        vec(row.clone(), 1..6),
        // The repeated rows exceed one word of the masks, and one chunk.
        (vec(row.clone(), 1..4), 60usize..70).prop_map(|(rows, times)| rows.repeat(times)),
        (vec(row, 2..4), select(&[512usize, 513][..])).prop_map(|(rows, times)| rows.repeat(times)),
    ]
}

/// Integers of columns and literals.
pub(super) fn whole() -> impl Strategy<Value = TestNumber> {
    use TestNumber::*;
    let columns = select(&[Small, Small, Int, Int, Long, Big, Epoch][..]);
    let leaf = prop_oneof![
        5 => columns,
        1 => select(&WHOLE[..]).prop_map(Whole),
        2 => (-2..10i128).prop_map(Whole),
    ];
    leaf.prop_recursive(3, 8, 2, |inner| {
        let sign = select(&["+", "-", "*", "%", "//", "&", "|", "<<", ">>", "**"][..]);
        let pair = select(&["least", "greatest", "pow"][..]);
        let function = select(&["abs", "sign", "round", "floor"][..]);
        let any = prop_oneof![
            2 => branches(inner.clone()),
            1 => (pair, inner.clone(), inner.clone())
                .prop_map(|(name, left, right)| Pair(name, Box::new(left), Box::new(right))),
            1 => (function, inner.clone()).prop_map(|(name, operand)| Call(name, Box::new(operand))),
            6 => (sign, inner.clone(), inner.clone())
                .prop_map(|(sign, left, right)| Arithmetic(sign, Box::new(left), Box::new(right))),
            1 => inner.clone().prop_map(|operand| Negative(Box::new(operand))),
            1 => inner.prop_map(|operand| Inverse(Box::new(operand))),
        ];
        any.prop_filter("a negative literal as exponent makes a float", TestNumber::is_whole)
    })
}

/// An `if` of some numbers.
fn branches(number: impl Strategy<Value = TestNumber> + Clone + 'static) -> impl Strategy<Value = TestNumber> {
    use TestCondition::{And, Compare, In, IsNan, Not};
    let sign = select(&["=", "<>", "<", "<=", ">", ">="][..]);
    let compared =
        (sign, number.clone(), number.clone()).prop_map(|(sign, left, right)| Compare(sign, left, right)).boxed();
    let condition = prop_oneof![
        4 => compared.clone(),
        1 => (compared.clone(), compared.clone()).prop_map(|(left, right)| And(Box::new(left), Box::new(right))),
        1 => compared.prop_map(|condition| Not(Box::new(condition))),
        1 => (any::<bool>(), number.clone(), vec(number.clone(), 1..3))
            .prop_map(|(negated, value, list)| In(negated, value, list)),
        1 => number.clone().prop_map(IsNan),
    ];
    (condition, number.clone(), number).prop_map(|(condition, then, otherwise)| {
        TestNumber::If(Box::new(condition), Box::new(then), Box::new(otherwise))
    })
}

fn number() -> impl Strategy<Value = TestNumber> {
    use TestNumber::*;
    let columns = select(&[Single, Single, Double, Double, Small, Int, Long, Big, Epoch, Bits][..]);
    let leaf = prop_oneof![
        6 => columns,
        2 => select(&WHOLE[..]).prop_map(Whole),
        2 => (0..10i128).prop_map(Whole),
        2 => float().prop_map(Decimal),
    ];
    leaf.prop_recursive(3, 8, 2, |inner| {
        let sign = select(&["+", "-", "*", "/", "%", "//", "**"][..]);
        let pair = select(&["least", "greatest", "pow", "atan2"][..]);
        let function = select(&["abs", "sqrt", "floor", "round", "sign", "exp", "log", "log10", "sin", "cos"][..]);
        let exponent = select(&[-2i128, -1, 0, 1, 2, 3, 5][..]);
        let root = select(&[-2.5, -1.0, 0.5, 1.5, 2.0][..]);
        prop_oneof![
            2 => branches(inner.clone()),
            1 => (inner.clone(), exponent)
                .prop_map(|(base, exponent)| Arithmetic("**", Box::new(base), Box::new(Whole(exponent)))),
            1 => (inner.clone(), root)
                .prop_map(|(base, exponent)| Arithmetic("**", Box::new(base), Box::new(Decimal(exponent)))),
            1 => (pair, inner.clone(), inner.clone())
                .prop_map(|(name, left, right)| Pair(name, Box::new(left), Box::new(right))),
            4 => (sign, inner.clone(), inner.clone())
                .prop_map(|(sign, left, right)| Arithmetic(sign, Box::new(left), Box::new(right))),
            3 => whole(),
            1 => inner.clone().prop_map(|same| Arithmetic("*", Box::new(same.clone()), Box::new(same))),
            3 => (function, inner.clone()).prop_map(|(name, operand)| Call(name, Box::new(operand))),
            1 => inner.prop_map(|operand| Negative(Box::new(operand))),
        ]
    })
}

fn condition() -> impl Strategy<Value = TestCondition> {
    use TestCondition::*;
    let sign = select(&["=", "==", "<>", "!=", "<", "<=", ">", ">="][..]);
    let leaf = prop_oneof![
        1 => any::<bool>().prop_map(Literal),
        8 => (sign, number(), number()).prop_map(|(sign, left, right)| Compare(sign, left, right)),
        3 => (any::<bool>(), number(), number(), number())
            .prop_map(|(negated, value, low, high)| Between(negated, value, low, high)),
        3 => (any::<bool>(), number(), vec(number(), 1..5)).prop_map(|(negated, value, list)| In(negated, value, list)),
        1 => number().prop_map(IsNan),
    ];
    // Pruning is most effective on plain comparisons on one column.
    let plain = (
        select(&["<", "<=", ">", ">=", "=", "<>"][..]),
        select(&[TestNumber::Single, TestNumber::Double][..]),
        float(),
    )
        .prop_map(|(sign, column, literal)| Compare(sign, column, TestNumber::Decimal(literal)));
    prop_oneof![2 => leaf, 1 => plain].prop_recursive(3, 6, 2, |inner| {
        prop_oneof![
            2 => (inner.clone(), inner.clone()).prop_map(|(left, right)| And(Box::new(left), Box::new(right))),
            2 => (inner.clone(), inner.clone()).prop_map(|(left, right)| Or(Box::new(left), Box::new(right))),
            1 => inner.prop_map(|operand| Not(Box::new(operand))),
        ]
    })
}

fn agrees(truth: TruthValue, found: &[bool]) -> bool {
    match truth {
        TruthValue::Never => found.iter().all(|held| !held),
        TruthValue::Maybe => true,
        TruthValue::Always => found.iter().all(|held| *held),
    }
}

/// Returns wider bounds: without a NaN count, or `None` for the column `missing`.
fn vaguer(bounds: Option<ColumnBounds>, index: usize, missing: usize) -> Option<ColumnBounds> {
    let bounds = bounds?;
    match index == missing {
        true => None,
        false if bounds.nan == NanPresence::All => Some(ColumnBounds { range: None, nan: NanPresence::Unknown }),
        false => Some(ColumnBounds { nan: NanPresence::Unknown, ..bounds }),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn evaluation_agrees_with_the_naive_interpreter_and_pruning_with_evaluation(
        condition in condition(),
        rows in rows(),
        epoch in select(&[0u64, 7, u64::MAX][..]),
        missing in 0usize..8,
    ) {
        let text = condition.text();
        let predicate = Predicate::parse(&text, &schema()).map_err(|error| TestCaseError::fail(format!("{text}: {error}")))?;
        let found = evaluate(&predicate, epoch, &rows);
        let expected: Vec<bool> = rows.iter().map(|row| condition.holds(epoch, row)).collect();
        prop_assert_eq!(&found, &expected, "{}", text);

        let truth = predicate.prune(epoch, &|index| summary(&rows, index));
        prop_assert!(agrees(truth, &found), "{text}: {truth:?} but {found:?}");
        let truth = predicate.prune(epoch, &|index| vaguer(summary(&rows, index), index, missing));
        prop_assert!(agrees(truth, &found), "{text}, little known: {truth:?} but {found:?}");

        let shown = predicate.to_string();
        let again = Predicate::parse(&shown, &schema()).map_err(|error| TestCaseError::fail(format!("{shown}: {error}")))?;
        prop_assert_eq!(again.to_string(), shown.clone());
        prop_assert_eq!(evaluate(&again, epoch, &rows), expected, "{} shown as {}", text, shown);
    }
}
