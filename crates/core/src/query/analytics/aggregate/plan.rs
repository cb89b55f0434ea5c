//! The aggregates and groups of a request: parses them, and lists the expressions and states that they need, each once.

use crate::error::{Error, Result, UsageError};
use crate::expr::{Calculation, Call, ExpressionError, NamedText, Term, split_list};
use crate::query::analytics::aggregate::edges::Edges;
use crate::query::analytics::aggregate::groups::{GroupKind, Groups, MAX_GROUPS};
use crate::query::analytics::aggregate::states::StateKind;
use crate::query::request::time_column;
use crate::schema::{Column, DataType, EPOCH_COLUMN, Value};

/// The aggregates, for messages.
const AGGREGATES: &str = "count(), sum(e), mean(e[, w]), var(e[, w]), std(e[, w]), cov(a, b[, w]), min(e), max(e), \
                          quantile(e, share[, w]), nan(e), n_eff(w), error(count()) and error(sum(e))";

const FUNCTIONS: [&str; 12] =
    ["count", "sum", "mean", "var", "std", "cov", "min", "max", "quantile", "nan", "n_eff", "error"];

/// An aggregate, of states by their indexes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Aggregate {
    Count,
    CountError,
    Sum(usize),
    /// The root of a sum of squares.
    SumError(usize),
    WholeSum {
        state: usize,
        is_unsigned: bool,
    },
    Mean {
        sum: usize,
        weights: Option<usize>,
    },
    WholeMean(usize),
    Variance(usize),
    Deviation(usize),
    Covariance(usize),
    Extreme(usize),
    WholeExtreme {
        state: usize,
        is_unsigned: bool,
    },
    Quantile {
        state: usize,
        share: f64,
        whole: Option<bool>,
    },
    /// The number of NaN; an integer has none, and no state.
    Nan(Option<usize>),
    EffectiveCount {
        weights: usize,
        squares: usize,
    },
}

/// A compiled request.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) expressions: Vec<Calculation>,
    /// The option and the text that first need each expression, for messages.
    pub(super) origins: Vec<(&'static str, String)>,
    pub(super) states: Vec<StateKind>,
    /// Names and aggregates, in the order of the request.
    pub(super) aggregates: Vec<(String, Aggregate)>,
    pub(super) groups: Groups,
}

fn refused(option: &'static str, what: String) -> Error {
    UsageError::Option { option, what }.into()
}

/// Splits `name = text`. Returns the name if there is one, the text, and the number of characters before it.
fn named<'a>(option: &'static str, text: &'a str) -> Result<(Option<String>, &'a str, usize)> {
    let named = NamedText::of(text).map_err(|error| hinted(option, text, error))?;
    if named.data_type.is_some() {
        return Err(refused(option, format!("'{text}': the type of a result follows from its expression; state none")));
    }
    Ok((named.name, named.expression, named.skipped))
}

/// Names the aggregates if a text calls another function.
fn hinted(option: &'static str, text: &str, error: ExpressionError) -> Error {
    match error {
        ExpressionError::UnknownFunction { name, .. } if FUNCTIONS.contains(&name.to_ascii_lowercase().as_str()) => {
            refused(
                option,
                format!("'{text}': {name} is an aggregate, not part of an expression; compute with the result"),
            )
        }
        ExpressionError::UnknownFunction { name, .. } if option == "aggregates" => refused(
            option,
            format!("'{text}': there is no aggregate or function '{name}'; the aggregates are {AGGREGATES}"),
        ),
        error => refused(option, format!("'{text}': {error}")),
    }
}

impl Plan {
    /// Compiles the aggregates, with names or none, and the groups of a request.
    ///
    /// # Errors
    /// Usage errors: no aggregates, or invalid ones.
    pub(super) fn new(columns: &[Column], aggregates: &[(Option<String>, String)], by: &[String]) -> Result<Self> {
        if aggregates.is_empty() {
            return Err(refused("aggregates", format!("state at least one; the aggregates are {AGGREGATES}")));
        }
        let mut compiler = Compiler {
            columns,
            text: "",
            option: "by",
            expressions: Vec::new(),
            origins: Vec::new(),
            states: Vec::new(),
        };
        let (mut terms, mut cells) = (Vec::new(), 1usize);
        for text in by {
            let (name, kind) = compiler.group(text)?;
            if let GroupKind::Bins { edges, .. } = &kind {
                cells = cells.saturating_mul(edges.count());
            }
            let is_bins = |kind: &GroupKind| matches!(kind, GroupKind::Bins { .. });
            if terms.iter().any(|(other, of_other)| *other == name && is_bins(of_other) == is_bins(&kind)) {
                return Err(refused(
                    "by",
                    format!("two groups are called '{name}'; name one of them, as in g = {text}"),
                ));
            }
            terms.push((name, kind));
        }
        if cells > MAX_GROUPS {
            return Err(refused("by", format!("{cells} bins are more than {MAX_GROUPS}")));
        }
        let mut compiled: Vec<(String, Aggregate)> = Vec::new();
        for (name, text) in aggregates {
            let (name, text, skipped) = match name {
                Some(name) => (name.clone(), text.as_str(), 0),
                None => {
                    let (name, aggregate, skipped) = named("aggregates", text)?;
                    (name.unwrap_or_else(|| aggregate.trim().to_owned()), aggregate, skipped)
                }
            };
            compiled.push((name, compiler.aggregate(text, skipped)?));
        }
        let Compiler { expressions, origins, states, .. } = compiler;
        Ok(Self { expressions, origins, states, aggregates: compiled, groups: Groups { terms, cells } })
    }

    /// Returns the columns that the expressions read, ascending.
    pub(super) fn columns(&self) -> Vec<usize> {
        let mut read: Vec<usize> = self.expressions.iter().flat_map(Calculation::inputs).collect();
        read.sort_unstable();
        read.dedup();
        read
    }
}

/// Returns whether integers have the type `u64`, as those of a column of a query would.
fn is_unsigned(number: &Calculation) -> bool {
    number.integer_type() == Some(DataType::U64)
}

struct Compiler<'a> {
    columns: &'a [Column],
    /// The text that is being compiled, for messages.
    text: &'a str,
    option: &'static str,
    expressions: Vec<Calculation>,
    origins: Vec<(&'static str, String)>,
    states: Vec<StateKind>,
}

impl<'a> Compiler<'a> {
    /// Returns the index of an expression in the list.
    fn expression(&mut self, number: &Calculation) -> usize {
        let found = self.expressions.iter().position(|other| other.is_same(number));
        found.unwrap_or_else(|| {
            self.expressions.push(number.clone());
            self.origins.push((self.option, self.text.trim().to_owned()));
            self.expressions.len() - 1
        })
    }

    fn float(&mut self, number: &Calculation) -> usize {
        let number = if number.is_whole() { number.as_float(self.columns) } else { number.clone() };
        self.expression(&number)
    }

    /// Returns the index of a state in the list.
    fn state(&mut self, kind: StateKind) -> usize {
        self.states.iter().position(|other| *other == kind).unwrap_or_else(|| {
            self.states.push(kind);
            self.states.len() - 1
        })
    }

    fn group(&mut self, text: &'a str) -> Result<(String, GroupKind)> {
        (self.option, self.text) = ("by", text);
        let (name, rest, skipped) = named("by", text)?;
        if let Some(time) = time_column(self.columns).filter(|time| rest.trim().eq_ignore_ascii_case(time)) {
            return Ok((name.unwrap_or_else(|| time.to_owned()), GroupKind::Time));
        }
        let term = Term::parse(rest, skipped, self.columns, &["bins"]).map_err(|error| hinted("by", text, error))?;
        let called = |number: &Calculation, text: &str| match number.column() {
            Some(index) => self.columns[index].name.clone(),
            None => text.trim().to_owned(),
        };
        let form = || refused("by", format!("'{text}': write bins(expression, from, to, count)"));
        match term {
            Term::Number(number) if number.is_epoch() => {
                Ok((name.unwrap_or_else(|| EPOCH_COLUMN.to_owned()), GroupKind::Epoch))
            }
            Term::Number(number) if number.is_whole() => {
                let name = name.unwrap_or_else(|| called(&number, rest));
                let is_unsigned = is_unsigned(&number);
                Ok((name, GroupKind::Whole { expression: self.expression(&number), is_unsigned }))
            }
            Term::Number(_) => {
                let inner = rest.trim();
                let what = format!("'{inner}' is a float, which groups by bins: bins({inner}, from, to, count)");
                Err(refused("by", what))
            }
            Term::Call(Call { arguments, .. }) => {
                let [Term::Number(number), Term::Number(from), Term::Number(to), Term::Number(count)] = &arguments[..]
                else {
                    return Err(form());
                };
                let (Some(from), Some(to), Some(Value::Int(count))) = (from.literal(), to.literal(), count.literal())
                else {
                    return Err(form());
                };
                if !(1..=MAX_GROUPS as i128).contains(&count) {
                    return Err(refused("by", format!("'{text}': there may be 1 to {MAX_GROUPS} bins, not {count}")));
                }
                let data_type = number.column().map_or(DataType::F64, |index| self.columns[index].data_type);
                let edges = Edges::new(from.as_f64(), to.as_f64(), count as usize, data_type);
                let edges = edges.map_err(|what| refused("by", format!("'{text}': {what}")))?;
                let inside = rest.split_once('(').and_then(|(_, inside)| inside.trim_end().strip_suffix(')'));
                let name = name.unwrap_or_else(|| called(number, split_list(inside.unwrap_or(rest))[0]));
                Ok((name, GroupKind::Bins { expression: self.expression(number), edges }))
            }
        }
    }

    fn aggregate(&mut self, text: &'a str, skipped: usize) -> Result<Aggregate> {
        self.text = text;
        let term =
            Term::parse(text, skipped, self.columns, &FUNCTIONS).map_err(|error| hinted("aggregates", text, error))?;
        match term {
            Term::Call(call) => self.call(&call),
            Term::Number(_) => Err(self.unfit(&format!("write an aggregate of it; the aggregates are {AGGREGATES}"))),
        }
    }

    fn unfit(&self, what: &str) -> Error {
        refused("aggregates", format!("'{}': {what}", self.text))
    }

    fn call(&mut self, call: &Call) -> Result<Aggregate> {
        if call.name == "error" {
            return self.error(&call.arguments);
        }
        let mut numbers = Vec::with_capacity(call.arguments.len());
        for argument in &call.arguments {
            match argument {
                Term::Number(number) => numbers.push(number),
                Term::Call(inner) => {
                    let (name, position) = (&inner.name, inner.position);
                    return Err(self.unfit(&format!("at character {position}: {name} is an aggregate, not a number")));
                }
            }
        }
        Ok(match (call.name.as_str(), &numbers[..]) {
            ("count", []) => Aggregate::Count,
            ("sum", [value]) => self.sum(value),
            ("mean", [value]) if value.is_whole() => {
                let value = self.expression(value);
                Aggregate::WholeMean(self.state(StateKind::Whole(value)))
            }
            ("mean", [value]) => {
                let value = self.float(value);
                Aggregate::Mean { sum: self.state(StateKind::Sum(value)), weights: None }
            }
            ("mean", [value, weight]) => {
                let (value, weight) = (self.float(value), self.float(weight));
                let sum = self.state(StateKind::Products(value, weight));
                Aggregate::Mean { sum, weights: Some(self.state(StateKind::Sum(weight))) }
            }
            ("var", [value, weights @ ..]) if weights.len() < 2 => {
                Aggregate::Variance(self.moments(value, value, weights))
            }
            ("std", [value, weights @ ..]) if weights.len() < 2 => {
                Aggregate::Deviation(self.moments(value, value, weights))
            }
            ("cov", [a, b, weights @ ..]) if weights.len() < 2 => Aggregate::Covariance(self.moments(a, b, weights)),
            ("min", [value]) => self.extreme(value, StateKind::Least),
            ("max", [value]) => self.extreme(value, StateKind::Greatest),
            ("quantile", [value, share, weights @ ..]) if weights.len() < 2 => self.quantile(value, share, weights)?,
            ("nan", [value]) if value.is_whole() => Aggregate::Nan(None),
            ("nan", [value]) => {
                let value = self.expression(value);
                Aggregate::Nan(Some(self.state(StateKind::Nan(value))))
            }
            ("n_eff", [weight]) => {
                let weight = self.float(weight);
                let squares = self.state(StateKind::Products(weight, weight));
                Aggregate::EffectiveCount { weights: self.state(StateKind::Sum(weight)), squares }
            }
            (name, _) => {
                return Err(self.unfit(&format!("{name} takes other arguments; the aggregates are {AGGREGATES}")));
            }
        })
    }

    fn error(&mut self, arguments: &[Term]) -> Result<Aggregate> {
        match arguments {
            [Term::Call(Call { name, arguments, .. })] if name == "count" && arguments.is_empty() => {
                Ok(Aggregate::CountError)
            }
            [Term::Call(Call { name, arguments, .. })] if name == "sum" => match &arguments[..] {
                [Term::Number(value)] => {
                    let value = self.float(value);
                    Ok(Aggregate::SumError(self.state(StateKind::Products(value, value))))
                }
                _ => Err(self.unfit("sum takes one number")),
            },
            _ => Err(self.unfit("write error(count()) or error(sum(e))")),
        }
    }

    fn sum(&mut self, value: &Calculation) -> Aggregate {
        let (is_whole, is_unsigned) = (value.is_whole(), is_unsigned(value));
        let value = self.expression(value);
        match is_whole {
            true => Aggregate::WholeSum { state: self.state(StateKind::Whole(value)), is_unsigned },
            false => Aggregate::Sum(self.state(StateKind::Sum(value))),
        }
    }

    fn moments(&mut self, a: &Calculation, b: &Calculation, weights: &[&Calculation]) -> usize {
        let (a, b) = (self.float(a), self.float(b));
        let weight = weights.first().map(|weight| self.float(weight));
        self.state(StateKind::Moments { a, b, weight })
    }

    fn extreme(&mut self, value: &Calculation, kind: fn(usize) -> StateKind) -> Aggregate {
        let (is_whole, is_unsigned) = (value.is_whole(), is_unsigned(value));
        let value = self.expression(value);
        let state = self.state(kind(value));
        if is_whole { Aggregate::WholeExtreme { state, is_unsigned } } else { Aggregate::Extreme(state) }
    }

    fn quantile(&mut self, value: &Calculation, share: &Calculation, weights: &[&Calculation]) -> Result<Aggregate> {
        let Some(share) = share.literal().map(Value::as_f64).filter(|share| (0.0..=1.0).contains(share)) else {
            return Err(self.unfit("the share of a quantile is a number from 0 to 1"));
        };
        let is_unsigned = is_unsigned(value);
        let whole = value.is_whole().then_some(is_unsigned);
        let value = self.expression(value);
        let weight = weights.first().map(|weight| self.float(weight));
        let state = self.state(StateKind::Values { value, is_unsigned, weight });
        Ok(Aggregate::Quantile { state, share, whole })
    }
}
