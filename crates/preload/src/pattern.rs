//! Path patterns: `particle/T.{epoch}/eparticle.{epoch}.{rank}`.
//!
//! Placeholders stand for digits. A pattern matches the end of a path, from the beginning of a name on, so that it holds
//! whatever folder the program runs in. A placeholder that stands twice must have the same value.

/// One piece of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Epoch,
    /// The rank that wrote the file: any digits. Which process that is we know ourselves.
    Rank,
    /// A record's identity, where every record is a file of its own.
    Id,
}

/// A parsed pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern {
    pieces: Vec<Piece>,
}

impl std::fmt::Display for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.pieces.iter().try_for_each(|piece| match piece {
            Piece::Text(text) => f.write_str(text),
            Piece::Epoch => f.write_str("{epoch}"),
            Piece::Rank => f.write_str("{rank}"),
            Piece::Id => f.write_str("{id}"),
        })
    }
}

/// What a path says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Named {
    /// `None` where files hold several.
    pub(crate) epoch: Option<u64>,
    pub(crate) id: Option<u64>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Found {
    epoch: Option<u64>,
    rank: Option<u64>,
    id: Option<u64>,
}

impl Pattern {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some(begin) = rest.find('{') {
            let end = rest[begin..].find('}').ok_or_else(|| format!("'{text}' has a {{ without a }}"))? + begin;
            if begin > 0 {
                pieces.push(Piece::Text(rest[..begin].to_owned()));
            }
            pieces.push(match &rest[begin..=end] {
                "{epoch}" => Piece::Epoch,
                "{rank}" => Piece::Rank,
                "{id}" => Piece::Id,
                other => return Err(format!("'{other}' in '{text}' is none of {{epoch}}, {{rank}}, {{id}}")),
            });
            rest = &rest[end + 1..];
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest.to_owned()));
        }
        if pieces.windows(2).any(|pair| pair.iter().all(|piece| !matches!(piece, Piece::Text(_)))) {
            return Err(format!("'{text}' has two placeholders with nothing between them"));
        }
        Ok(Self { pieces })
    }

    /// Whether a file belongs to one epoch, which its path names.
    pub(crate) fn names_epochs(&self) -> bool {
        self.pieces.contains(&Piece::Epoch)
    }

    /// Whether files hold one record each, named by it.
    pub(crate) fn names_records(&self) -> bool {
        self.pieces.contains(&Piece::Id)
    }

    /// How many names at the end of a path it stands for.
    pub(crate) fn names(&self) -> usize {
        let slashes = |piece: &Piece| if let Piece::Text(text) = piece { text.matches('/').count() } else { 0 };
        self.pieces.iter().map(slashes).sum::<usize>() + 1
    }

    /// What a path says, if it is one of these.
    pub(crate) fn matches(&self, path: &str) -> Option<Named> {
        // The pattern may begin at the path's beginning or after any slash; the longest beginning first.
        let mut begin = Some(0);
        while let Some(at) = begin {
            if let Some(found) = walk(&self.pieces, &path[at..], Found::default()) {
                return Some(Named { epoch: found.epoch, id: found.id });
            }
            begin = path[at..].find('/').map(|slash| at + slash + 1);
        }
        None
    }
}

fn walk(pieces: &[Piece], rest: &str, found: Found) -> Option<Found> {
    let Some((piece, later)) = pieces.split_first() else { return rest.is_empty().then_some(found) };
    if let Piece::Text(text) = piece {
        return walk(later, rest.strip_prefix(text.as_str())?, found);
    }
    // All digits that are there: what follows a placeholder is text, and that may not begin with a digit of the number.
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let number: u64 = rest[..digits].parse().ok()?;
    let mut found = found;
    let slot = match piece {
        Piece::Epoch => &mut found.epoch,
        Piece::Rank => &mut found.rank,
        Piece::Id | Piece::Text(_) => &mut found.id,
    };
    if *slot.get_or_insert(number) != number {
        return None;
    }
    walk(later, &rest[digits..], found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_matched_from_any_folder_on() {
        let pattern = Pattern::parse("particle/T.{epoch}/eparticle.{epoch}.{rank}").unwrap();
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
        let pattern = Pattern::parse("T.{epoch}/{id}").unwrap();
        assert!(pattern.names_records());
        assert_eq!(pattern.matches("out/T.3/17"), Some(Named { epoch: Some(3), id: Some(17) }));
        assert_eq!(pattern.matches("out/T.3/17x"), None);
    }

    #[test]
    fn epochs_can_be_inside_of_files() {
        let pattern = Pattern::parse("melt.{rank}.bin").unwrap();
        assert!(!pattern.names_epochs());
        assert_eq!(pattern.matches("out/melt.3.bin"), Some(Named { epoch: None, id: None }));
        assert_eq!(pattern.matches("out/melt.3.bin.gz"), None);
    }

    #[test]
    fn mistakes_are_named() {
        for (text, complaint) in
            [("T.{epoch", "without a }"), ("T.{step}", "'{step}'"), ("T.{epoch}{rank}", "nothing between")]
        {
            assert!(Pattern::parse(text).unwrap_err().contains(complaint), "{text}");
        }
    }
}
