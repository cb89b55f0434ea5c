//! Finds the files below a folder that match a pattern.

use std::path::{Path, PathBuf};

use super::syntax::{Bound, Token, Tokens, bind};
use crate::error::SourceError;
use crate::files::names;

/// A relative path with placeholders for the epoch and the rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FolderPattern {
    components: Vec<Vec<Token>>,
    /// The numbers in the folder's own path.
    bound: Bound,
}

/// A matching file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Match {
    /// Epoch of the file.
    pub epoch: u64,
    /// Rank that wrote the file, or 0 if the pattern has no `{rank}`.
    pub rank: u32,
    /// Path of the file.
    pub path: PathBuf,
}

impl FolderPattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// Returns the problem and what to change.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let components = text.split('/').map(parse_component).collect::<Result<Vec<_>, _>>()?;
        let has = |wanted: &Token| components.iter().flatten().any(|piece| piece == wanted);
        if !has(&Token::Epoch) {
            return Err(format!("the pattern '{text}' has no {{epoch}}"));
        }
        Ok(Self { components, bound: Bound::default() })
    }

    /// Parses a pattern that matches the end of a path. Returns the patterns of files below `root` with matching paths:
    /// first the whole pattern, then those without their first components, which the end of `root` matches.
    ///
    /// # Errors
    /// Returns the problem and what to change.
    pub(crate) fn below(text: &str, root: &Path) -> Result<Vec<Self>, String> {
        let pattern = Self::parse(text.strip_prefix('/').unwrap_or(text))?;
        let root = std::path::absolute(root).unwrap_or_else(|_| root.to_owned());
        let names: Vec<&str> = root.iter().skip(1).map(|name| name.to_str().unwrap_or_default()).collect();
        let from = |leading: usize| {
            let names = names.get(names.len().checked_sub(leading)?..)?;
            let mut parts = pattern.components.iter().zip(names);
            let bound = parts.try_fold(Bound::default(), |bound, (part, name)| match_name(part, name, bound))?;
            Some(Self { components: pattern.components[leading..].to_vec(), bound })
        };
        // An absolute pattern matches all of the path.
        let least = if text.starts_with('/') { names.len() } else { 0 };
        let most = if text.starts_with('/') { names.len() + 1 } else { pattern.components.len() };
        Ok((least..most.min(pattern.components.len())).filter_map(from).collect())
    }

    /// Returns all files below `root` that match, in no particular order.
    pub(crate) fn find(&self, root: &Path) -> Result<Vec<Match>, SourceError> {
        let mut found = vec![(root.to_owned(), self.bound)];
        for (level, component) in self.components.iter().enumerate() {
            let is_last = level + 1 == self.components.len();
            let mut next = Vec::new();
            for (folder, bound) in found {
                for name in names(&folder)? {
                    let path = folder.join(&name);
                    if let Some(bound) = match_name(component, &name, bound)
                        && path.is_dir() != is_last
                    {
                        next.push((path, bound));
                    }
                }
            }
            found = next;
        }
        let to_match = |(path, bound): (PathBuf, Bound)| {
            let rank = bound.rank.map_or(Some(0), |rank| u32::try_from(rank).ok())?;
            bound.epoch.map(|epoch| Match { epoch, rank, path })
        };
        Ok(found.into_iter().filter_map(to_match).collect())
    }

    /// Returns whether a file's path contains its rank, so that an epoch has a file of each rank.
    pub(crate) fn names_ranks(&self) -> bool {
        self.components.iter().flatten().any(|piece| *piece == Token::Rank)
    }

    /// Returns the path of an epoch's other rank, for messages. Numbers are padded with zeros as in `example`, which is
    /// a file of the epoch.
    pub(crate) fn sibling(&self, root: &Path, example: &Path, epoch: u64, rank: u32) -> PathBuf {
        let relative = example.strip_prefix(root).unwrap_or(example);
        let names = relative.iter().map(|name| name.to_str().unwrap_or_default());
        self.components.iter().zip(names).fold(root.to_owned(), |path, (component, name)| {
            let mut rest = name;
            let write = |piece: &Token| {
                let number = match piece {
                    Token::Text(text) => {
                        rest = rest.strip_prefix(text.as_str()).unwrap_or_default();
                        return text.clone();
                    }
                    Token::Epoch => epoch,
                    // A folder's pattern has no `{id}`.
                    Token::Rank | Token::Id => u64::from(rank),
                };
                let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
                let width = if rest.starts_with('0') { digits } else { 0 };
                rest = &rest[digits..];
                format!("{number:0width$}")
            };
            path.join(component.iter().map(write).collect::<String>())
        })
    }
}

/// Splits one component into text and placeholders.
fn parse_component(text: &str) -> Result<Vec<Token>, String> {
    if text.is_empty() || text == "." || text == ".." {
        return Err("a pattern is a path below the source, without '..', '.' or empty parts".into());
    }
    let mut pieces = Vec::new();
    let mut rest = Tokens::of(text);
    loop {
        let from_here = rest.rest();
        let Some(piece) = rest.next() else { return Ok(pieces) };
        let after_place = matches!(pieces.last(), Some(Token::Epoch | Token::Rank));
        match &piece {
            Ok(Token::Epoch | Token::Rank) if after_place => {
                return Err(format!("in '{text}' two placeholders are adjacent; put a separator between them"));
            }
            Ok(Token::Text(plain)) if after_place && plain.starts_with(|first: char| first.is_ascii_digit()) => {
                return Err(format!(
                    "in '{text}' a digit follows a placeholder, so the end of its number is ambiguous"
                ));
            }
            Ok(Token::Id) | Err(_) => return Err(format!("'{from_here}' is neither {{epoch}} nor {{rank}}")),
            Ok(_) => {}
        }
        pieces.extend(piece);
    }
}

/// Matches a name. A placeholder that is already bound must match the same number again.
fn match_name(component: &[Token], name: &str, bound: Bound) -> Option<Bound> {
    let is_rank = |rank: u64| u32::try_from(rank).is_ok();
    bind(component, name, bound).filter(|bound| bound.rank.is_none_or(is_rank))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matched(pattern: &str, name: &str) -> Option<(Option<u64>, Option<u64>)> {
        let component = parse_component(pattern).unwrap();
        match_name(&component, name, Bound::default()).map(|bound| (bound.epoch, bound.rank))
    }

    #[test]
    fn names_bind_numbers() {
        assert_eq!(matched("e.{epoch}.{rank}", "e.500.12"), Some((Some(500), Some(12))));
        assert_eq!(matched("e{epoch}x", "e007x"), Some((Some(7), None)));
        assert_eq!(matched("{epoch}-{epoch}", "7-7"), Some((Some(7), None)));
        for (pattern, name) in [
            ("{epoch}-{epoch}", "7-8"),
            ("e.{epoch}", "e."),
            ("e.{epoch}", "e.5x"),
            ("e.{epoch}", "x.5"),
            ("{rank}", "4294967296"),
            ("{epoch}", "18446744073709551616"),
            ("{epoch}", "-1"),
        ] {
            assert_eq!(matched(pattern, name), None, "{pattern} {name}");
        }
    }

    #[test]
    fn ambiguous_patterns_are_refused() {
        for (pattern, word) in [
            ("{epoch}{rank}", "adjacent"),
            ("{epoch}0", "digit"),
            ("{step}", "neither {epoch} nor {rank}"),
            ("../{epoch}", "'..'"),
            ("/tmp/{epoch}", "empty"),
            ("data.{rank}", "no {epoch}"),
        ] {
            let message = FolderPattern::parse(pattern).unwrap_err();
            assert!(message.contains(word), "{pattern}: {message}");
        }
    }

    #[test]
    fn files_are_found_and_named() {
        let root = tempfile::tempdir().unwrap();
        for (folder, file) in
            [("T.5", "e.5.0"), ("T.5", "e.5.1"), ("T.5", "e.6.1"), ("T.10", "e.10.0"), ("U.10", "e.10.0")]
        {
            std::fs::create_dir_all(root.path().join(folder)).unwrap();
            std::fs::write(root.path().join(folder).join(file), b"").unwrap();
        }
        std::fs::create_dir_all(root.path().join("T.5/e.5.2")).unwrap();
        let pattern = FolderPattern::parse("T.{epoch}/e.{epoch}.{rank}").unwrap();
        let mut found: Vec<_> =
            pattern.find(root.path()).unwrap().into_iter().map(|one| (one.epoch, one.rank, one.path)).collect();
        found.sort();
        let path = |epoch: u64, rank: u32| root.path().join(format!("T.{epoch}/e.{epoch}.{rank}"));
        assert_eq!(found, [(5, 0), (5, 1), (10, 0)].map(|(epoch, rank)| (epoch, rank, path(epoch, rank))));
    }

    #[test]
    fn the_end_of_the_folder_may_match_the_beginning_of_a_pattern() {
        let outer = tempfile::tempdir().unwrap();
        let run = outer.path().join("run");
        let step = run.join("particle/T.5");
        std::fs::create_dir_all(&step).unwrap();
        std::fs::write(step.join("e.5.0"), b"").unwrap();
        std::fs::write(step.join("e.6.0"), b"").unwrap();
        let found = |text: &str, root: &Path| {
            let patterns = FolderPattern::below(text, root).unwrap();
            let found = patterns.iter().map(|pattern| pattern.find(root).unwrap());
            found.flatten().map(|one| (one.epoch, one.rank, one.path)).collect::<Vec<_>>()
        };
        let text = "particle/T.{epoch}/e.{epoch}.{rank}";
        let absolute = format!("{}/{text}", run.display());
        let (above, below) = (outer.path().to_owned(), run.join("particle"));
        for (text, root) in [(text, &run), (text, &below), (text, &step), (&absolute, &run), (&absolute, &above)] {
            assert_eq!(found(text, root), [(5, 0, step.join("e.5.0"))], "{text} below {}", root.display());
        }
        for (text, root) in [(text, &above), (&absolute[4..], &run)] {
            assert_eq!(found(text, root), [], "{text} below {}", root.display());
        }
    }

    #[test]
    fn other_ranks_are_named_like_an_example() {
        for (pattern, example, sibling) in [
            ("T.{epoch}/e.{epoch}.{rank}", "T.5/e.5.0", "T.5/e.5.12"),
            ("T.{epoch}/e.{epoch}.{rank}", "T.005/e.5.0000", "T.005/e.5.0012"),
            ("{rank}x/{epoch}", "1x/5", "12x/5"),
        ] {
            let pattern = FolderPattern::parse(pattern).unwrap();
            let root = Path::new("/run");
            assert_eq!(pattern.sibling(root, &root.join(example), 5, 12), root.join(sibling));
        }
    }
}
