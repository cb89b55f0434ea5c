//! Finds the written file whose path is nearest to a pattern without matches.

use std::path::Path;

/// Maximum edit distance between the last path component and the pattern's, or a third of the pattern's length if that
/// is larger. The limit excludes unrelated files, for example of shells and child processes.
const MAX_DIFFERENT: usize = 3;

/// The nearest file so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Nearest {
    pub(crate) path: String,
    distance: usize,
}

/// Returns the text with each run of digits and each placeholder of a pattern replaced by one symbol.
fn shape(text: &str) -> Vec<char> {
    let mut shape = Vec::new();
    let mut rest = text.chars().peekable();
    while let Some(letter) = rest.next() {
        match letter {
            '{' => {
                while rest.next_if(|&letter| letter != '}').is_some() {}
                rest.next();
                shape.push('#');
            }
            '0'..='9' => {
                while rest.next_if(char::is_ascii_digit).is_some() {}
                shape.push('#');
            }
            letter => shape.push(letter),
        }
    }
    shape
}

/// Returns the Levenshtein distance between two texts.
fn distance(one: &[char], other: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, letter) in one.iter().enumerate() {
        let mut before = row[0];
        row[0] = index + 1;
        for (column, candidate) in other.iter().enumerate() {
            let replaced = before + usize::from(letter != candidate);
            before = row[column + 1];
            row[column + 1] = replaced.min(before + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

/// Returns the last `names` components of a path.
fn end(path: &str, names: usize) -> &str {
    let begin = path.rmatch_indices('/').nth(names.saturating_sub(1)).map_or(0, |(at, _)| at + 1);
    &path[begin..]
}

impl Nearest {
    /// Stores `path` in `nearest` if it is nearer to the pattern's text than the stored path.
    pub(crate) fn consider(nearest: &mut Option<Self>, pattern: &str, path: &Path) {
        let Some(path) = path.to_str().filter(|path| path.len() < 4096) else { return };
        let names = pattern.matches('/').count() + 1;
        // Most files of a program resemble no pattern. Comparing the last component first rejects these files cheaply.
        let last = (shape(end(pattern, 1)), shape(end(path, 1)));
        let most = MAX_DIFFERENT.max(last.0.len() / 3);
        if last.0.len().abs_diff(last.1.len()) > most || distance(&last.0, &last.1) > most {
            return;
        }
        let distance = distance(&shape(pattern), &shape(end(path, names)));
        if nearest.as_ref().is_none_or(|nearest| distance < nearest.distance) {
            *nearest = Some(Self { path: path.to_owned(), distance });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nearest(pattern: &str, paths: &[&str]) -> Option<String> {
        let mut nearest = None;
        paths.iter().for_each(|path| Nearest::consider(&mut nearest, pattern, Path::new(path)));
        nearest.map(|nearest| nearest.path)
    }

    #[test]
    fn mistakes_in_a_pattern_are_near() {
        let pattern = "T.{epoch}/eparticle.{epoch}.{rank}";
        let written = ["info", "/scratch/run/fields/T.50/fields.50.0", "particle/T.50/eparticle.50", "/tmp/ompi.x/shm"];
        assert_eq!(nearest(pattern, &written).as_deref(), Some("particle/T.50/eparticle.50"));
        let pattern = "particles/T.{epoch}/eparticle.{epoch}.{rank}";
        let written =
            ["particle/T.50/eparticle.50.0", "particle/T.100/eparticle.100.0", "particle/T.50/Hparticle.50.0"];
        assert_eq!(nearest(pattern, &written).as_deref(), Some("particle/T.50/eparticle.50.0"));
    }

    #[test]
    fn other_files_are_not() {
        assert_eq!(nearest("T.{epoch}/eparticle.{epoch}.{rank}", &["/dev/null", "log.txt", "/tmp/x/y", ""]), None);
    }

    #[test]
    fn distances_are_those_of_letters() {
        for (one, other, expected) in
            [("", "abc", 3), ("kitten", "sitting", 3), ("T.{a}/x", "T.12/x", 0), ("a1b22", "a#b#", 0)]
        {
            assert_eq!(distance(&shape(one), &shape(other)), expected, "{one} {other}");
        }
    }
}
