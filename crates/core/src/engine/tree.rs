//! The tree over which control messages travel: shallow, for any number of ranks.
//!
//! Rank `r`'s children are `f*r+1 ..= f*r+f`. The fan-out `f` is the cube root of the number of ranks, at most 64, so
//! the tree is about three levels deep up to 262,144 ranks, as CARP's is (section VI) at powers of two.

/// Largest fan-out; CARP uses the same.
const MAX_FAN_OUT: u32 = 64;

/// One rank's place in the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TreePlace {
    rank: u32,
    ranks: u32,
    fan_out: u32,
}

impl TreePlace {
    pub(super) fn new(rank: u32, ranks: u32) -> Self {
        let mut fan_out = 2;
        while fan_out < MAX_FAN_OUT && u64::from(fan_out).pow(3) < u64::from(ranks) {
            fan_out += 1;
        }
        Self { rank, ranks, fan_out }
    }

    pub(super) fn parent(self) -> Option<u32> {
        (self.rank > 0).then(|| (self.rank - 1) / self.fan_out)
    }

    pub(super) fn children(self) -> std::ops::Range<u32> {
        let first = u64::from(self.rank) * u64::from(self.fan_out) + 1;
        let clamp = |rank: u64| rank.min(u64::from(self.ranks)) as u32;
        clamp(first)..clamp(first + u64::from(self.fan_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_has_one_parent_that_knows_it() {
        for ranks in [1, 2, 3, 5, 16, 61, 64, 513, 4096] {
            let mut seen = 1;
            for rank in 0..ranks {
                let place = TreePlace::new(rank, ranks);
                for child in place.children() {
                    assert_eq!(TreePlace::new(child, ranks).parent(), Some(rank));
                    seen += 1;
                }
            }
            assert_eq!(seen, ranks);
        }
    }

    #[test]
    fn the_tree_stays_shallow() {
        for (ranks, deepest) in [(1u32, 0), (512, 4), (4096, 4), (131_072, 4)] {
            let (mut rank, mut depth) = (ranks - 1, 0);
            while let Some(parent) = TreePlace::new(rank, ranks).parent() {
                rank = parent;
                depth += 1;
            }
            assert!(depth <= deepest, "{ranks} ranks: {depth}");
        }
    }
}
