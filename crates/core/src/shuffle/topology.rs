//! The ranks of each node, and the routes of records between them.
//!
//! With one node, every rank sends directly to every other. With several nodes, a rank communicates only with the ranks
//! of its own node and with a few of other nodes, so that its buffers and connections do not grow with the job:
//!
//! ```text
//! sender --Outward--> representative on its node --Across--> representative on the other node --Data--> receiver
//! ```
//!
//! Each pair of nodes has one representative on either side, the same for both directions. Any rank can compute the
//! representatives. The ranks of a node divide the other nodes evenly among themselves. A hop from a rank to itself is
//! skipped: a representative's own records begin with `Across`. Records for a rank of the same node are sent directly.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::transport::Channel;

/// The node of every rank. Clones share their memory.
#[derive(Debug, Clone, Default)]
pub struct Topology {
    /// `None` if all ranks share one node.
    nodes: Option<Arc<Nodes>>,
}

#[derive(Debug)]
struct Nodes {
    /// Place of each rank.
    places: Vec<Place>,
    /// Ranks of each node, ascending. Every node has at least one rank.
    ranks: Vec<Vec<u32>>,
    /// Number of ranks of all earlier nodes, by node.
    before: Vec<u32>,
}

/// A rank's node, and its index within the node.
#[derive(Debug, Clone, Copy)]
struct Place {
    node: u32,
    index: u32,
}

impl Topology {
    /// Returns the topology in which all ranks share a node.
    pub fn one_node() -> Self {
        Self::default()
    }

    /// Creates a topology from each rank's node label. Labels are arbitrary numbers that are the same on all ranks.
    /// Nodes are numbered in the order of their lowest rank.
    pub fn from_nodes(labels: &[u32]) -> Self {
        let mut numbers = BTreeMap::new();
        let mut ranks: Vec<Vec<u32>> = Vec::new();
        let mut places = Vec::with_capacity(labels.len());
        for (rank, label) in (0..).zip(labels) {
            let node = *numbers.entry(label).or_insert(ranks.len());
            if node == ranks.len() {
                ranks.push(Vec::new());
            }
            places.push(Place { node: node as u32, index: ranks[node].len() as u32 });
            ranks[node].push(rank);
        }
        let sum = |before: &mut u32, ranks: &Vec<u32>| {
            let own = *before;
            *before += ranks.len() as u32;
            Some(own)
        };
        let before = ranks.iter().scan(0, sum).collect();
        Self { nodes: (ranks.len() > 1).then(|| Arc::new(Nodes { places, ranks, before })) }
    }

    /// Returns whether the topology describes a job of `ranks`. A topology of one node fits any number of ranks.
    pub fn fits(&self, ranks: u32) -> bool {
        self.nodes.as_ref().is_none_or(|nodes| nodes.places.len() == ranks as usize)
    }

    /// Returns the number of nodes.
    pub fn node_count(&self) -> usize {
        self.nodes.as_ref().map_or(1, |nodes| nodes.ranks.len())
    }

    /// Returns whether a rank is the lowest-numbered rank of its node.
    pub fn is_first_of_node(&self, rank: u32) -> bool {
        self.place(rank).map_or(rank == 0, |(_, index, _)| index == 0)
    }

    /// Returns a rank's node, its index within the node, and the node's ranks. Returns `None` if all ranks share one
    /// node.
    pub(super) fn place(&self, rank: u32) -> Option<(u32, u32, &[u32])> {
        let nodes = self.nodes.as_ref()?;
        let place = nodes.places.get(rank as usize)?;
        Some((place.node, place.index, nodes.ranks.get(place.node as usize)?))
    }

    /// Returns the rank at `position` in the order of nodes.
    pub(super) fn rank_by_node(&self, position: u32) -> u32 {
        let Some(nodes) = &self.nodes else { return position };
        let node = nodes.before.partition_point(|&before| before <= position).saturating_sub(1);
        let index = position - nodes.before.get(node).copied().unwrap_or(0);
        nodes.ranks.get(node).and_then(|ranks| ranks.get(index as usize)).copied().unwrap_or(position)
    }

    /// Returns a rank's position in the order of nodes.
    pub(super) fn position_by_node(&self, rank: u32) -> u32 {
        let Some(nodes) = &self.nodes else { return rank };
        let position = |place: &Place| nodes.before.get(place.node as usize).map(|before| before + place.index);
        nodes.places.get(rank as usize).and_then(position).unwrap_or(rank)
    }

    /// Returns the ranks of a node, ascending. Empty if the node does not exist.
    pub(super) fn ranks_of(&self, node: u32) -> &[u32] {
        let ranks = self.nodes.as_ref().and_then(|nodes| nodes.ranks.get(node as usize));
        ranks.map_or(&[], Vec::as_slice)
    }

    /// Returns the routes of `rank`, or `None` if all routes are direct. Representatives save nothing if every node has
    /// one rank.
    pub(super) fn routes(&self, rank: u32) -> Option<Routes> {
        let nodes = self.nodes.as_ref().filter(|nodes| nodes.ranks.iter().any(|ranks| ranks.len() > 1))?;
        Some(Routes::new(Arc::clone(nodes), rank))
    }
}

impl Nodes {
    /// Returns the rank of `node` that forwards records to and from node `other`.
    fn representative(&self, node: usize, other: usize) -> u32 {
        let ranks = &self.ranks[node];
        ranks[other % ranks.len()]
    }
}

/// The next rank on a record's route, and the channel to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NextHop {
    pub(super) to: u32,
    pub(super) channel: Channel,
}

/// Index of the hops within a rank's own node, in `Routes::by_node`.
const OWN_NODE: u32 = u32::MAX;

/// One rank's next hops, indexed: first the ranks of its own node, then its node's representatives, then those of other
/// nodes.
#[derive(Debug)]
pub(super) struct Routes {
    nodes: Arc<Nodes>,
    hops: Vec<NextHop>,
    /// Number of last hops, which lead to ranks of the own node.
    last_hops: usize,
    /// Index of the hop to the ranks of each node. For this rank's node the value is `OWN_NODE`, and a rank's place is
    /// its index. There may be thousands of nodes.
    by_node: Vec<u32>,
}

impl Routes {
    fn new(nodes: Arc<Nodes>, rank: u32) -> Self {
        let own = nodes.places[rank as usize].node as usize;
        let last_hop = |&to: &u32| NextHop { to, channel: Channel::Data };
        let mut hops: Vec<NextHop> = nodes.ranks[own].iter().map(last_hop).collect();
        let last_hops = hops.len();
        let mut by_node = vec![OWN_NODE; nodes.ranks.len()];
        let others = || (0..nodes.ranks.len()).filter(|&node| node != own);
        let mut outward = BTreeMap::new();
        for node in others() {
            let to = nodes.representative(own, node);
            if to != rank {
                let number = *outward.entry(to).or_insert(hops.len());
                if number == hops.len() {
                    hops.push(NextHop { to, channel: Channel::Outward });
                }
                by_node[node] = number as u32;
            }
        }
        for node in others().filter(|&node| nodes.representative(own, node) == rank) {
            by_node[node] = hops.len() as u32;
            hops.push(NextHop { to: nodes.representative(node, own), channel: Channel::Across });
        }
        Self { nodes, hops, last_hops, by_node }
    }

    /// Returns the index of the hop towards `destination`, or `None` if `destination` is not a rank of this job.
    #[inline]
    pub(super) fn towards(&self, destination: u32) -> Option<usize> {
        let place = self.nodes.places.get(destination as usize)?;
        let hop = *self.by_node.get(place.node as usize)?;
        Some(if hop == OWN_NODE { place.index } else { hop } as usize)
    }

    /// Returns whether this hop is the last one, which leads to the receiver.
    #[inline]
    pub(super) fn is_last(&self, hop: usize) -> bool {
        hop < self.last_hops
    }

    pub(super) fn hops(&self) -> &[NextHop] {
        &self.hops
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Labels of nodes with 3, 2 and 2 ranks, in no particular order.
    const UNEVEN: [u32; 7] = [9, 9, 4, 9, 4, 7, 7];

    fn route(topology: &Topology, from: u32, destination: u32) -> Vec<(u32, Channel)> {
        let mut path = Vec::new();
        let mut at = from;
        loop {
            let routes = topology.routes(at).unwrap();
            let NextHop { to, channel } = routes.hops()[routes.towards(destination).unwrap()];
            path.push((to, channel));
            at = to;
            if channel == Channel::Data {
                return path;
            }
        }
    }

    /// The expected routes are written by hand: node 0 is ranks 0, 1 and 3, node 1 is ranks 2 and 4, node 2 is ranks 5
    /// and 6.
    #[test]
    fn an_uneven_job_by_hand() {
        use Channel::{Across, Data, Outward};
        let topology = Topology::from_nodes(&UNEVEN);
        assert_eq!(topology.node_count(), 3);
        assert_eq!(route(&topology, 0, 3), [(3, Data)], "a rank of the same node");
        assert_eq!(route(&topology, 0, 4), [(1, Outward), (2, Across), (4, Data)]);
        assert_eq!(route(&topology, 4, 0), [(2, Outward), (1, Across), (0, Data)], "the same way back");
        assert_eq!(route(&topology, 1, 2), [(2, Across), (2, Data)], "both are representatives");
        assert_eq!(route(&topology, 0, 6), [(3, Outward), (5, Across), (6, Data)]);
        assert_eq!(route(&topology, 2, 6), [(6, Across), (6, Data)], "and so is the receiver here");
    }

    #[test]
    fn every_rank_is_reached_in_three_hops_whose_channels_only_ascend() {
        for (ranks, nodes) in [(7u32, 3u32), (16, 4), (30, 7), (33, 2), (64, 9), (100, 60)] {
            let labels: Vec<u32> = (0..ranks).map(|rank| (u64::from(rank * rank) % u64::from(nodes)) as u32).collect();
            let topology = Topology::from_nodes(&labels);
            for from in 0..ranks {
                for to in 0..ranks {
                    let path = route(&topology, from, to);
                    assert_eq!(path.last(), Some(&(to, Channel::Data)));
                    let order = [Channel::Outward, Channel::Across, Channel::Data];
                    let places: Vec<_> = path.iter().map(|hop| order.iter().position(|&c| c == hop.1)).collect();
                    assert!(places.is_sorted_by(|one, other| one < other), "{path:?}");
                    let mut at = from;
                    for (next, channel) in path {
                        let same = labels[at as usize] == labels[next as usize];
                        assert_eq!(same, channel != Channel::Across, "{at} to {next} of {from} to {to}");
                        at = next;
                    }
                }
            }
        }
    }

    #[test]
    fn next_hops_are_the_nodes_ranks_and_an_even_share_of_the_others() {
        for (ranks, nodes) in [(16u32, 4u32), (1024, 32), (4096, 128), (48, 24)] {
            let per_node = ranks / nodes;
            let labels: Vec<u32> = (0..ranks).map(|rank| rank / per_node).collect();
            let topology = Topology::from_nodes(&labels);
            let mut across = 0;
            for rank in (0..ranks).step_by(7) {
                let routes = topology.routes(rank).unwrap();
                let count = |channel| routes.hops().iter().filter(|hop| hop.channel == channel).count() as u32;
                assert_eq!(count(Channel::Data), per_node);
                assert!(count(Channel::Outward) < per_node);
                assert!(count(Channel::Across) <= nodes.div_ceil(per_node));
                across += count(Channel::Across);
            }
            assert!(across > 0);
        }
    }

    #[test]
    fn one_node_or_one_rank_on_each_needs_no_representatives() {
        assert!(Topology::one_node().routes(3).is_none());
        assert!(Topology::from_nodes(&[5; 8]).routes(3).is_none());
        assert!(Topology::from_nodes(&[0, 1, 2]).routes(1).is_none());
        assert!(Topology::from_nodes(&[]).fits(12), "no nodes named: one");
        assert!(Topology::from_nodes(&UNEVEN).fits(7));
        assert!(!Topology::from_nodes(&UNEVEN).fits(8));
        assert_eq!(Topology::from_nodes(&UNEVEN).routes(0).unwrap().towards(7), None);
    }
}
