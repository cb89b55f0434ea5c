//! Recommends settings, with reasons, from the forecast and from smaller trial runs with other numbers of pivots and
//! renegotiation intervals.

use serde::Serialize;

use super::forecast::Forecast;
use super::plan::Plan;
use super::program::Records;
use crate::failure::Failure;
use crate::text;

/// A recommended setting.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Advice {
    /// Name of the option of `ingest`, or of the field of the C interface.
    pub(super) option: &'static str,
    pub(super) value: String,
    pub(super) reason: String,
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
const MOST_FILES: u64 = 100_000;

pub(super) fn advise(plan: &Plan, ranks: u32, records: &Records, forecast: &Forecast) -> Result<Vec<Advice>, Failure> {
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

fn pivots(plan: &Plan, ranks: u32, records: &Records) -> Result<Advice, Failure> {
    let (plan, ranks) = tried(plan, ranks);
    let mut tries = Vec::with_capacity(TRIED_PIVOTS.len());
    for pivots in TRIED_PIVOTS {
        let forecast = Forecast::of(&Plan { pivots, ..plan.clone() }, ranks, records)?;
        tries.push((pivots, forecast.load_imbalance));
    }
    let best = tries.iter().map(|tried| tried.1).fold(f64::INFINITY, f64::min);
    let (chosen, _) = tries.iter().copied().find(|tried| tried.1 <= best + TOLERATED).unwrap_or((512, best));
    let stated: Vec<String> =
        tries.iter().map(|(pivots, found)| format!("{pivots}: {}", text::percent(*found))).collect();
    let reason = format!(
        "load imbalance of {ranks} ranks with {} records each, by pivots: {}; {chosen} is the smallest number close \
         to the best",
        text::count(plan.records),
        stated.join(", ")
    );
    Ok(Advice { option: "pivots", value: chosen.to_string(), reason })
}

fn interval(plan: &Plan, ranks: u32, records: &Records) -> Result<Advice, Failure> {
    let (plan, ranks) = tried(plan, ranks);
    let adaptive = Forecast::of(&Plan { renegotiate: None, ..plan.clone() }, ranks, records)?;
    let every = (plan.records / 7).max(1);
    let fixed = Forecast::of(&Plan { renegotiate: Some(every), ..plan.clone() }, ranks, records)?;
    let stated = format!(
        "with {ranks} ranks, adaptive renegotiation makes {} tables, with {} imbalance and {} strays; seven equal \
         intervals make {}, with {} and {}",
        adaptive.tables,
        text::percent(adaptive.load_imbalance),
        text::percent(adaptive.strays),
        fixed.tables,
        text::percent(fixed.load_imbalance),
        text::percent(fixed.strays),
    );
    let cost = |forecast: &Forecast| forecast.load_imbalance + forecast.strays;
    let better = cost(&fixed) + TOLERATED < cost(&adaptive);
    let value = if better { (plan.records / 7).to_string() } else { "adaptive".to_owned() };
    Ok(Advice { option: "renegotiate", value, reason: stated })
}

/// Recommends the size of a receiver's share. It should be larger than the default only if the epoch's folder would
/// have too many files.
fn parts(forecast: &Forecast) -> Advice {
    let files = forecast.files.max(1);
    let part_bytes = forecast.stored_bytes / files;
    let (value, reason) = if files > MOST_FILES {
        let larger = forecast.stored_bytes.div_ceil(MOST_FILES).next_power_of_two();
        let reason = format!(
            "an epoch would have {} files of {}, which makes its folder slow to list",
            text::count(files),
            text::bytes(part_bytes)
        );
        (text::bytes(larger), reason)
    } else {
        let stated = text::counted(files, "file", "files");
        ("default".to_owned(), format!("an epoch has {stated} of {} on average", text::bytes(part_bytes)))
    };
    Advice { option: "part bytes", value, reason }
}
