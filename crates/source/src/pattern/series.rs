//! Finds the files of a path with placeholders, such as `run/step-%T.{rank}.parquet`.
//!
//! `%T` (`%06T` has at least six digits) and `{epoch}` stand for the epoch, `{rank}` for the number of a part of an
//! epoch, and `*` and `?` for text. Without a placeholder for the epoch, it is the only number in that text. Otherwise
//! the text may name a part.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::error::SourceError;
use crate::files::names;
use crate::inventory::FilesByRank;
use crate::options::SourceOptions;

/// The placeholder of a part's number.
const RANK: &str = "{rank}";

/// A piece of one component of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    /// Digits, at least this many.
    Epoch(usize),
    Rank,
    /// `*`
    Any,
    /// `?`
    One,
}

/// A path with placeholders.
#[derive(Debug)]
pub(crate) struct SeriesPattern {
    root: PathBuf,
    components: Vec<Vec<Piece>>,
}

/// A file that matches, or a folder on the way to one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) path: PathBuf,
    epoch: Option<u64>,
    rank: Option<u64>,
    /// The places of `{rank}` in the path.
    ranks: Vec<Range<usize>>,
    /// The places of `*` and `?` in the path.
    texts: Vec<Range<usize>>,
}

/// The files of a pattern by epoch and part.
#[derive(Debug)]
pub(crate) struct Series {
    pub(crate) files: FilesByRank,
    /// Whether the parts of an epoch have numbers.
    pub(crate) names_ranks: bool,
    /// The paths of the files with `{rank}` in place of their numbers.
    numbered: BTreeMap<PathBuf, String>,
}

impl SeriesPattern {
    /// Returns the pattern that a path is, or `None` for a path without placeholders or of an existing file.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let text = path.to_str()?;
        let (mut root, mut components) = (PathBuf::from(if text.starts_with('/') { "/" } else { "" }), Vec::new());
        for name in text.split('/').filter(|name| !name.is_empty()) {
            match pieces(name) {
                pieces if components.is_empty() && matches!(pieces.as_slice(), [Piece::Text(_)]) => root.push(name),
                pieces => components.push(pieces),
            }
        }
        (!components.is_empty() && !path.exists()).then_some(Self { root, components })
    }

    /// Returns the matching files, ordered by path.
    pub(crate) fn find(&self) -> Result<Vec<Found>, SourceError> {
        let mut found = vec![Found { path: self.root.clone(), ..Found::default() }];
        for (level, component) in self.components.iter().enumerate() {
            let is_last = level + 1 == self.components.len();
            let mut next = Vec::new();
            for state in found {
                let folder = if state.path.as_os_str().is_empty() { Path::new(".") } else { &state.path };
                if !folder.is_dir() {
                    continue;
                }
                for name in names(folder)? {
                    let path = state.path.join(&name);
                    if path.is_dir() != is_last {
                        let begin = path.as_os_str().len() - name.len();
                        next.extend(bind(component, &name, 0, &Found { path, ..state.clone() }, begin));
                    }
                }
            }
            found = next;
        }
        found.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(found)
    }
}

/// Splits one component of a path.
fn pieces(name: &str) -> Vec<Piece> {
    let (mut pieces, mut plain, mut rest) = (Vec::new(), String::new(), name);
    while let Some(letter) = rest.chars().next() {
        let (piece, length) = placeholder(rest).unwrap_or((Piece::Text(letter.to_string()), letter.len_utf8()));
        rest = &rest[length..];
        match piece {
            Piece::Text(letter) => plain.push_str(&letter),
            piece => {
                if !plain.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut plain)));
                }
                pieces.push(piece);
            }
        }
    }
    if !plain.is_empty() {
        pieces.push(Piece::Text(plain));
    }
    pieces
}

/// Returns the placeholder that a text begins with, and its length.
fn placeholder(text: &str) -> Option<(Piece, usize)> {
    for (written, piece) in
        [("{epoch}", Piece::Epoch(1)), ("{rank}", Piece::Rank), ("*", Piece::Any), ("?", Piece::One)]
    {
        if text.starts_with(written) {
            return Some((piece, written.len()));
        }
    }
    let digits = text.strip_prefix('%')?;
    let (least, _) = digits.split_once('T')?;
    let is_width = least.bytes().all(|byte| byte.is_ascii_digit());
    is_width.then(|| (Piece::Epoch(least.parse().unwrap_or(1).max(1)), least.len() + 2))
}

/// Matches a name from a place on. A placeholder that is already bound must match the same number again. `begin` is the
/// offset of the name in the path.
fn bind(pieces: &[Piece], name: &str, at: usize, bound: &Found, begin: usize) -> Option<Found> {
    let Some((piece, others)) = pieces.split_first() else { return (at == name.len()).then(|| bound.clone()) };
    let rest = &name[at..];
    let number = |least: usize, is_rank: bool| {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        (least..=digits).rev().find_map(|length| {
            let mut bound = bound.clone();
            let known = if is_rank { &mut bound.rank } else { &mut bound.epoch };
            let found = rest[..length].parse().ok()?;
            if *known.get_or_insert(found) != found {
                return None;
            }
            if is_rank {
                bound.ranks.push(begin + at..begin + at + length);
            }
            bind(others, name, at + length, &bound, begin)
        })
    };
    let text = |length: usize| {
        let mut bound = bound.clone();
        bound.texts.push(begin + at..begin + at + length);
        bind(others, name, at + length, &bound, begin)
    };
    match piece {
        Piece::Text(plain) if rest.starts_with(plain) => bind(others, name, at + plain.len(), bound, begin),
        Piece::Text(_) => None,
        Piece::Epoch(least) => number(*least, false),
        Piece::Rank => number(1, true),
        Piece::Any => (0..=rest.len()).rev().filter(|length| rest.is_char_boundary(*length)).find_map(text),
        Piece::One => rest.chars().next().and_then(|letter| text(letter.len_utf8())),
    }
}

impl Found {
    /// Returns the places of the numbers in the texts of `*` and `?`.
    fn numbers(&self) -> Vec<Range<usize>> {
        let path = self.path.to_str().unwrap_or_default();
        let mut found: Vec<Range<usize>> = Vec::new();
        for place in self.texts.iter().flat_map(|text| text.clone()) {
            if !path.as_bytes().get(place).is_some_and(u8::is_ascii_digit) {
                continue;
            }
            match found.last_mut() {
                Some(last) if last.end == place => last.end = place + 1,
                _ => found.push(place..place + 1),
            }
        }
        found
    }

    fn number(&self, place: &Range<usize>) -> Option<u64> {
        self.path.to_str()?.get(place.clone())?.parse().ok()
    }

    /// Returns the path with `{rank}` at some places.
    fn numbered(&self, places: &[Range<usize>]) -> String {
        let mut path = self.path.to_str().unwrap_or_default().to_owned();
        places.iter().rev().for_each(|place| path.replace_range(place.clone(), RANK));
        path
    }

    /// Returns the epoch: the stated one, or the only number in the texts.
    fn epoch(&self, options: &SourceOptions) -> Result<u64, SourceError> {
        let numbers = self.numbers();
        let only = match numbers.as_slice() {
            [place] => self.number(place),
            _ => None,
        };
        let unknown = "the epoch of the file is not known: put {epoch} into the pattern in place of its number, and \
                       {rank} in place of the number of a part";
        options
            .epoch
            .or(self.epoch)
            .or(only)
            .ok_or_else(|| SourceError::Usage(format!("{}: {unknown}", self.path.display())))
    }
}

impl Series {
    /// Groups files by epoch and part.
    ///
    /// # Errors
    /// Returns an error if the epoch of a file is not known, or two files are the same part of one.
    pub(crate) fn of(found: Vec<Found>, options: &SourceOptions) -> Result<Self, SourceError> {
        let mut by_epoch: BTreeMap<u64, Vec<Found>> = BTreeMap::new();
        for file in found {
            by_epoch.entry(file.epoch(options)?).or_default().push(file);
        }
        let files = || by_epoch.values().flatten();
        let by_rank = files().all(|file| file.rank.is_some());
        // Text names a part only where something else names the epoch.
        let has_several = by_epoch.values().any(|files| files.len() > 1) || options.complete_only;
        let has_parts = has_several && files().all(|file| file.epoch.is_some() && !file.texts.is_empty());
        let by_number = !by_rank && has_parts && files().all(|file| file.numbers().len() == 1);
        let mut series =
            Self { files: FilesByRank::new(), names_ranks: by_rank || by_number, numbered: BTreeMap::new() };
        for (epoch, files) in by_epoch {
            for (place, file) in files.into_iter().enumerate() {
                let places = if by_number { file.numbers() } else { file.ranks.clone() };
                let rank = match places.first() {
                    Some(place) => file.number(place),
                    None => Some(if has_parts { place as u64 } else { 0 }),
                };
                series.add(epoch, rank, &file, &places)?;
            }
        }
        Ok(series)
    }

    fn add(&mut self, epoch: u64, rank: Option<u64>, file: &Found, places: &[Range<usize>]) -> Result<(), SourceError> {
        let Some(rank) = rank.and_then(|rank| u32::try_from(rank).ok()) else {
            let what = "the number of the part is larger than 4294967295, the largest".to_owned();
            return Err(SourceError::Unfit { path: file.path.clone(), what });
        };
        self.numbered.insert(file.path.clone(), file.numbered(places));
        match self.files.entry(epoch).or_default().insert(rank, file.path.clone()) {
            Some(one) => Err(SourceError::Twice { one, other: file.path.clone(), epoch, rank }),
            None => Ok(()),
        }
    }

    /// Returns the path of another part of the epoch of `example`, for messages.
    pub(crate) fn sibling(&self, example: &Path, rank: u32) -> PathBuf {
        self.numbered.get(example).map_or_else(PathBuf::new, |numbered| part_path(numbered, example, rank))
    }
}

/// Returns the path of a part, of which `numbered` has `{rank}` in place of the number. Numbers are padded with zeros
/// as in `example`.
pub(crate) fn part_path(numbered: &str, example: &Path, rank: u32) -> PathBuf {
    let example = example.to_str().unwrap_or_default();
    let rest = numbered.find(RANK).and_then(|begin| example.get(begin..)).unwrap_or_default();
    let width = if rest.starts_with('0') { rest.bytes().take_while(u8::is_ascii_digit).count() } else { 0 };
    numbered.replace(RANK, &format!("{rank:0width$}")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pattern: &str, files: &[&str]) -> Result<Vec<(u64, u32, String)>, String> {
        let root = tempfile::tempdir().unwrap();
        for name in files {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, b"").unwrap();
        }
        let pattern = SeriesPattern::of(&root.path().join(pattern)).unwrap();
        let series =
            Series::of(pattern.find().unwrap(), &SourceOptions::default()).map_err(|error| error.to_string())?;
        let name = |path: &Path| path.strip_prefix(root.path()).unwrap().display().to_string();
        let files =
            series.files.iter().flat_map(|(epoch, files)| files.iter().map(|file| (*epoch, *file.0, name(file.1))));
        Ok(files.collect())
    }

    #[test]
    fn names_are_matched_like_those_of_the_package() {
        let files = ["s-7.0.p", "s-7.1.p", "s-012.0.p", "s-012.10.p", "t-1.p", "d5/s-5.3.p"];
        for (pattern, expected) in [
            ("s-%T.{rank}.p", &[(7, 0, 0), (7, 1, 1), (12, 0, 2), (12, 10, 3)][..]),
            ("s-%03T.{rank}.p", &[(12, 0, 2), (12, 10, 3)]),
            ("s-{epoch}.*.p", &[(7, 0, 0), (7, 1, 1), (12, 0, 2), (12, 10, 3)]),
            ("s-{epoch}.?.p", &[(7, 0, 0), (7, 1, 1), (12, 0, 2)]),
            ("t-*.p", &[(1, 0, 4)]),
            ("d{epoch}/s-{epoch}.{rank}.p", &[(5, 3, 5)]),
            ("d{epoch}/s-*", &[(5, 0, 5)]),
            ("d*/s-5.{rank}.p", &[(5, 3, 5)]),
        ] {
            let expected = expected.iter().map(|(epoch, rank, place)| (*epoch, *rank, files[*place].to_owned()));
            assert_eq!(found(pattern, &files), Ok(expected.collect()), "{pattern}");
        }
        let said = found("s-*.p", &files).unwrap_err();
        assert!(said.contains("s-012.0.p: the epoch of the file is not known: put {epoch}"), "{said}");
        let said = found("s-%T.{rank}.p", &["s-7.1.p", "s-07.1.p"]).unwrap_err();
        assert!(said.contains("are both rank 1 of epoch 7"), "{said}");
    }

    #[test]
    fn other_parts_are_named_like_an_example() {
        let name = |numbered, example, rank| part_path(numbered, Path::new(example), rank).display().to_string();
        assert_eq!(name("a/s_012.{rank}.h5", "a/s_012.000.h5", 7), "a/s_012.007.h5");
        assert_eq!(name("a{rank}/s.{rank}", "a1/s.1", 12), "a12/s.12");
    }
}
