//! Schedules processors. Each node has a fixed number of processors, and each computation of its ranks runs on the
//! processor that is free first.

use super::options::{Machine, Time};

/// The processors of all nodes.
#[derive(Debug)]
pub(super) struct Processors {
    ranks_per_node: u32,
    cores_per_node: usize,
    /// Time at which each processor of each node is free.
    free: Vec<Time>,
    /// Total computing time.
    pub(super) busy_ns: u64,
}

impl Processors {
    pub(super) fn new(machine: &Machine, nodes: u32) -> Self {
        let cores_per_node = machine.cores_per_node.max(1) as usize;
        Self {
            ranks_per_node: machine.ranks_per_node.max(1),
            cores_per_node,
            free: vec![0; nodes as usize * cores_per_node],
            busy_ns: 0,
        }
    }

    fn node(&mut self, rank: u32) -> &mut [Time] {
        let node = (rank / self.ranks_per_node) as usize;
        &mut self.free[node * self.cores_per_node..(node + 1) * self.cores_per_node]
    }

    /// Returns a processor on the node of `rank` that is free at `now`, or else the one that is free first.
    fn choose(&mut self, rank: u32, now: Time) -> &mut Time {
        let cores = self.node(rank);
        let chosen = cores.iter().position(|free| *free <= now).unwrap_or_else(|| {
            let first = cores.iter().enumerate().min_by_key(|(_, free)| **free);
            first.map_or(0, |(index, _)| index)
        });
        &mut cores[chosen]
    }

    /// Returns the time at which a processor is free for `rank`, from `now` on.
    pub(super) fn free_from(&mut self, rank: u32, now: Time) -> Time {
        (*self.choose(rank, now)).max(now)
    }

    /// Computes for `duration_ns` on the node of `rank`, from `now` on. Returns the time at which the computation ends.
    pub(super) fn compute(&mut self, rank: u32, now: Time, duration_ns: Time) -> Time {
        self.busy_ns += duration_ns;
        let core = self.choose(rank, now);
        *core = (*core).max(now) + duration_ns;
        *core
    }
}
