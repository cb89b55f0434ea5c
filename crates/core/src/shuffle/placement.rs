//! Assigns an epoch's partitions to ranks.

use super::options::{EngineOptions, Renegotiation};

/// The size of a receiver's share of an epoch from which on the epoch has outgrown its receivers, in parts of the usual
/// size.
const OUTGROWN_SHARES: u64 = 2;

/// The ranks that store an epoch's partitions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Placement {
    partitions: u32,
    /// Number of ranks by which the receivers are shifted. `None` if as many ranks receive as the options permit. These
    /// are the same in each epoch.
    shift: Option<u32>,
}

impl EngineOptions {
    /// Returns the number of ranks that store an epoch if its size in bytes is known when it begins.
    pub fn receivers_of(&self, bytes: u64) -> u32 {
        let known = Some(bytes).filter(|_| self.renegotiation == Renegotiation::Adaptive);
        Placement::by_volume(self, known, 0).partitions()
    }
}

impl Placement {
    /// Returns the placement with as many receivers as the options permit.
    pub(super) fn widest(options: &EngineOptions) -> Self {
        Self { partitions: options.receivers, shift: None }
    }

    /// Returns the placement of an epoch of `bytes`, if that is known. Successive epochs, by `number`, are received by
    /// different ranks, so that no rank pays always. All ranks receive if more than half of them are needed, since more
    /// could not be added.
    pub(super) fn by_volume(options: &EngineOptions, bytes: Option<u64>, number: u32) -> Self {
        match (bytes, options.part_bytes) {
            (None, _) | (_, 0) => Self::widest(options),
            (Some(bytes), part_bytes) => {
                let wanted = bytes.div_ceil(part_bytes).max(1);
                match u32::try_from(wanted) {
                    Ok(partitions) if partitions <= options.receivers / 2 => {
                        Self { partitions, shift: Some(number % options.ranks) }
                    }
                    _ => Self::widest(options),
                }
            }
        }
    }

    /// Returns the placement in rank 0's message, or `None` if the options do not permit it.
    pub(super) fn decode(options: &EngineOptions, partitions: u32, shift: Option<u32>) -> Option<Self> {
        let fits = match shift {
            None => partitions == options.receivers,
            Some(shift) => (1..=options.receivers / 2).contains(&partitions) && shift < options.ranks,
        };
        fits.then_some(Self { partitions, shift })
    }

    /// Returns the placement with the factor by which an epoch has outgrown this one, if it has: `bytes` have been
    /// appended, and as many may follow. Every partition is divided into as many. Its receiver keeps the first.
    pub(super) fn outgrown(self, options: &EngineOptions, bytes: u64) -> Option<(Self, u32)> {
        if bytes < self.outgrown_from(options)? {
            return None;
        }
        let held = options.part_bytes.saturating_mul(u64::from(self.partitions)).max(1);
        let most = options.receivers / self.partitions.max(1);
        let factor = bytes.saturating_mul(2).div_ceil(held).min(u64::from(most)) as u32;
        self.divided(options, factor).map(|divided| (divided, factor))
    }

    /// Returns the size of an epoch, in bytes, from which on it has outgrown this placement. `None` if no more ranks
    /// may receive.
    pub(super) fn outgrown_from(self, options: &EngineOptions) -> Option<u64> {
        let bytes = options.part_bytes.saturating_mul(u64::from(self.partitions)).saturating_mul(OUTGROWN_SHARES);
        self.divided(options, 2).map(|_| bytes)
    }

    /// Returns the placement with `factor` times as many partitions, if the options permit it.
    pub(super) fn divided(self, options: &EngineOptions, factor: u32) -> Option<Self> {
        let partitions = self.partitions.checked_mul(factor).filter(|partitions| *partitions <= options.receivers)?;
        (factor == 1 || self.shift.is_some()).then_some(Self { partitions, ..self })
    }

    pub(super) fn partitions(self) -> u32 {
        self.partitions
    }

    pub(super) fn shift(self) -> Option<u32> {
        self.shift
    }

    /// Returns whether every rank stores the partition of its own number.
    pub(super) fn is_identity(self, options: &EngineOptions) -> bool {
        self.shift.is_none() && self.partitions == options.ranks
    }

    /// Returns the rank that stores partition `partition`.
    pub(super) fn receiver(self, options: &EngineOptions, partition: u32) -> u32 {
        let ranks = u64::from(options.ranks);
        let position = u64::from(partition) * ranks / u64::from(self.partitions.max(1));
        match self.shift {
            None => position as u32,
            Some(shift) => options.topology.rank_by_node(((position + u64::from(shift)) % ranks) as u32),
        }
    }

    /// Returns the partition that `rank` stores, if any.
    pub(super) fn partition(self, options: &EngineOptions, rank: u32) -> Option<u32> {
        let (ranks, partitions) = (u64::from(options.ranks), u64::from(self.partitions));
        let position = match self.shift {
            None => u64::from(rank),
            Some(shift) => (u64::from(options.topology.position_by_node(rank)) + ranks - u64::from(shift)) % ranks,
        };
        let nearest = (position * partitions).div_ceil(ranks);
        (nearest < partitions && nearest * ranks / partitions == position).then_some(nearest as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shuffle::Topology;

    fn options(ranks: u32, part_bytes: u64) -> EngineOptions {
        EngineOptions { part_bytes, ..EngineOptions::new(0, ranks) }
    }

    #[test]
    fn receivers_follow_the_volume() {
        let options = EngineOptions { receivers: 12, ..options(16, 100) };
        let partitions = |bytes| Placement::by_volume(&options, bytes, 3).partitions();
        let volumes = [None, Some(0), Some(1), Some(100), Some(101), Some(600), Some(601), Some(u64::MAX)];
        assert_eq!(volumes.map(partitions), [12, 1, 1, 1, 2, 6, 12, 12]);
        let fixed = EngineOptions { part_bytes: 0, ..options };
        assert_eq!(Placement::by_volume(&fixed, Some(1), 3), Placement::widest(&fixed));
    }

    /// Every partition has one receiver, and each receiver knows its partition.
    #[test]
    fn partitions_and_receivers_correspond() {
        for ranks in [1, 2, 7, 16, 61] {
            let labels: Vec<u32> = (0..ranks).map(|rank| rank % 5).collect();
            for topology in [Topology::one_node(), Topology::from_nodes(&labels)] {
                let options = EngineOptions { topology, ..options(ranks, 1) };
                let by_volume = (1..=u64::from(ranks)).map(|volume| (volume, volume as u32 * 3));
                for placement in by_volume.map(|(volume, number)| Placement::by_volume(&options, Some(volume), number))
                {
                    let mut found = vec![None; placement.partitions() as usize];
                    for rank in 0..ranks {
                        let Some(partition) = placement.partition(&options, rank) else { continue };
                        assert_eq!(found[partition as usize].replace(rank), None);
                        assert_eq!(placement.receiver(&options, partition), rank);
                    }
                    assert!(found.iter().all(Option::is_some), "{placement:?}: {found:?}");
                    let (partitions, shift) = (placement.partitions(), placement.shift());
                    assert_eq!(Placement::decode(&options, partitions, shift), Some(placement));
                }
            }
        }
    }

    /// The ranks of a node need not have successive numbers.
    #[test]
    fn receivers_are_spread_over_nodes_and_rotate() {
        let labels: Vec<u32> = (0..32).map(|rank| rank % 4).collect();
        let options = EngineOptions { topology: Topology::from_nodes(&labels), ..options(32, 100) };
        let mut times = [0; 32];
        for epoch in 0..32 {
            let placement = Placement::by_volume(&options, Some(800), epoch);
            let mut nodes = [0; 4];
            for rank in (0..8).map(|partition| placement.receiver(&options, partition)) {
                nodes[rank as usize % 4] += 1;
                times[rank as usize] += 1;
            }
            assert_eq!(nodes, [2; 4]);
        }
        assert_eq!(times, [8; 32]);
    }

    /// Receivers keep their records when an epoch outgrows its forecast.
    #[test]
    fn outgrown_placements_keep_their_receivers() {
        let options = EngineOptions { receivers: 48, ..options(61, 100) };
        let placement = Placement::by_volume(&options, Some(300), 17);
        assert_eq!(placement.partitions(), 3);
        assert_eq!(placement.outgrown(&options, 599), None);
        for (bytes, partitions) in [(600, 12), (601, 15), (1_200, 24), (1_201, 27), (u64::MAX, 48)] {
            let (divided, factor) = placement.outgrown(&options, bytes).unwrap();
            assert_eq!((divided.partitions(), factor), (partitions, partitions / 3), "{bytes}");
            for partition in 0..3 {
                assert_eq!(divided.receiver(&options, partition * factor), placement.receiver(&options, partition));
            }
        }
        assert_eq!(Placement::widest(&options).outgrown(&options, u64::MAX), None, "no more may receive");
    }

    #[test]
    fn placements_beyond_the_options_are_refused() {
        let options = options(16, 100);
        for (partitions, shift) in [(15, None), (17, None), (0, Some(0)), (9, Some(0)), (4, Some(16))] {
            assert_eq!(Placement::decode(&options, partitions, shift), None, "{partitions} {shift:?}");
        }
    }
}
