//! The background threads of each node, which encode full memtables and write them.
//!
//! A thread works for one rank at a time, and a rank has at most one task: its next memtable waits until the last one
//! is written. A thread that encodes shares the processors with the ranks, slice by slice. A thread that waits for
//! storage needs no processor, but begins no other task.

use std::collections::VecDeque;

use super::options::{MachineOptions, Time};

/// Time for which a thread that encodes keeps a processor that others wait for.
const SLICE_NS: Time = 500_000;

/// The state of a rank's task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Task {
    /// The rank has no task.
    #[default]
    None,
    /// The memtable waits for a thread.
    Waiting { encode_ns: Time },
    /// A thread encodes the memtable, for as long as this.
    Encoding { left_ns: Time },
    /// A thread writes the memtable.
    Writing,
}

/// The next step of a rank's task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Encode for this time. Afterwards, write the memtable, if this is the last step of its encoding.
    Encode { slice_ns: Time, is_last: bool },
    /// The memtable is written.
    Completed,
    /// Nothing, since all threads are busy. The task continues when one of them is free ([`Background::release`]).
    Wait,
}

/// The background threads of all nodes, and the tasks of all ranks.
#[derive(Debug)]
pub(super) struct Background {
    ranks_per_node: u32,
    /// Number of idle threads of each node.
    idle: Vec<u32>,
    /// Ranks of each node whose tasks wait for a thread.
    waiting: Vec<VecDeque<u32>>,
    tasks: Vec<Task>,
}

impl Background {
    pub(super) fn new(options: &MachineOptions) -> Self {
        let nodes = options.nodes() as usize;
        Self {
            ranks_per_node: options.machine.ranks_per_node.max(1),
            idle: vec![options.background_threads.max(1); nodes],
            waiting: vec![VecDeque::new(); nodes],
            tasks: vec![Task::None; options.ranks as usize],
        }
    }

    fn node(&self, rank: u32) -> usize {
        (rank / self.ranks_per_node) as usize
    }

    /// Submits the next memtable of a rank without a task. Encoding it takes `encode_ns`.
    pub(super) fn submit(&mut self, rank: u32, encode_ns: Time) {
        self.tasks[rank as usize] = Task::Waiting { encode_ns };
    }

    /// Returns whether the next step of a rank's task needs a processor.
    pub(super) fn needs_processor(&self, rank: u32) -> bool {
        !matches!(self.tasks[rank as usize], Task::Writing)
    }

    /// Begins the next step of a rank's task, for which a processor is free.
    pub(super) fn next_step(&mut self, rank: u32) -> Step {
        let node = self.node(rank);
        let left_ns = match self.tasks[rank as usize] {
            Task::Waiting { .. } if self.idle[node] == 0 => {
                self.waiting[node].push_back(rank);
                return Step::Wait;
            }
            Task::Waiting { encode_ns } => {
                self.idle[node] -= 1;
                encode_ns
            }
            Task::Encoding { left_ns } => left_ns,
            Task::Writing | Task::None => {
                self.tasks[rank as usize] = Task::None;
                return Step::Completed;
            }
        };
        let slice_ns = left_ns.min(SLICE_NS);
        let is_last = slice_ns == left_ns;
        self.tasks[rank as usize] =
            if is_last { Task::Writing } else { Task::Encoding { left_ns: left_ns - slice_ns } };
        Step::Encode { slice_ns, is_last }
    }

    /// Releases the thread of a completed task. Returns the rank whose task the thread begins next.
    pub(super) fn release(&mut self, rank: u32) -> Option<u32> {
        let node = self.node(rank);
        self.idle[node] += 1;
        self.waiting[node].pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;

    fn background(ranks: u32, per_node: u32, threads: u32) -> Background {
        let options = MachineOptions::new(Machine::cluster(per_node), ranks, 12, 1);
        Background::new(&MachineOptions { background_threads: threads, ..options })
    }

    /// Performs a rank's steps until the memtable is encoded. Returns the time of each.
    fn encode(background: &mut Background, rank: u32) -> Vec<Time> {
        let mut slices = Vec::new();
        loop {
            let Step::Encode { slice_ns, is_last } = background.next_step(rank) else { panic!("a task that waits") };
            slices.push(slice_ns);
            if is_last {
                return slices;
            }
        }
    }

    #[test]
    fn a_memtable_is_encoded_in_slices() {
        let mut background = background(1, 1, 1);
        for encode_ns in [0, 1, SLICE_NS, SLICE_NS + 1, 5 * SLICE_NS - 1] {
            background.submit(0, encode_ns);
            assert!(background.needs_processor(0));
            let slices = encode(&mut background, 0);
            assert_eq!(slices.iter().sum::<Time>(), encode_ns);
            assert_eq!(slices.len() as Time, encode_ns.div_ceil(SLICE_NS).max(1));
            assert!(!background.needs_processor(0), "storage writes without a processor");
            assert_eq!(background.next_step(0), Step::Completed);
            assert_eq!(background.release(0), None);
        }
    }

    /// Threads belong to nodes, and the ranks of a node get them in the order in which they had something to encode.
    #[test]
    fn ranks_wait_for_the_threads_of_their_node() {
        let mut background = background(6, 3, 1);
        (0..6).for_each(|rank| background.submit(rank, 10));
        for first in [0, 3] {
            assert_eq!(encode(&mut background, first), [10]);
            for waiting in [first + 2, first + 1] {
                assert_eq!(background.next_step(waiting), Step::Wait);
            }
        }
        for first in [0, 3] {
            assert_eq!(background.next_step(first), Step::Completed);
            assert_eq!(background.release(first), Some(first + 2), "the rank that waited longest");
            assert_eq!(encode(&mut background, first + 2), [10]);
            assert_eq!(background.next_step(first + 2), Step::Completed);
            assert_eq!(background.release(first + 2), Some(first + 1));
        }
    }
}
