//! The threads of a process that append for all its ranks in turn, as in a job of one process.
//!
//! A thread that waits for room or a table on one rank appends nothing on its other ranks.

use super::options::MachineOptions;

/// The ranks' turns to append.
#[derive(Debug)]
pub(super) struct Turns {
    ranks: u32,
    ranks_per_node: u32,
    /// Number of threads of a node. 0 if each rank has a thread of its own.
    threads: u32,
    /// The rank whose turn it is, by thread.
    current: Vec<u32>,
}

impl Turns {
    pub(super) fn new(options: &MachineOptions) -> Self {
        let ranks_per_node = options.machine.ranks_per_node.max(1);
        let threads = options.append_threads.min(ranks_per_node);
        let firsts = |node: u32| (0..threads).map(move |thread| node * ranks_per_node + thread);
        let current = (0..options.nodes()).flat_map(firsts).collect();
        Self { ranks: options.ranks, ranks_per_node, threads, current }
    }

    /// Returns the index of a rank's thread.
    fn thread(&self, rank: u32) -> usize {
        let (node, place) = (rank / self.ranks_per_node, rank % self.ranks_per_node);
        (node * self.threads + place % self.threads) as usize
    }

    /// Returns whether a rank may append.
    pub(super) fn is_of(&self, rank: u32) -> bool {
        self.threads == 0 || self.current[self.thread(rank)] == rank
    }

    /// Ends a rank's turn. Returns the next rank of its thread that has not `ended`, if there is another one.
    pub(super) fn pass(&mut self, rank: u32, ended: impl Fn(u32) -> bool) -> Option<u32> {
        if self.threads == 0 {
            return None;
        }
        let first = rank - rank % self.ranks_per_node;
        let end = self.ranks.min(first + self.ranks_per_node);
        let mut next = rank;
        loop {
            next += self.threads;
            if next >= end {
                next = first + rank % self.ranks_per_node % self.threads;
            }
            if next == rank {
                return None;
            }
            if !ended(next) {
                let thread = self.thread(rank);
                self.current[thread] = next;
                return Some(next);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::machine::Machine;

    fn turns(ranks: u32, per_node: u32, threads: u32) -> Turns {
        let options = MachineOptions::new(Machine::cluster(per_node), ranks, 12, 1);
        Turns::new(&MachineOptions { append_threads: threads, ..options })
    }

    #[test]
    fn ranks_without_threads_in_common_append_at_any_time() {
        let mut turns = turns(3, 2, 0);
        assert!((0..3).all(|rank| turns.is_of(rank)));
        assert_eq!(turns.pass(0, |_| false), None);
        assert!((0..3).all(|rank| turns.is_of(rank)));
    }

    /// Two nodes of five and three ranks, with two threads each.
    #[test]
    fn threads_pass_through_the_ranks_of_their_node() {
        let mut turns = turns(8, 5, 2);
        for (first, expected) in [(0, vec![2, 4, 0, 2]), (1, vec![3, 1, 3]), (5, vec![7, 5, 7])] {
            let mut rank = first;
            for next in expected {
                assert!(turns.is_of(rank) && !turns.is_of(next));
                assert_eq!(turns.pass(rank, |_| false), Some(next));
                rank = next;
            }
        }
        assert_eq!(turns.pass(6, |_| false), None, "the only rank of its thread");
        assert!(turns.is_of(6));
    }

    #[test]
    fn ranks_that_have_ended_have_no_more_turns() {
        let mut turns = turns(6, 6, 1);
        assert_eq!(turns.pass(0, |rank| rank < 4), Some(4));
        assert_eq!(turns.pass(4, |rank| rank != 1), Some(1));
        assert_eq!(turns.pass(1, |_| true), None);
        assert!(turns.is_of(1));
    }
}
