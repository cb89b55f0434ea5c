//! A choice of epochs: labels, ranges with strides, and epochs counted from the last one.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use super::paths::{EpochRange, parse_epoch};
use crate::error::{Error, Result, UsageError};

/// An end of a range, or an epoch by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Label(u64),
    /// The number of epochs that follow it.
    FromLast(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Term {
    /// An epoch that must exist.
    One(End),
    /// The existing epochs of a range, both ends included, whose labels are multiples of the stride from its first.
    Range { first: End, last: End, stride: u64 },
}

/// A choice of epochs, as text: `200`, `0..4000`, `0..4000..100`, `500,700`, `last`, `-1`. Epochs that are named by
/// themselves must exist; a range has those that exist.
///
/// ```
/// use turbidite::store::EpochSet;
/// let chosen: EpochSet = "0..4000..100,last".parse()?;
/// # Ok::<(), turbidite::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EpochSet {
    terms: Vec<Term>,
}

/// Epochs from `first` to `last`, a stride apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpochSpan {
    /// The first epoch.
    pub first: u64,
    /// The last epoch, which is included.
    pub last: u64,
    /// The distance between epochs, at least 1.
    pub stride: u64,
}

impl EpochSpan {
    /// Returns the first epoch, the last one and the stride.
    pub fn parts(&self) -> [u64; 3] {
        [self.first, self.last, self.stride]
    }

    /// Returns whether an epoch is one of the span.
    pub fn has(&self, epoch: u64) -> bool {
        (self.first..=self.last).contains(&epoch) && (epoch - self.first).is_multiple_of(self.stride)
    }
}

impl EpochSet {
    /// Returns the epochs among those that exist, in ascending order. `existing` is ascending, `path` is that of the
    /// dataset.
    ///
    /// # Errors
    /// [`Error::EpochMissing`] for a label without an epoch; a usage error for `last` and `-N` if there are too few.
    pub fn among(&self, existing: &[u64], path: &Path) -> Result<Vec<u64>> {
        let mut chosen = Vec::new();
        for term in &self.terms {
            match *term {
                Term::One(End::Label(epoch)) if existing.binary_search(&epoch).is_ok() => chosen.push(epoch),
                Term::One(End::Label(epoch)) => return Err(Error::EpochMissing { epoch, path: path.to_owned() }),
                Term::One(End::FromLast(after)) => {
                    let place = existing.len().checked_sub(after + 1);
                    chosen.push(*place.and_then(|place| existing.get(place)).ok_or_else(|| self.too_few(existing))?);
                }
                Term::Range { first, last, stride } => {
                    let label = |end| match end {
                        End::Label(label) => Some(label),
                        End::FromLast(after) => existing.get(existing.len().saturating_sub(after + 1)).copied(),
                    };
                    let Some((first, last)) = label(first).zip(label(last)) else { continue };
                    let start = existing.partition_point(|epoch| *epoch < first);
                    let within = existing[start..].iter().take_while(|epoch| **epoch <= last);
                    chosen.extend(within.filter(|epoch| (**epoch - first).is_multiple_of(stride)));
                }
            }
        }
        chosen.sort_unstable();
        chosen.dedup();
        Ok(chosen)
    }

    /// Returns the labels, if the choice names labels alone, so that it does not depend on other epochs.
    pub(crate) fn labels(&self) -> Option<Vec<u64>> {
        let label = |term: &Term| match term {
            Term::One(End::Label(label)) => Some(*label),
            _ => None,
        };
        self.terms.iter().map(label).collect()
    }

    /// Returns the spans that the choice consists of, or `None` if it depends on the last epoch that exists.
    pub fn spans(&self) -> Option<Vec<EpochSpan>> {
        let span = |term: &Term| match *term {
            Term::One(End::Label(label)) => Some(EpochSpan { first: label, last: label, stride: 1 }),
            Term::Range { first: End::Label(first), last: End::Label(last), stride } => {
                Some(EpochSpan { first, last, stride })
            }
            _ => None,
        };
        self.terms.iter().map(span).collect()
    }

    fn too_few(&self, existing: &[u64]) -> Error {
        let what = match existing.len() {
            0 => format!("'{self}' is none, since there are no epochs"),
            count => format!("'{self}' counts more epochs from the last one than the {count} that exist"),
        };
        UsageError::Option { option: "epoch", what }.into()
    }
}

/// The chosen epochs of a dataset, in ascending order: all, if there is no choice.
#[derive(Debug)]
pub(super) struct ChosenEpochs(pub(super) Option<Vec<u64>>);

impl ChosenEpochs {
    /// Returns whether an epoch was chosen.
    pub(super) fn has(&self, epoch: u64) -> bool {
        self.0.as_ref().is_none_or(|epochs| epochs.binary_search(&epoch).is_ok())
    }
}

impl From<EpochRange> for EpochSet {
    fn from(range: EpochRange) -> Self {
        let term = match range.first == range.last {
            true => Term::One(End::Label(range.first)),
            false => Term::Range { first: End::Label(range.first), last: End::Label(range.last), stride: 1 },
        };
        Self { terms: vec![term] }
    }
}

impl FromStr for EpochSet {
    type Err = Error;

    /// Parses terms that are separated by commas. Refuses a range that ends before it begins, which is probably a
    /// mistake.
    fn from_str(text: &str) -> Result<Self, Error> {
        let terms = text.split(',').map(|term| parse_term(term.trim())).collect::<Result<Vec<Term>, String>>();
        let terms = terms.map_err(|what| UsageError::Option { option: "epoch", what })?;
        Ok(Self { terms })
    }
}

impl fmt::Display for EpochSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, term) in self.terms.iter().enumerate() {
            let comma = if number > 0 { "," } else { "" };
            match term {
                Term::One(end) => write!(f, "{comma}{end}")?,
                Term::Range { first, last, stride: 1 } => write!(f, "{comma}{first}..{last}")?,
                Term::Range { first, last, stride } => write!(f, "{comma}{first}..{last}..{stride}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Label(label) => write!(f, "{label}"),
            Self::FromLast(0) => f.write_str("last"),
            Self::FromLast(after) => write!(f, "-{}", after + 1),
        }
    }
}

fn parse_term(text: &str) -> Result<Term, String> {
    let unclear =
        || format!("'{text}' is neither an epoch such as 200, last or -1 nor a range such as 0..200 or 0..4000..100");
    let parts: Vec<&str> = text.split("..").collect();
    let (first, last, stride) = match parts.as_slice() {
        [one] => return parse_end(one).map(Term::One).ok_or_else(unclear),
        [first, last] => (first, last, Some(1)),
        [first, last, stride] => (first, last, parse_epoch(stride).filter(|stride| *stride > 0)),
        _ => return Err(unclear()),
    };
    let ends = parse_end(first).zip(parse_end(last)).zip(stride);
    let ((from, to), stride) = ends.ok_or_else(unclear)?;
    let is_backwards = match (from, to) {
        (End::Label(from), End::Label(to)) => from > to,
        (End::FromLast(from), End::FromLast(to)) => from < to,
        _ => false,
    };
    if is_backwards {
        return Err(format!("'{text}' ends before it begins; write {last}..{first}"));
    }
    Ok(Term::Range { first: from, last: to, stride })
}

fn parse_end(text: &str) -> Option<End> {
    match text.strip_prefix('-') {
        None if text == "last" => Some(End::FromLast(0)),
        None => parse_epoch(text).map(End::Label),
        Some(number) => usize::try_from(parse_epoch(number)?.checked_sub(1)?).ok().map(End::FromLast),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXISTING: [u64; 6] = [0, 100, 150, 200, 300, 4000];

    fn among(text: &str) -> Result<Vec<u64>> {
        text.parse::<EpochSet>()?.among(&EXISTING, Path::new("/ds"))
    }

    #[test]
    fn labels_ranges_strides_and_places_are_chosen() {
        for (text, expected) in [
            ("100", &[100][..]),
            ("300,100, 100", &[100, 300]),
            ("0..200", &[0, 100, 150, 200]),
            ("0..4000..100", &[0, 100, 200, 300, 4000]),
            ("50..300..50", &[100, 150, 200, 300]),
            ("1..99", &[]),
            ("last", &[4000]),
            ("-1", &[4000]),
            ("-2,last,0", &[0, 300, 4000]),
            ("-3..-2", &[200, 300]),
            ("150..last", &[150, 200, 300, 4000]),
            ("-100..100", &[0, 100]),
            ("-6", &[0]),
        ] {
            assert_eq!(among(text).unwrap(), expected, "{text}");
            let stated = text.parse::<EpochSet>().unwrap().to_string();
            assert_eq!(among(&stated).unwrap(), expected, "{text} is stated as {stated}");
        }
        assert!(matches!(among("100,101"), Err(Error::EpochMissing { epoch: 101, .. })));
        assert!(among("-7").unwrap_err().to_string().contains("the 6 that exist"));
        let last: EpochSet = "last".parse().unwrap();
        assert!(last.among(&[], Path::new("/ds")).unwrap_err().to_string().contains("no epochs"));
        let range: EpochSet = "0..last".parse().unwrap();
        assert!(range.among(&[], Path::new("/ds")).unwrap().is_empty());
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            ",",
            "1,",
            "..",
            "1..",
            "..1",
            "01",
            "1...2",
            "1..2..",
            "1..2..0",
            "1..2..3..4",
            "a..b",
            "-0",
            "--1",
            "First",
        ] {
            text.parse::<EpochSet>().unwrap_err();
        }
        for (text, hint) in [("7..3", "write 3..7"), ("-1..-3", "write -3..-1")] {
            assert!(text.parse::<EpochSet>().unwrap_err().to_string().contains(hint), "{text}");
        }
    }
}
