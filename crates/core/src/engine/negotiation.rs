//! How the ranks agree on a partition table.
//!
//! A request travels up the tree; rank 0 answers with `Begin`; every rank summarizes the keys it saw since the last
//! round, merges its children's summaries into its own and passes them up; rank 0 plans the table and sends it down. One
//! round is under way at a time. Records flow with the old table meanwhile.

use super::message::{Control, MessageError};
use super::{EMPTY_RANGE, Engine, Installed, Phase, Renegotiation, RunKind};
use crate::partition::{PartitionTable, Pivots};

/// A round this rank takes part in.
#[derive(Debug)]
pub(super) struct Round {
    version: u32,
    missing_children: u32,
    contributors: u32,
    range: (u64, u64),
    /// Records received so far by the partitions of this subtree.
    loads: Vec<(u32, u64)>,
    pivots: Vec<Pivots>,
}

/// Fewest records since the last table for which a rank asks for another on its own account.
const LEAST_INTERVAL_ROWS: u64 = 256;

fn widen(range: (u64, u64), other: (u64, u64)) -> (u64, u64) {
    (range.0.min(other.0), range.1.max(other.1))
}

impl Engine {
    /// Asks for a new partition table now; codes that know when their data changed (a mesh was refined) call this.
    pub fn request_renegotiation(&mut self) {
        let version = self.table_version();
        self.receive_request(version);
    }

    /// Asks for a table when the rule in force says so.
    pub(super) fn consider_renegotiation(&mut self) {
        let held_rows = self.held.len() / self.schema.row_bytes();
        let due = match &self.installed {
            None => held_rows >= self.options.out_of_bounds_rows || self.hold_is_full(),
            Some(_) if held_rows >= self.options.out_of_bounds_rows => true,
            Some(installed) => match self.options.renegotiation {
                Renegotiation::Every(rows) => self.since_begin >= rows,
                Renegotiation::OnRequest => false,
                Renegotiation::Adaptive => {
                    let seen = self.since_begin.saturating_mul(u64::from(installed.contributors));
                    self.since_begin >= LEAST_INTERVAL_ROWS && seen.saturating_mul(2) >= installed.mass
                }
            },
        };
        if due {
            self.request_renegotiation();
        }
    }

    pub(super) fn receive_request(&mut self, version: u32) {
        let ours = self.table_version();
        if version < ours || self.requested.is_some_and(|requested| requested >= version) || self.round.is_some() {
            return;
        }
        self.requested = Some(version);
        match self.place.parent() {
            Some(parent) => self.control.push_back((parent, Control::Request { version })),
            None => self.start_round(ours + 1),
        }
    }

    fn start_round(&mut self, version: u32) {
        if matches!(self.phase, Phase::Open | Phase::Ending | Phase::Settled) && !self.quiescence.is_counting() {
            self.tell_children(&Control::Begin { version });
            self.open_round(version);
        }
    }

    pub(super) fn join_round(&mut self, version: u32) -> Result<(), MessageError> {
        if self.round.is_some() || version != self.table_version() + 1 {
            return Err(MessageError::Field { field: "table version" });
        }
        self.tell_children(&Control::Begin { version });
        self.open_round(version);
        Ok(())
    }

    /// Summarizes this rank's keys. A rank without children has all it needs at once; `exchange` passes it on.
    fn open_round(&mut self, version: u32) {
        let phase = self.phase();
        let own = self.sketch.summarize(self.options.pivots as usize, phase);
        self.round = Some(Round {
            version,
            missing_children: self.children_count(),
            contributors: u32::from(self.since_begin > 0),
            range: self.sketch_range,
            loads: self.options.partition().map(|own| (own, self.figures.received())).into_iter().collect(),
            pivots: vec![own],
        });
        self.sketch.clear();
        self.sketch_range = EMPTY_RANGE;
        self.since_begin = 0;
    }

    pub(super) fn receive_pivots(
        &mut self,
        version: u32,
        contributors: u32,
        range: (u64, u64),
        loads: Vec<(u32, u64)>,
        pivots: &[u8],
    ) -> Result<(), MessageError> {
        let pivots = Pivots::decode(pivots).map_err(|_| MessageError::Field { field: "pivots" })?;
        let Some(round) = self.round.as_mut().filter(|round| round.version == version && round.missing_children > 0)
        else {
            return Err(MessageError::Field { field: "round" });
        };
        round.missing_children -= 1;
        round.contributors = round.contributors.saturating_add(contributors);
        round.range = widen(round.range, range);
        round.loads.extend(loads);
        round.pivots.push(pivots);
        Ok(())
    }

    /// Passes a complete round on, or plans the table on rank 0.
    pub(super) fn advance_round(&mut self, deliver: &mut dyn FnMut(RunKind, &[u8])) {
        let Some(round) = self.round.take_if(|round| round.missing_children == 0) else { return };
        match self.place.parent() {
            Some(parent) => {
                let phase = self.phase();
                let merged = Pivots::merge(&round.pivots, self.options.pivots as usize, phase);
                let mut encoded = Vec::new();
                merged.encode(&mut encoded);
                self.control.push_back((
                    parent,
                    Control::Pivots {
                        version: round.version,
                        contributors: round.contributors,
                        range: round.range,
                        loads: round.loads,
                        pivots: encoded,
                    },
                ));
            }
            None => {
                self.seen_range = widen(self.seen_range, round.range);
                let mass = round.pivots.iter().map(Pivots::mass).fold(0, u64::saturating_add);
                self.seen_mass = self.seen_mass.saturating_add(mass);
                let mut loads = vec![0; self.options.receivers as usize];
                for (partition, rows) in round.loads {
                    if let Some(load) = loads.get_mut(partition as usize) {
                        *load = rows;
                    }
                }
                let table = self.planner.plan_with_loads(&round.pivots, &loads);
                let mut encoded = Vec::new();
                table.encode(&mut encoded);
                let installed = Control::Table {
                    mass: self.seen_mass,
                    contributors: round.contributors,
                    range: self.seen_range,
                    table: encoded,
                };
                self.tell_children(&installed);
                self.install(table, self.seen_mass, round.contributors, self.seen_range, deliver);
            }
        }
    }

    pub(super) fn receive_table(
        &mut self,
        mass: u64,
        contributors: u32,
        range: (u64, u64),
        table: &[u8],
        deliver: &mut dyn FnMut(RunKind, &[u8]),
    ) -> Result<(), MessageError> {
        let decoded = PartitionTable::decode(table).map_err(|_| MessageError::Field { field: "table" })?;
        if decoded.version() != self.table_version() + 1 || decoded.partitions() != self.options.receivers {
            return Err(MessageError::Field { field: "table" });
        }
        self.tell_children(&Control::Table { mass, contributors, range, table: table.to_vec() });
        self.install(decoded, mass, contributors, range, deliver);
        Ok(())
    }

    fn install(
        &mut self,
        table: PartitionTable,
        mass: u64,
        contributors: u32,
        range: (u64, u64),
        deliver: &mut dyn FnMut(RunKind, &[u8]),
    ) {
        let own_bounds = self.options.partition().map(|partition| table.closed_bounds(partition));
        self.installed = Some(Installed { table, range, mass, contributors: contributors.max(1), own_bounds });
        self.figures.tables += 1;
        self.route_held();
        for message in std::mem::take(&mut self.ahead) {
            // It was read once already, when it was put aside.
            if self.receive_data(message, deliver).is_err() {
                debug_assert!(false, "a batch was readable when it arrived");
            }
        }
    }
}
