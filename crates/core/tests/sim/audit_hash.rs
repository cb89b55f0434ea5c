//! Audits an epoch that is clustered by hash: the partition of every record, and the Bloom filters of its row groups as
//! the `parquet` crate reads them. The partition is computed here, by the rule in FORMAT.md.

use std::collections::{BTreeMap, BTreeSet};

use turbidite::format::{EpochManifest, PartId, RowGroupEntry, RunKind};
use xxhash_rust::xxh64::xxh64;

use crate::audit::Group;
use crate::coverage::Coverage;

/// The audit of one epoch.
pub(crate) struct HashAudit {
    partitions: u32,
    /// The partition of each part, if it is stated.
    of_parts: BTreeMap<PartId, Option<u32>>,
    /// Number of row groups by part and run.
    runs: BTreeMap<(PartId, u32), u32>,
    ranks: u32,
    topology_nodes: u32,
    forwarded: u64,
    negotiated: u64,
}

/// Returns the partition of an ID by the rule in FORMAT.md.
fn partition_of(id: u64, partitions: u32) -> u32 {
    let mut mixed = xxh64(&id.to_le_bytes(), 0);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^= mixed >> 31;
    ((u128::from(mixed) * u128::from(partitions)) >> 64) as u32
}

/// Checks that the filter of a row group contains its records, and few others.
pub(crate) fn check_filter(group: &Group) -> Result<(), String> {
    let filter = group.filter.as_ref().ok_or("it has no filter")?;
    if let Some(id) = group.ids.iter().find(|id| !filter.check(*id)) {
        return Err(format!("its filter lacks record {id:x}"));
    }
    // At 7 bits a key or more, a filter has at most one false positive in ten.
    let others = group.ids.iter().map(|id| !id).filter(|id| filter.check(id)).count();
    if others > 16 + group.ids.len() / 4 {
        return Err(format!("its filter has {others} of {} absent records", group.ids.len()));
    }
    Ok(())
}

impl HashAudit {
    /// Begins the audit of an epoch.
    pub(crate) fn new(manifest: &EpochManifest) -> Result<Self, String> {
        let partitions = manifest.partitions.ok_or("the manifest states no number of partitions")?;
        let metrics = &manifest.metrics;
        let mut of_parts = BTreeMap::new();
        let mut owners: BTreeMap<u32, u32> = BTreeMap::new();
        for part in &manifest.parts {
            of_parts.insert(part.part, part.partition);
            let Some(partition) = part.partition else { continue };
            if partition >= partitions {
                return Err(format!("{:?} has partition {partition} of {partitions}", part.part));
            }
            if *owners.entry(partition).or_insert(part.part.rank) != part.part.rank {
                return Err(format!("partition {partition} has several ranks"));
            }
        }
        Ok(Self {
            partitions,
            of_parts,
            runs: BTreeMap::new(),
            ranks: metrics.ranks,
            topology_nodes: metrics.nodes,
            forwarded: metrics.forwarded,
            negotiated: u64::from(metrics.renegotiations) + metrics.strays + metrics.nan_keys,
        })
    }

    /// Checks the records of a row group against the partition of their part and against their filter.
    pub(crate) fn check(
        &mut self,
        entry: &RowGroupEntry,
        group: &Group,
        coverage: &mut Coverage,
    ) -> Result<(), String> {
        let refuse = |what: String| Err(format!("{:?}, row group {}: {what}", entry.part, entry.row_group));
        let partition = self.of_parts.get(&entry.part).copied().flatten();
        let strangers = group.ids.iter().find(|id| Some(partition_of(**id, self.partitions)) != partition);
        match (entry.kind, strangers) {
            (RunKind::Regular, Some(id)) => {
                let theirs = partition_of(*id, self.partitions);
                return refuse(format!("record {id:x} of partition {theirs} is in a part of {partition:?}"));
            }
            (RunKind::Regular, None) => coverage.met("hash: records in their partition"),
            (RunKind::Unordered, Some(_)) => coverage.met("hash: spills among the records of other partitions"),
            (RunKind::Unordered, None) => {}
            (kind, _) => return refuse(format!("a run of kind {kind:?}")),
        }
        if let Some(bounds) = entry.bounds {
            return refuse(format!("it states bounds {bounds:?}"));
        }
        check_filter(group).or_else(refuse)?;
        *self.runs.entry((entry.part, entry.run)).or_default() += 1;
        Ok(())
    }

    /// Ends the audit.
    pub(crate) fn finish(self, coverage: &mut Coverage) -> Result<(), String> {
        if self.negotiated > 0 {
            return Err(format!("{} tables, strays or keys that are no number in an epoch by hash", self.negotiated));
        }
        let used: BTreeSet<u32> = self.of_parts.values().copied().flatten().collect();
        for (is_met, what) in [
            (used.len() > 1, "hash: several partitions"),
            (self.partitions < self.ranks, "hash: partitions fewer than ranks"),
            (self.runs.values().any(|groups| *groups > 1), "hash: several row groups in a run"),
            (self.topology_nodes > 1 && self.forwarded > 0, "hash: records passed on by representatives"),
        ] {
            if is_met {
                coverage.met(what);
            }
        }
        Ok(())
    }
}
