//! Matches patterns against the last components of a path, so that the patterns apply in any working folder of a
//! program.

use super::syntax::{Bound, Malformed, Token, Tokens, bind};

/// A pattern for a program's paths, such as `particle/T.{epoch}/eparticle.{epoch}.{rank}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathPattern {
    pieces: Vec<Token>,
}

impl std::fmt::Display for PathPattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.pieces.iter().try_for_each(|piece| match piece {
            Token::Text(text) => f.write_str(text),
            Token::Epoch => f.write_str("{epoch}"),
            Token::Rank => f.write_str("{rank}"),
            Token::Id => f.write_str("{id}"),
        })
    }
}

/// The numbers in a matching path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Named {
    /// Epoch of the file, or `None` if files hold several epochs.
    pub epoch: Option<u64>,
    /// Rank that wrote the file, or `None` if names do not contain ranks.
    pub rank: Option<u64>,
    /// Id of the file's only record, or `None` if files hold several records.
    pub id: Option<u64>,
}

impl PathPattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// Returns the mistake in the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let pieces: Vec<Token> = Tokens::of(text).collect::<Result<_, _>>().map_err(|malformed| match malformed {
            Malformed::Unclosed => format!("'{text}' has a {{ without a }}"),
            Malformed::Unknown(other) => format!("'{other}' in '{text}' is none of {{epoch}}, {{rank}}, {{id}}"),
        })?;
        if pieces.windows(2).any(|pair| pair.iter().all(|piece| !matches!(piece, Token::Text(_)))) {
            return Err(format!("'{text}' has two adjacent placeholders; put a separator between them"));
        }
        Ok(Self { pieces })
    }

    /// Returns whether a file's path contains its epoch, so that the file belongs to one epoch.
    pub fn names_epochs(&self) -> bool {
        self.pieces.contains(&Token::Epoch)
    }

    /// Returns whether a file's path contains an id, so that the file holds one record.
    pub fn names_records(&self) -> bool {
        self.pieces.contains(&Token::Id)
    }

    /// Returns whether a file's path contains a rank, so that several ranks do not write to one file.
    pub fn names_ranks(&self) -> bool {
        self.pieces.contains(&Token::Rank)
    }

    /// Returns the number of components at the end of a path that the pattern matches.
    pub fn names(&self) -> usize {
        let slashes = |piece: &Token| if let Token::Text(text) = piece { text.matches('/').count() } else { 0 };
        self.pieces.iter().map(slashes).sum::<usize>() + 1
    }

    /// Returns the numbers in a path, or `None` if the path does not match.
    pub fn matches(&self, path: &str) -> Option<Named> {
        // A match begins at the path's beginning or after a slash. The longest match is tried first.
        let mut begin = Some(0);
        while let Some(at) = begin {
            if let Some(found) = bind(&self.pieces, &path[at..], Bound::default()) {
                return Some(Named { epoch: found.epoch, rank: found.rank, id: found.id });
            }
            begin = path[at..].find('/').map(|slash| at + slash + 1);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_matched_from_any_folder_on() {
        let pattern = PathPattern::parse("particle/T.{epoch}/eparticle.{epoch}.{rank}").unwrap();
        let epoch = |path: &str| pattern.matches(path).and_then(|named| named.epoch);
        assert_eq!(epoch("particle/T.500/eparticle.500.0"), Some(500));
        assert_eq!(epoch("/scratch/run/particle/T.500/eparticle.500.13"), Some(500));
        assert_eq!(epoch("./particle/T.0500/eparticle.500.13"), Some(500), "numbers, not texts");
        for path in [
            "particle/T.500/eparticle.501.0",
            "particle/T.500/eparticle.500.0.gz",
            "particle/T.500/eparticle.500.",
            "myparticle/T.500/eparticle.500.0",
            "particle/T.x/eparticle.x.0",
            "particle/T.99999999999999999999/eparticle.99999999999999999999.0",
            "",
        ] {
            assert_eq!(epoch(path), None, "{path}");
        }
    }

    #[test]
    fn records_can_be_files() {
        let pattern = PathPattern::parse("T.{epoch}/{id}").unwrap();
        assert!(pattern.names_records());
        assert_eq!(pattern.matches("out/T.3/17"), Some(Named { epoch: Some(3), rank: None, id: Some(17) }));
        assert_eq!(pattern.matches("out/T.3/17x"), None);
    }

    #[test]
    fn epochs_can_be_inside_of_files() {
        let pattern = PathPattern::parse("melt.{rank}.bin").unwrap();
        assert!(!pattern.names_epochs());
        assert_eq!(pattern.matches("out/melt.3.bin"), Some(Named { epoch: None, rank: Some(3), id: None }));
        assert_eq!(pattern.matches("out/melt.3.bin.gz"), None);
    }

    #[test]
    fn mistakes_are_named() {
        for (text, complaint) in
            [("T.{epoch", "without a }"), ("T.{step}", "'{step}'"), ("T.{epoch}{rank}", "two adjacent placeholders")]
        {
            assert!(PathPattern::parse(text).unwrap_err().contains(complaint), "{text}");
        }
    }
}
