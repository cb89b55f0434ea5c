//! The faults of one launch of the job, and their times.

use std::io::ErrorKind;
use std::time::Duration;

use crate::coverage::Coverage;
use crate::random::Random;

/// The time of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trigger {
    /// At the n-th file operation of the launch, counted over all ranks.
    Operation(u64),
    /// At the n-th file operation after the start of the n-th commit. Commits are counted from 1.
    Commit { number: u64, operation: u64 },
    /// Between two file operations, at a given turn.
    Turn(u64),
}

/// The kind of a storage failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Operations fail without effect.
    Broken,
    /// Writes are incomplete. All other operations succeed.
    Full,
    /// Operations take this many milliseconds longer.
    Slow { ms: u64 },
}

/// A crash of one rank, or of the whole job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Crash {
    pub(crate) who: Option<u32>,
    pub(crate) at: Trigger,
    pub(crate) torn: bool,
}

/// A sequence of operations that fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Trouble {
    pub(crate) failure: Failure,
    /// The rank whose operations fail, or `None` for all ranks.
    pub(crate) rank: Option<u32>,
    pub(crate) at: Trigger,
    /// Number of matching operations that fail.
    pub(crate) count: u64,
}

/// The faults of a launch.
#[derive(Debug, Clone, Default)]
pub(crate) struct Plan {
    pub(crate) crash: Option<Crash>,
    pub(crate) troubles: Vec<Trouble>,
}

/// The effect of the faults on one operation.
#[derive(Debug)]
pub(crate) enum Verdict {
    Go,
    Stall(Duration),
    /// The operation fails. If it is a write, this many 256ths of it take effect.
    Fail {
        kind: ErrorKind,
        written: u64,
    },
    /// This rank, or all ranks, die at the operation. If it is a write, this many 256ths of it take effect.
    Crash {
        who: Option<u32>,
        written: u64,
    },
    /// The rank has died.
    Dead,
}

/// Maximum delay of background work, multiplied by the rank's slowness.
const LONGEST_WORK_DELAY_NS: u64 = 80_000;

/// The planned faults, and their progress.
#[derive(Debug)]
pub(crate) struct Faults {
    plan: Plan,
    stall_limit: Duration,
    operations: u64,
    commits: u64,
    commit_operations: u64,
    /// Whether the last replacement has set old data aside, and has not published the new data.
    set_aside: bool,
    /// Number of operations that failed, or that took as long as the stall limit.
    pub(crate) hits: u64,
    /// Number of operations that failed though the disk was not full.
    pub(crate) broken: u64,
    /// Number of failed syncs after a commit point.
    pub(crate) failed_syncs: u64,
    pub(crate) stalled: bool,
    pub(crate) crashed: Option<Option<u32>>,
}

impl Faults {
    pub(crate) fn new(plan: Plan, stall_limit: Duration) -> Self {
        Self {
            plan,
            stall_limit,
            operations: 0,
            commits: 0,
            commit_operations: 0,
            set_aside: false,
            hits: 0,
            broken: 0,
            failed_syncs: 0,
            stalled: false,
            crashed: None,
        }
    }

    fn has_come(&self, at: Trigger) -> bool {
        match at {
            Trigger::Operation(number) => self.operations >= number,
            Trigger::Commit { number, operation } => (self.commits, self.commit_operations) >= (number, operation),
            Trigger::Turn(_) => false,
        }
    }

    /// Returns whether a crash that is planned for later is to happen before this operation already. Few crashes would
    /// hit the two operations otherwise: the first rename of a truncation, and the second one of a replacement without
    /// exchange.
    fn is_rare(&mut self, at: Trigger, step: &'static str) -> bool {
        let is_second = step == "publish" && std::mem::take(&mut self.set_aside);
        self.set_aside |= step == "set aside";
        match at {
            Trigger::Operation(number) | Trigger::Turn(number) if number % 8 == 0 => step == "truncate",
            Trigger::Operation(number) | Trigger::Turn(number) if number % 8 == 1 => is_second,
            _ => false,
        }
    }

    /// Returns the ranks that die at this turn.
    pub(crate) fn due_by_turn(&mut self, turn: u64) -> Option<Option<u32>> {
        let crash = self.plan.crash.take_if(|crash| matches!(crash.at, Trigger::Turn(at) if turn >= at))?;
        self.crashed = Some(crash.who);
        Some(crash.who)
    }

    pub(crate) fn work_delay_ns(&self, random: &mut Random, slowness: u64) -> u64 {
        random.below(LONGEST_WORK_DELAY_NS) * slowness
    }

    pub(crate) fn judge(
        &mut self,
        random: &mut Random,
        coverage: &mut Coverage,
        rank: u32,
        step: &'static str,
        is_write: bool,
    ) -> Verdict {
        self.operations += 1;
        self.commit_operations += 1;
        if step == "manifest create" {
            self.commits += 1;
            self.commit_operations = 0;
        }
        if let Some(crash) = self.plan.crash
            && crash.who.is_none_or(|who| who == rank)
            && (self.has_come(crash.at) || self.is_rare(crash.at, step))
        {
            self.plan.crash = None;
            self.crashed = Some(crash.who);
            coverage.met(format!("crash before: {step}"));
            let written = if crash.torn && is_write { random.below(257) } else { 0 };
            if written > 0 {
                coverage.met("fault: torn write at a crash");
            }
            return Verdict::Crash { who: crash.who, written };
        }
        for index in 0..self.plan.troubles.len() {
            let Trouble { failure, rank: only, at, count } = self.plan.troubles[index];
            let hits = failure != Failure::Full || is_write;
            if count == 0 || !hits || only.is_some_and(|only| only != rank) || !self.has_come(at) {
                continue;
            }
            self.plan.troubles[index].count -= 1;
            return self.strike(random, coverage, step, failure);
        }
        Verdict::Go
    }

    fn strike(
        &mut self,
        random: &mut Random,
        coverage: &mut Coverage,
        step: &'static str,
        failure: Failure,
    ) -> Verdict {
        coverage.met(format!("error at: {step}"));
        match failure {
            Failure::Slow { ms } => {
                let length = Duration::from_millis(ms);
                if length >= self.stall_limit / 2 {
                    self.stalled = true;
                    coverage.met("fault: stall longer than the limit");
                } else {
                    coverage.met("fault: stall shorter than the limit");
                }
                return Verdict::Stall(length);
            }
            Failure::Broken => {
                self.hits += 1;
                self.broken += 1;
                coverage.met("fault: input/output error");
            }
            Failure::Full => {
                self.hits += 1;
                coverage.met("fault: disk full, write cut short");
            }
        }
        if matches!(step, "sync data/" | "sync tmp/") {
            self.failed_syncs += 1;
        }
        match failure {
            Failure::Full => Verdict::Fail { kind: ErrorKind::StorageFull, written: random.below(256) },
            _ => Verdict::Fail { kind: ErrorKind::Other, written: 0 },
        }
    }
}
