//! The tree of control messages. It is shallow for any number of ranks and has few edges between nodes.
//!
//! With one node, rank `r`'s children are `f*r+1 ..= f*r+f`. The fan-out `f` is the cube root of the number of ranks,
//! at most 64, so the tree has about three levels up to 262,144 ranks. CARP's tree is the same at powers of two
//! (section VI).
//!
//! With several nodes, the lowest-numbered rank of each node is its leader. The leaders form such a tree, and the ranks
//! of each node form one below their leader. The fan-outs are square roots, at least 8. In a single tree over all
//! ranks, the inner ranks would be on the first few nodes. Every copy of a table would then pass those nodes' network,
//! and a round would take many times longer (`scale_study`).

use super::topology::Topology;

/// Maximum fan-out, the same as in CARP.
const MAX_FAN_OUT: u32 = 64;

/// Minimum fan-out among leaders and within a node. Two trees of few members each would otherwise be deeper than one
/// tree of all.
const MIN_FAN_OUT: u32 = 8;

/// Returns the smallest fan-out of a tree of `members` with at most `levels` levels, limited to `MAX_FAN_OUT`.
fn fan_out(members: u32, levels: u32) -> u32 {
    (2..MAX_FAN_OUT).find(|fan_out| u64::from(*fan_out).pow(levels) >= u64::from(members)).unwrap_or(MAX_FAN_OUT)
}

/// Returns the children of a member in a tree of `members`.
fn children(member: u32, fan_out: u32, members: u32) -> std::ops::Range<u32> {
    let first = u64::from(member) * u64::from(fan_out) + 1;
    let clamp = |member: u64| member.min(u64::from(members)) as u32;
    clamp(first)..clamp(first + u64::from(fan_out))
}

/// One rank's place in the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TreePlace {
    parent: Option<u32>,
    children: Vec<u32>,
    depth: u32,
}

impl TreePlace {
    pub(super) fn new(rank: u32, ranks: u32, topology: &Topology) -> Self {
        let Some((node, index, own)) = topology.place(rank) else {
            let fan_out = fan_out(ranks, 3);
            let parent = rank.checked_sub(1).map(|before| before / fan_out);
            let depth = levels_above(rank, fan_out);
            return Self { parent, children: children(rank, fan_out, ranks).collect(), depth };
        };
        // If every rank is a leader, the tree of leaders may have three levels, like the tree of one node.
        let nodes = topology.node_count() as u32;
        let across = fan_out(nodes, if nodes == ranks { 3 } else { 2 }).max(MIN_FAN_OUT);
        let within = fan_out(own.len() as u32, 2).max(MIN_FAN_OUT);
        let leader = |node: u32| topology.ranks_of(node).first().copied();
        let parent = match (index.checked_sub(1), node.checked_sub(1)) {
            (Some(before), _) => own.get((before / within) as usize).copied(),
            (None, Some(before)) => leader(before / across),
            (None, None) => None,
        };
        let mut all = Vec::new();
        if index == 0 {
            all.extend(children(node, across, nodes).filter_map(leader));
        }
        all.extend(children(index, within, own.len() as u32).filter_map(|index| own.get(index as usize).copied()));
        let depth = levels_above(node, across) + levels_above(index, within);
        Self { parent, children: all, depth }
    }

    pub(super) fn parent(&self) -> Option<u32> {
        self.parent
    }

    /// Returns the number of steps to rank 0.
    pub(super) fn depth(&self) -> u32 {
        self.depth
    }

    pub(super) fn children(&self) -> &[u32] {
        &self.children
    }
}

/// Returns the number of steps from a member of a tree to its root.
fn levels_above(member: u32, fan_out: u32) -> u32 {
    member.checked_sub(1).map_or(0, |before| levels_above(before / fan_out, fan_out) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns topologies with one node, one node per rank, nodes of equal size, and ranks scattered over some nodes.
    fn topologies(ranks: u32) -> Vec<Topology> {
        let labelled = |label: &dyn Fn(u32) -> u32| Topology::from_nodes(&(0..ranks).map(label).collect::<Vec<_>>());
        vec![
            Topology::one_node(),
            labelled(&|rank| rank),
            labelled(&|rank| rank / 16),
            labelled(&|rank| rank.wrapping_mul(0x9E37_79B9) >> 28),
            labelled(&|rank| u32::from(rank > 2)),
        ]
    }

    #[test]
    fn every_rank_has_one_parent_that_knows_it() {
        for ranks in [1, 2, 3, 5, 16, 61, 64, 513, 4096] {
            for topology in topologies(ranks) {
                let places: Vec<TreePlace> = (0..ranks).map(|rank| TreePlace::new(rank, ranks, &topology)).collect();
                let mut seen = 1;
                for (rank, place) in (0..).zip(&places) {
                    assert_eq!(place.parent().is_none(), rank == 0);
                    for &child in place.children() {
                        assert_eq!(places[child as usize].parent(), Some(rank));
                        assert_eq!(places[child as usize].depth(), place.depth() + 1);
                        seen += 1;
                    }
                }
                assert_eq!(seen, ranks);
            }
        }
    }

    #[test]
    fn the_tree_stays_shallow() {
        for (ranks, deepest) in [(1u32, 0), (512, 4), (4096, 4), (131_072, 5)] {
            let even = Topology::from_nodes(&(0..ranks).map(|rank| rank / 128).collect::<Vec<_>>());
            for topology in [Topology::one_node(), even] {
                let depth = TreePlace::new(ranks - 1, ranks, &topology).depth();
                assert!(depth <= deepest, "{ranks} ranks: {depth}");
            }
        }
    }

    /// Jobs of a few ranks on several nodes agree as fast as on one node.
    #[test]
    fn few_ranks_on_few_nodes_are_no_deeper_than_on_one() {
        for (ranks, per_node) in [(10u32, 3u32), (16, 4), (64, 8)] {
            let deepest = |topology: Topology| {
                (0..ranks).map(|rank| TreePlace::new(rank, ranks, &topology).depth()).max().unwrap_or_default()
            };
            let nodes = Topology::from_nodes(&(0..ranks).map(|rank| rank / per_node).collect::<Vec<_>>());
            assert!(deepest(nodes) <= deepest(Topology::one_node()), "{ranks} ranks");
        }
    }

    #[test]
    fn a_node_is_entered_once_and_no_rank_has_many_children() {
        for (ranks, per_node) in [(4096u32, 128u32), (131_072, 128), (1000, 7)] {
            let topology = Topology::from_nodes(&(0..ranks).map(|rank| rank / per_node).collect::<Vec<_>>());
            for rank in 0..ranks {
                let place = TreePlace::new(rank, ranks, &topology);
                let crosses = place.parent().is_some_and(|parent| parent / per_node != rank / per_node);
                assert_eq!(crosses, rank > 0 && rank % per_node == 0, "rank {rank}");
                assert!(place.children().len() <= 64);
            }
        }
    }
}
