//! Counts how often each fault and each interesting situation occurred. A sweep tests only the situations that it
//! covers.

use std::collections::BTreeMap;

/// The situations that a sweep must cover.
pub(crate) const REQUIRED: &[&str] = &[
    // Faults.
    "fault: power failure, only what was synced survives",
    "fault: power failure, some of the rest survives",
    "fault: job killed",
    "fault: one rank killed",
    "fault: torn write at a crash",
    "fault: input/output error",
    "fault: disk full, write cut short",
    "fault: stall longer than the limit",
    "fault: stall shorter than the limit",
    "fault: bit rot",
    // Crashes before each kind of file operation, during opening, writing, committing, replacing and truncating.
    "crash before: lock",
    "crash before: dataset.json",
    "crash before: part create",
    "crash before: part write",
    "crash before: part sync",
    "crash before: manifest create",
    "crash before: manifest write",
    "crash before: manifest sync",
    "crash before: sync manifest/",
    "crash before: sync attempt",
    "crash before: publish",
    "crash before: exchange",
    "crash before: set aside",
    "crash before: sync data/",
    "crash before: sync tmp/",
    "crash before: remove old data",
    "crash before: remove manifest",
    "crash before: truncate",
    "error at: part write",
    "error at: part sync",
    "error at: manifest write",
    "error at: manifest sync",
    "error at: publish",
    "error at: exchange",
    "error at: sync data/",
    // Situations of the shuffle.
    "shuffle: strays",
    "shuffle: spills",
    "shuffle: keys that are no number",
    "shuffle: held out of bounds or before the first table",
    "shuffle: records passed on by representatives",
    "shuffle: no credit",
    "shuffle: renegotiation under way when the last rank ends",
    "shuffle: answer to a round that the end overtook",
    "shuffle: epoch begun with a table",
    "shuffle: urgent request after such a table",
    "shuffle: round without a table",
    "shuffle: deliveries counted more than once",
    "shuffle: a rank without records",
    "shuffle: receivers fewer than ranks",
    "shuffle: receivers by volume",
    "shuffle: partitions divided",
    // Situations of a job.
    "job: several runs in a part",
    "job: several parts of a rank",
    "job: empty epoch",
    "job: epoch committed",
    "job: epoch failed",
    "job: epoch replaced",
    "job: epoch skipped",
    "job: epoch refused since it exists",
    "job: truncated",
    "job: refused since it is locked",
    "job: lock of a dead writer taken over",
    "job: lock broken",
    "job: living writer's lock respected",
    "job: running writer's lock not broken on request",
    "job: a full disk, and no useless file left",
    "job: broken lock noticed by its writer",
    "job: replacement completed by the next writer",
    "job: salvaged",
    "job: ranks lost each other",
    // Datasets that are clustered by hash.
    "hash: records in their partition",
    "hash: spills among the records of other partitions",
    "hash: several partitions",
    "hash: partitions fewer than ranks",
    "hash: several row groups in a run",
    "hash: absent id looked up",
    "hash: lookup equals a scan",
    "hash: lookup in an epoch with corruption",
    "hash: flip in a filter",
    "hash: corrupt filter noticed",
    "hash: salvaged",
    "hash: records passed on by representatives",
    // Datasets that are clustered by space.
    "space: every record once",
    "space: several partitions",
    "space: NaN coordinates",
    "space: rows at the highest level",
    "space: rows at the highest level by weight",
    "space: strays above level 0",
    // Indexes that are made while records are written.
    "index: one entry for each record",
    "index: carried columns",
    "index: several partitions",
    "index: entries of an epoch that was never committed",
    "index: no credit",
    "index: spills",
    "bitmap: a bin for each value",
    "bitmap: parts that have rolled over",
    // Readers.
    "reader: between two file operations",
    "reader: while an epoch is being replaced",
    "reader: old data after its replacement",
    "reader: corruption reported",
];

/// Counters by situation.
#[derive(Debug, Clone, Default)]
pub(crate) struct Coverage {
    counts: BTreeMap<String, u64>,
}

impl Coverage {
    pub(crate) fn met(&mut self, what: impl Into<String>) {
        *self.counts.entry(what.into()).or_default() += 1;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (what, count) in &other.counts {
            *self.counts.entry(what.clone()).or_default() += count;
        }
    }

    pub(crate) fn count(&self, what: &str) -> u64 {
        self.counts.get(what).copied().unwrap_or_default()
    }

    pub(crate) fn missing(&self) -> Vec<&'static str> {
        REQUIRED.iter().copied().filter(|what| self.count(what) == 0).collect()
    }

    pub(crate) fn print(&self) {
        for (what, count) in &self.counts {
            println!("{count:10}  {what}");
        }
    }
}
