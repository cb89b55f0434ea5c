//! Recommends settings from the forecast, and from smaller trial runs with other numbers of pivots and renegotiation
//! intervals.

use crate::error::Result;
use crate::forecast::Forecast;
use crate::plan::Plan;
use crate::program::Records;

/// A recommended setting, with the forecasts that it follows from.
#[derive(Debug, Clone)]
pub enum Advice {
    /// Pivots per rank: the smallest number whose load imbalance is close to the best.
    Pivots {
        /// The recommended number.
        value: u32,
        /// Ranks of the trial runs.
        ranks: u32,
        /// Records per rank of the trial runs.
        records: u64,
        /// Load imbalance by number of pivots.
        tries: Vec<(u32, f64)>,
    },
    /// Records of a rank between two renegotiations.
    Renegotiate {
        /// The recommended number. `None` for adaptive renegotiation.
        value: Option<u64>,
        /// The trial run with adaptive renegotiation.
        adaptive: Box<Forecast>,
        /// The trial run with seven equal intervals.
        fixed: Box<Forecast>,
    },
    /// Size of a receiver's share of the epoch.
    PartBytes {
        /// The recommended size, if the default would make too many files.
        value: Option<u64>,
        /// Files of an epoch with the default.
        files: u64,
        /// Mean size of these files in bytes.
        file_bytes: u64,
    },
}

/// Maximum number of ranks in a trial run: enough to distinguish settings, few enough to be fast.
const TRIED_RANKS: u32 = 64;

/// Maximum number of records per rank in a trial run.
const TRIED_RECORDS: u64 = 4_000;

/// The numbers of pivots that the trial runs use.
const TRIED_PIVOTS: [u32; 4] = [128, 256, 512, 1024];

/// Maximum additional load imbalance at which fewer pivots are preferred.
const TOLERATED: f64 = 0.003;

/// Maximum number of files in a folder. Other query engines can list this number without problems.
const MAX_FILES: u64 = 100_000;

/// Recommends settings for a run whose first epoch is forecast. Runs the model for those that are negotiated.
///
/// # Errors
/// As for [`RunForecast::of`](crate::RunForecast::of).
pub fn advise(plan: &Plan, ranks: u32, records: &Records, forecast: &Forecast) -> Result<Vec<Advice>> {
    if forecast.is_by_hash() {
        return Ok(vec![parts(forecast)]);
    }
    Ok(vec![pivots(plan, ranks, records)?, interval(plan, ranks, records)?, parts(forecast)])
}

/// Returns the plan with fewer ranks and records, for trial runs.
fn tried(plan: &Plan, ranks: u32) -> (Plan, u32) {
    let ranks = ranks.min(TRIED_RANKS);
    let records = plan.records.min(TRIED_RECORDS);
    let rate = plan.rate.map(|rate| rate * records as f64 / plan.records as f64);
    (Plan { records, rate, receivers: None, part_bytes: Some(0), most_records: u64::MAX, ..plan.clone() }, ranks)
}

fn pivots(plan: &Plan, ranks: u32, records: &Records) -> Result<Advice> {
    let (trial, ranks) = tried(plan, ranks);
    let mut tries = Vec::with_capacity(TRIED_PIVOTS.len());
    for pivots in TRIED_PIVOTS {
        let forecast = Forecast::of(&Plan { pivots, ..trial.clone() }, ranks, records)?;
        tries.push((pivots, forecast.load_imbalance));
    }
    let best = tries.iter().map(|tried| tried.1).fold(f64::INFINITY, f64::min);
    let value = tries.iter().find(|tried| tried.1 <= best + TOLERATED).map_or(512, |tried| tried.0);
    Ok(Advice::Pivots { value, ranks, records: trial.records, tries })
}

/// Recommends the interval that divides a rank's records as the better trial run did: both have seven intervals.
fn interval(plan: &Plan, ranks: u32, records: &Records) -> Result<Advice> {
    let (trial, ranks) = tried(plan, ranks);
    let forecast = |renegotiate| Forecast::of(&Plan { renegotiate, ..trial.clone() }, ranks, records).map(Box::new);
    let (adaptive, fixed) = (forecast(None)?, forecast(Some(interval_of(trial.records)))?);
    let cost = |forecast: &Forecast| forecast.load_imbalance + forecast.strays;
    let value = (cost(&fixed) + TOLERATED < cost(&adaptive)).then(|| interval_of(plan.records));
    Ok(Advice::Renegotiate { value, adaptive, fixed })
}

/// Returns the interval that divides a rank's records into seven.
fn interval_of(records: u64) -> u64 {
    (records / 7).max(1)
}

/// Recommends the size of a receiver's share. It should be larger than the default only if the epoch's folder would
/// have too many files.
fn parts(forecast: &Forecast) -> Advice {
    let files = forecast.files.max(1);
    let larger = || forecast.stored_bytes.div_ceil(MAX_FILES).next_power_of_two();
    Advice::PartBytes { value: (files > MAX_FILES).then(larger), files, file_bytes: forecast.stored_bytes / files }
}

#[cfg(test)]
mod tests {
    use turbidite::{Clustering, Prior, Routing};

    use super::*;
    use crate::machine::{Costs, Machine};
    use crate::program::{Distribution, Keys};

    fn plan(seed: u64) -> Plan {
        Plan {
            machine: Machine::cluster(16),
            costs: Costs::of_rows(64),
            speed: 1.0,
            time_factor: 1.0,
            memtable_bytes: 8 << 20,
            receivers: None,
            part_bytes: None,
            pivots: 512,
            renegotiate: None,
            prior: Prior::None,
            routing: Routing::ByNode,
            rate: None,
            first_turn: 128,
            turn_share: 64,
            records: 1_000_000,
            most_records: 200_000,
            seed,
        }
    }

    /// The interval was that of the trial run: 571 records of a rank that has a million.
    #[test]
    fn the_recommended_interval_is_of_the_planned_records() {
        let value = |seed| {
            let keys = Keys::Named(Distribution::HalfZero);
            let records = Records::new(keys, Clustering::Range, 64, &Records::usual_columns(), 1e6, seed).unwrap();
            match interval(&plan(seed), 32, &records).unwrap() {
                Advice::Renegotiate { value, .. } => value,
                other => panic!("{other:?}"),
            }
        };
        // Not every trial run is better with equal intervals.
        assert_eq!((1..20).find_map(value), Some(142_857));
    }

    #[test]
    fn an_interval_has_a_record() {
        assert_eq!([1, 6, 7, 20, 4_000].map(interval_of), [1, 1, 1, 2, 571]);
    }
}
