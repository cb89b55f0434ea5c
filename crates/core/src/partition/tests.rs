//! Tests of several modules together: routing compared with a linear scan, balance on hostile input, and merging
//! compared with exact quantiles.

use proptest::prelude::*;

use super::*;
use crate::random::Random;
use crate::schema::{DataType, KeyOrder};

const SLOTS: usize = 512;
const FAN_OUT: usize = 64;

fn cut(ordinal: u64, tie: u32) -> CutPoint {
    CutPoint { ordinal, tie }
}

/// Generates keys that are close together or at the ends, so that they often coincide.
fn some_key() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..6, Just(u64::MAX), Just(u64::MAX - 1), Just(1u64 << 63), any::<u64>()]
}

fn some_tie() -> impl Strategy<Value = u32> {
    prop_oneof![Just(0), Just(1), Just(u32::MAX), any::<u32>()]
}

fn some_table() -> impl Strategy<Value = PartitionTable> {
    prop::collection::vec((some_key(), some_tie()), 0..70).prop_map(|mut cuts| {
        cuts.sort_unstable();
        PartitionTable::new(3, cuts.into_iter().map(|(ordinal, tie)| cut(ordinal, tie)).collect()).expect("sorted")
    })
}

proptest! {
    #[test]
    fn destination_is_the_count_of_cuts_at_or_below(table in some_table(), key in some_key(), tie in some_tie()) {
        let expected = table.cuts().iter().filter(|cut| (cut.ordinal, cut.tie) <= (key, tie)).count();
        prop_assert_eq!(table.destination(key, tie) as usize, expected);
        // The position of a cut point belongs to the partition after it.
        for (index, cut) in table.cuts().iter().enumerate() {
            prop_assert!(table.destination(cut.ordinal, cut.tie) as usize > index);
        }
    }

    #[test]
    fn bounds_contain_what_is_routed(table in some_table(), keys in prop::collection::vec((some_key(), some_tie()), 50)) {
        for (key, tie) in keys {
            let (low, high) = table.closed_bounds(table.destination(key, tie));
            prop_assert!(low <= key && key <= high);
        }
        for pair in 1..table.partitions() {
            prop_assert!(table.closed_bounds(pair - 1).1 <= table.closed_bounds(pair).0.max(table.closed_bounds(pair - 1).0));
        }
        prop_assert_eq!(table.closed_bounds(0).0, 0);
        prop_assert_eq!(table.closed_bounds(table.partitions() - 1).1, u64::MAX);
    }

    #[test]
    fn batches_route_as_single_records(table in some_table(), keys in prop::collection::vec(some_key(), 0..40), seed: u32) {
        let mut batch = vec![77];
        table.destinations(&keys, &mut TieSequence::new(seed), &mut batch);
        let mut ties = TieSequence::new(seed);
        let single: Vec<u32> = keys.iter().map(|key| table.destination(*key, ties.next_tie())).collect();
        prop_assert_eq!(&batch[1..], &single[..]);
    }

    #[test]
    fn tables_survive_messages(table in some_table(), cut_off in 1usize..12) {
        let mut bytes = Vec::new();
        table.encode(&mut bytes);
        prop_assert_eq!(PartitionTable::decode(&bytes), Ok(table));
        prop_assert!(PartitionTable::decode(&bytes[..bytes.len().saturating_sub(cut_off)]).is_err());
    }

    #[test]
    fn any_bytes_are_refused_or_usable(bytes in prop::collection::vec(any::<u8>(), 0..200), points in 0u8..20) {
        if let Ok(table) = PartitionTable::decode(&bytes) {
            table.destination(5, 5);
        }
        if let Ok(pivots) = Pivots::decode(&bytes) {
            TablePlanner::new(9, 0, TablePlannerOptions::default()).plan(&[pivots]);
        }
        // Headers that pass the first checks, followed by hostile content
        let mut formed = vec![0u8; 37];
        formed[..4].copy_from_slice(&[255; 4]);
        formed[16..24].copy_from_slice(&[255; 8]);
        formed[24..28].copy_from_slice(&bytes.iter().copied().chain([0; 4]).take(4).collect::<Vec<_>>());
        formed[32] = points;
        formed[36] = bytes.first().map_or(0, |byte| byte % 4);
        let mut words: Vec<u64> = bytes.chunks_exact(8).map(|raw| u64::from_le_bytes(raw.try_into().expect("eight"))).collect();
        words.resize(points.into(), 7);
        words.sort_unstable();
        formed.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        if let Ok(pivots) = Pivots::decode(&formed) {
            let merged = Pivots::merge(&[pivots.clone(), pivots], 40, 0.3);
            TablePlanner::new(9, 0, TablePlannerOptions::default()).plan(&[merged]);
        }
    }

    #[test]
    fn pivots_survive_messages_and_keep_their_mass(
        keys in prop::collection::vec(some_key(), 0..600), slots in 0usize..200, phase in 0.0f64..1.0, order in 0usize..3
    ) {
        let order = KeyOrder::new([DataType::U64, DataType::F32, DataType::F64][order]).unwrap();
        let mut sketch = Sketch::for_keys(order, 256, 5);
        sketch.observe(&keys);
        let pivots = sketch.summarize(slots, phase);
        prop_assert_eq!(pivots.mass(), keys.len() as u64);
        prop_assert_eq!(pivots.extremes().is_some(), !keys.is_empty());
        let mut bytes = Vec::new();
        pivots.encode(&mut bytes);
        prop_assert!(bytes.len() <= 8 * (slots.max(16) + 1), "a message is no longer than CARP's");
        prop_assert_eq!(Pivots::decode(&bytes), Ok(pivots.clone()));
        let merged = Pivots::merge(&[pivots.clone(), Pivots::default(), pivots], slots, phase);
        prop_assert_eq!(merged.mass(), 2 * keys.len() as u64);
        let model = Pivots::model(&[merged]);
        prop_assert!((model.mass() - 2.0 * keys.len() as f64).abs() < 1e-3, "{}", model.mass());
    }
}

#[test]
fn cuts_out_of_order_are_refused() {
    assert!(PartitionTable::new(0, vec![cut(2, 0), cut(1, 9)]).is_err());
    assert!(PartitionTable::new(0, vec![cut(2, 1), cut(2, 0)]).is_err());
    assert_eq!(PartitionTable::new(0, Vec::new()).expect("one partition").destination(u64::MAX, u32::MAX), 0);
}

#[test]
fn ties_spread_evenly_over_any_stretch() {
    for seed in 0..50 {
        let mut ties = TieSequence::new(seed);
        let mut counts = [0u32; 16];
        for _ in 0..1600 {
            counts[(ties.next_tie() >> 28) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (97..=103).contains(count)), "{counts:?}");
    }
}

/// Returns a stream of keys of the named kind.
fn hostile(kind: &str, count: usize, seed: u64) -> (KeyOrder, Vec<u64>) {
    let mut random = Random::new(seed);
    let mut unit = move || (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
    let mut normal = {
        let mut unit = unit.clone();
        move || (-2.0 * (1.0 - unit()).ln()).sqrt() * (std::f64::consts::TAU * unit()).cos()
    };
    let double = KeyOrder::new(DataType::F64).unwrap();
    let whole = KeyOrder::new(DataType::U64).unwrap();
    let of = |value: f64| double.ordinal(&value.to_le_bytes());
    let mut equal = |share: f64| (0..count).map(|_| of(if unit() < share { 0.0 } else { normal().exp() })).collect();
    match kind {
        "half equal" => (double, equal(0.5)),
        "nine tenths equal" => (double, equal(0.9)),
        "all equal" => (double, equal(1.0)),
        "lognormal" => (double, equal(0.0)),
        "lognormal * 1e-30" => (double, (0..count).map(|_| of(normal().exp() * 1e-30)).collect()),
        "normal" => (double, (0..count).map(|_| of(normal())).collect()),
        "infinite" => {
            let key = |_| if unit() < 0.01 { f64::INFINITY.copysign(normal()) } else { normal() };
            (double, (0..count).map(key).map(of).collect())
        }
        "digits" => (whole, (0..count).map(|_| (unit() * 10.0) as u64).collect()),
        "ends" => (
            whole,
            (0..count)
                .map(|_| if unit() < 0.5 { (unit() * 3.0) as u64 } else { u64::MAX - (unit() * 3.0) as u64 })
                .collect(),
        ),
        "all of u64" => (whole, (0..count).map(|_| (unit() * 1.8e19) as u64).collect()),
        _ => unreachable!("{kind}"),
    }
}

/// Feeds the keys of all ranks in lockstep. Returns the loads of the partitions.
fn simulate(order: KeyOrder, ranks: &[Vec<u64>], partitions: u32, exact_loads: bool) -> Vec<u64> {
    let mut random = Random::new(11);
    let mut phase = move || (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
    let mut sketches: Vec<Sketch> = (0..ranks.len()).map(|rank| Sketch::for_keys(order, 4096, rank as u64)).collect();
    let mut ties: Vec<TieSequence> = (0..ranks.len()).map(|rank| TieSequence::new(rank as u32)).collect();
    let mut planner = TablePlanner::new(partitions, 0, TablePlannerOptions::default());
    let mut loads = vec![0u64; partitions as usize];
    let longest = ranks.iter().map(Vec::len).max().unwrap_or(0);
    let interval = longest.div_ceil(7).max(1);
    let mut start = 0;
    while start < longest {
        // The first table is planned from the first appends, and later tables from the keys before them.
        let seen = if start == 0 { 0..1000.min(interval) } else { start - interval..start };
        for (sketch, keys) in sketches.iter_mut().zip(ranks) {
            sketch.clear();
            sketch.observe(&keys[seen.start.min(keys.len())..seen.end.min(keys.len())]);
        }
        let leaves: Vec<Pivots> = sketches.iter_mut().map(|sketch| sketch.summarize(SLOTS, phase())).collect();
        let inner: Vec<Pivots> = leaves.chunks(FAN_OUT).map(|group| Pivots::merge(group, SLOTS, phase())).collect();
        let table = if exact_loads { planner.plan_with_loads(&inner, &loads) } else { planner.plan(&inner) };
        assert_eq!(table.partitions(), partitions);
        for (keys, ties) in ranks.iter().zip(&mut ties) {
            let mut destinations = Vec::new();
            table.destinations(
                &keys[start.min(keys.len())..(start + interval).min(keys.len())],
                ties,
                &mut destinations,
            );
            for destination in destinations {
                loads[destination as usize] += 1;
            }
        }
        start += interval;
    }
    loads
}

/// Returns the largest load divided by the mean.
fn largest(loads: &[u64]) -> f64 {
    let total: u64 = loads.iter().sum();
    loads.iter().copied().max().unwrap_or(0) as f64 * loads.len() as f64 / total as f64
}

fn deal(keys: &[u64], ranks: usize) -> Vec<Vec<u64>> {
    let mut dealt = vec![Vec::new(); ranks];
    for (index, key) in keys.iter().enumerate() {
        dealt[index % ranks].push(*key);
    }
    dealt
}

const KINDS: [&str; 10] = [
    "half equal",
    "nine tenths equal",
    "all equal",
    "lognormal",
    "lognormal * 1e-30",
    "normal",
    "infinite",
    "digits",
    "ends",
    "all of u64",
];

#[test]
fn hostile_distributions_stay_balanced() {
    for kind in KINDS {
        for ranks in [1, 2, 3, 7, 61] {
            let (order, keys) = hostile(kind, 60_000, ranks as u64);
            for exact_loads in [false, true] {
                let loads = simulate(order, &deal(&keys, ranks), ranks as u32, exact_loads);
                assert_eq!(loads.iter().sum::<u64>(), keys.len() as u64);
                let largest = largest(&loads);
                assert!(largest < 1.15, "{kind} on {ranks} ranks, exact loads {exact_loads}: {largest}");
            }
        }
    }
}

#[test]
fn more_partitions_than_points_share_a_point_mass() {
    for kind in ["half equal", "nine tenths equal", "all equal", "digits"] {
        let (order, keys) = hostile(kind, 513_000, 1);
        let largest = largest(&simulate(order, &deal(&keys, 513), 513, true));
        assert!(largest < 1.2, "{kind}: {largest}");
    }
}

#[test]
fn one_rank_may_own_everything_and_others_nothing() {
    let (order, keys) = hostile("lognormal", 200_000, 3);
    let mut ranks = vec![Vec::new(); 61];
    ranks[17] = keys;
    let largest = largest(&simulate(order, &ranks, 61, true));
    assert!(largest < 1.15, "{largest}");
}

#[test]
fn sorted_input_loses_no_record() {
    let (order, mut keys) = hostile("lognormal", 100_000, 3);
    keys.sort_unstable();
    for reverse in [false, true] {
        if reverse {
            keys.reverse();
        }
        let ranks: Vec<Vec<u64>> = keys.chunks(keys.len() / 16).map(<[u64]>::to_vec).collect();
        // The slice of each rank is sorted and disjoint from the others. Loads are balanced because all ranks feed
        // their keys at the same time.
        assert_eq!(simulate(order, &ranks, 16, true).iter().sum::<u64>(), keys.len() as u64);
    }
}

#[test]
fn degenerate_inputs_give_tables() {
    let options = TablePlannerOptions::default();
    for partitions in [1, 2, 16, 1000] {
        let mut planner = TablePlanner::new(partitions, 4, options);
        for pivots in [vec![], vec![Pivots::default(); 3]] {
            assert_eq!(planner.plan(&pivots).partitions(), partitions, "no mass");
        }
        let mut sketch = Sketch::new(64, 0);
        sketch.observe(&[5, u64::MAX]);
        let table = planner.plan(&[sketch.summarize(16, 0.0)]);
        assert_eq!((table.partitions(), table.version()), (partitions, 6));
        sketch.observe(&[u64::MAX; 100]);
        planner.plan_with_loads(&[sketch.summarize(16, 0.999)], &[]);
    }
    assert_eq!(TablePlanner::new(0, 0, options).plan(&[]).partitions(), 1);
}

#[test]
fn a_sketch_is_bounded_and_keeps_quantiles() {
    let mut random = Random::new(2);
    for capacity in [512, 4096] {
        let mut sketch = Sketch::new(capacity, 9);
        let mut keys: Vec<u64> = (0..300_000).map(|_| random.next_u64() >> 20).collect();
        for part in keys.chunks(777) {
            sketch.observe(part);
        }
        assert_eq!(sketch.mass(), keys.len() as u64);
        let pivots = sketch.summarize(256, 0.5);
        keys.sort_unstable();
        let model = Pivots::model(&[pivots]);
        // The sample has n keys, at least half of the capacity. Its standard deviation is at most sqrt(1 / n) / 2. The
        // test allows four standard deviations.
        let allowed = 2.0 * (2.0 / capacity as f64).sqrt();
        for percent in 1..100 {
            let key = keys[keys.len() * percent / 100];
            let found = model.mass_below(cut(key, 0)) / keys.len() as f64;
            assert!((found - percent as f64 / 100.0).abs() < allowed, "{capacity} at {percent} %: {found}");
        }
    }
}

#[test]
fn merged_partial_sketches_agree_with_exact_quantiles() {
    for ranks in [1, 2, 3, 7, 61, 513] {
        let (order, mut keys) = hostile("normal", 300_000, 8);
        // Ranks have keys from different parts of the key space.
        keys.sort_unstable();
        let mut random = Random::new(4);
        let mut phase = move || (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let leaves: Vec<Pivots> = keys
            .chunks(keys.len().div_ceil(ranks))
            .map(|part| {
                let mut sketch = Sketch::for_keys(order, 8192, part[0]);
                sketch.observe(part);
                sketch.summarize(SLOTS, phase())
            })
            .collect();
        let inner: Vec<Pivots> = leaves.chunks(FAN_OUT).map(|group| Pivots::merge(group, SLOTS, phase())).collect();
        let model = Pivots::model(&inner);
        assert!((model.mass() - keys.len() as f64).abs() < 1.0);
        for percent in 1..100 {
            let key = keys[keys.len() * percent / 100];
            let found = model.mass_below(cut(key, 0)) / keys.len() as f64;
            // The interval between two pivots has 0.2 % of the mass of its message.
            assert!((found - percent as f64 / 100.0).abs() < 0.002, "{ranks} ranks at {percent} %: {found}");
        }
    }
}

#[test]
fn a_model_inverts_its_own_masses() {
    let (order, keys) = hostile("half equal", 20_000, 1);
    let mut sketch = Sketch::for_keys(order, 8192, 1);
    sketch.observe(&keys);
    let model = Pivots::model(&[sketch.summarize(128, 0.3)]);
    let targets: Vec<f64> = (0..=1000).map(|step| model.mass() * f64::from(step) / 1000.0).collect();
    for (target, cut) in targets.iter().zip(model.cuts(targets.iter().copied())) {
        assert!((model.mass_below(cut) - target).abs() < 0.5, "{target} {cut:?} {}", model.mass_below(cut));
    }
}

#[test]
fn the_planner_evens_out_loads_that_it_is_told() {
    let mut sketch = Sketch::new(8192, 0);
    sketch.observe(&(0..4000).collect::<Vec<u64>>());
    let pivots = [sketch.summarize(SLOTS, 0.5)];
    let options = TablePlannerOptions { offset: 1.0, ..TablePlannerOptions::default() };
    let mut planner = TablePlanner::new(4, 0, options);
    planner.plan(&pivots);
    let table = planner.plan_with_loads(&pivots, &[1300, 900, 900, 900]);
    let loads: Vec<usize> = (0..4).map(|p| (0..4000).filter(|key| table.destination(*key, 0) == p).count()).collect();
    assert!(loads[0].abs_diff(700) < 20 && loads[1..].iter().all(|load| load.abs_diff(1100) < 20), "{loads:?}");
}
