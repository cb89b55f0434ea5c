//! The partitioner's messages: pivots and tables. Every accepted table routes every key to a partition whose bounds
//! contain the key.

use turbidite::partition::{PartitionTable, Pivots, Sketch, TablePlanner, TablePlannerOptions};
use turbidite::{Column, DataType};
use turbidite::{KeyOrder, Schema};

use super::script::Script;

fn order() -> KeyOrder {
    Schema::new(vec![Column::new("key", DataType::F32)], "key").expect("it is a schema").key_order()
}

fn sample_pivots(count: u64, step: u64) -> Pivots {
    let mut sketch = Sketch::for_keys(order(), Sketch::DEFAULT_CAPACITY, 1);
    let ordinals: Vec<u64> = (0..count).map(|index| index * step).collect();
    sketch.observe(&ordinals);
    sketch.summarize(8, 0.5)
}

fn block(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u16).to_le_bytes()[..], bytes].concat()
}

/// Returns the seeds of the corpus.
pub fn seeds() -> Vec<Vec<u8>> {
    let encoded = |pivots: &Pivots| {
        let mut bytes = Vec::new();
        pivots.encode(&mut bytes);
        bytes
    };
    let pivots: Vec<Pivots> =
        [(100, 3), (50, 0), (3, 1 << 50), (0, 1)].map(|(count, step)| sample_pivots(count, step)).into();
    let mut planner = TablePlanner::new(4, 1, TablePlannerOptions::default());
    let mut table = Vec::new();
    planner.plan(&pivots).encode(&mut table);
    let blocks: Vec<u8> = pivots.iter().flat_map(|pivots| block(&encoded(pivots))).collect();
    let single = |pivots: &Pivots| [&[1, 3, 1][..], &block(&encoded(pivots))].concat();
    let mut seeds: Vec<Vec<u8>> = pivots.iter().map(single).collect();
    seeds.push([&[4, 4, 0][..], &blocks].concat());
    seeds.push([&[0, 4, 0][..], &block(&table)].concat());
    seeds
}

/// Decodes the messages, merges the pivots and plans tables.
pub fn target(data: &[u8]) {
    let mut script = Script::new(data);
    let count = script.byte() % 6;
    let partitions = u32::from(script.byte());
    let loads = script.byte();
    let mut many = Vec::new();
    for _ in 0..count {
        let Ok(pivots) = Pivots::decode(script.long_chunk()) else { continue };
        let mut again = Vec::new();
        pivots.encode(&mut again);
        assert_eq!(Pivots::decode(&again).as_ref(), Ok(&pivots), "what was read can be written");
        many.push(pivots);
    }
    if !many.is_empty() {
        join(&many, partitions, loads, &mut script);
    }
    if let Ok(table) = PartitionTable::decode(script.long_chunk()) {
        let mut again = Vec::new();
        table.encode(&mut again);
        assert_eq!(PartitionTable::decode(&again), Ok(table.clone()));
        routes(&table, &mut script);
    }
}

fn join(many: &[Pivots], partitions: u32, loads: u8, script: &mut Script<'_>) {
    let merged = Pivots::merge(many, usize::from(script.byte()), f64::from(script.byte()) / 256.0);
    let mut bytes = Vec::new();
    merged.encode(&mut bytes);
    assert!(Pivots::decode(&bytes).is_ok(), "what is passed on is understood");
    let _ = Pivots::model(many).extremes();
    let options = TablePlannerOptions { remainder: f64::from(loads) / 64.0, ..TablePlannerOptions::default() };
    let mut planner = TablePlanner::new(partitions, 1, options);
    for _ in 0..3 {
        let reached: Vec<u64> = (0..partitions).map(|_| if loads & 1 == 0 { 0 } else { script.long() }).collect();
        let scaled: Vec<Pivots> = many.iter().map(|pivots| pivots.clone().scaled(f64::from(script.byte()))).collect();
        let table = planner.plan_with_loads(&scaled, &reached);
        assert_eq!(table.partitions(), partitions.max(1));
        routes(&table, script);
    }
}

/// Checks that every key is routed to an existing partition that contains the key.
fn routes(table: &PartitionTable, script: &mut Script<'_>) {
    let cuts = table.cuts().iter().map(|cut| cut.ordinal).take(64);
    let near = cuts.flat_map(|cut| [cut.saturating_sub(1), cut, cut.saturating_add(1)]);
    let ordinals: Vec<u64> = near.chain([0, u64::MAX, script.long()]).collect();
    for ordinal in ordinals {
        for tie in [0, script.word(), u32::MAX] {
            let partition = table.destination(ordinal, tie);
            assert!(partition < table.partitions(), "{ordinal} of tie {tie} goes to {partition}");
            let (low, high) = table.closed_bounds(partition);
            assert!((low..=high).contains(&ordinal), "{ordinal} lies outside of {low} to {high}");
        }
    }
}
