//! Tests of levels of detail in proportion to a column: probabilities are those that the intervals state, for any
//! weights.

use std::path::Path;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use super::{context, identity};
use crate::format::row_group::level_intervals::{next_interval, weigh};
use crate::format::row_group::level_sample::LevelSample;
use crate::format::row_group::memtable::Memtable;
use crate::format::row_group::space_order::SpaceBuffers;
use crate::format::{EncodeBuffers, LevelIntervals, PartId, PartOptions, PartWriter, RunKind, SealedRun, scan_seals};
use crate::random::Random;
use crate::schema::{Column, DataType, Levels, Schema};
use crate::storage::{MemoryStorage, Storage, read_all};

const LEVELS: u8 = 3;

/// Bytes of a weight of 8 bytes, and its number.
type Weight = ([u8; 8], f64);

fn float(weight: f64) -> Weight {
    (weight.to_le_bytes(), weight)
}

/// Creates a memtable of numbered rows at random places, with weights of a type of 8 bytes.
fn table(data_type: DataType, weights: &[Weight]) -> Memtable {
    let mut random = Random::new(5);
    table_at(data_type, weights, |_| [(); 2].map(|()| random.below(1 << 20) as f32))
}

/// Creates a memtable of numbered rows at the places of their numbers.
fn table_at(data_type: DataType, weights: &[Weight], mut place: impl FnMut(u32) -> [f32; 2]) -> Memtable {
    let columns = vec![
        Column::new("number", DataType::U32),
        Column::new("x", DataType::F32),
        Column::new("y", DataType::F32),
        Column::new("weight", data_type),
    ];
    let schema = Schema::new(columns, "space:x,y").unwrap();
    let schema = schema.with_levels(Levels { count: LEVELS, seed: 1 }).unwrap().with_level_weight("weight").unwrap();
    let mut table = Memtable::new(Arc::new(schema), 1 << 20);
    for (number, (bytes, _)) in (0u32..).zip(weights) {
        let [x, y] = place(number).map(f32::to_le_bytes);
        table.push(&[&number.to_le_bytes()[..], &x, &y, bytes].concat());
    }
    table
}

/// Returns the level of each row, and the intervals.
fn sampled(table: &Memtable, seed: u64, page_rows: usize) -> (Vec<u8>, LevelIntervals) {
    let sample = LevelSample::of_run(Levels { count: LEVELS, seed }, 7, 1, 2);
    let mut order = Vec::new();
    let weight = table.schema().level_weight().unwrap();
    let units = |_, _| [4 * page_rows, page_rows];
    let (counts, intervals) = SpaceBuffers::default().arrange_weighted_levels(table, sample, weight, units, &mut order);
    assert_eq!((counts.len(), counts.iter().sum::<usize>()), (1 + usize::from(LEVELS), table.rows()));
    let mut levels = vec![u8::MAX; table.rows()];
    let mut rest = order.as_slice();
    for (level, count) in (0u8..).zip(counts) {
        let (slots, others) = rest.split_at(count);
        rest = others;
        for slot in slots {
            let row = &table.slots()[*slot as usize * table.schema().row_bytes()..];
            let number = u32::from_le_bytes(*row.first_chunk().unwrap()) as usize;
            assert_eq!(std::mem::replace(&mut levels[number], level), u8::MAX, "every row has one level");
        }
    }
    (levels, intervals)
}

/// Returns weights that samples by size handle with difficulty.
fn hostile(rows: usize) -> Vec<(&'static str, DataType, Vec<Weight>)> {
    let mut random = Random::new(9);
    let mut drawn = |draw: &mut dyn FnMut(&mut Random, usize) -> f64| -> Vec<Weight> {
        (0..rows).map(|row| float(draw(&mut random, row))).collect()
    };
    let strange = [0.0, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 5e-324, 1e-310, f64::MAX, 1.0, -0.0];
    let integers =
        |of: &dyn Fn(usize) -> (u64, f64)| (0..rows).map(of).map(|(bits, w)| (bits.to_le_bytes(), w)).collect();
    vec![
        ("equal", DataType::F64, drawn(&mut |_, _| 3.0)),
        ("one is huge", DataType::F64, drawn(&mut |_, row| if row == 17 { 1e300 } else { 1.0 })),
        (
            "exponential",
            DataType::F64,
            drawn(&mut |random, _| -(1.0 - random.below(1 << 30) as f64 / 2f64.powi(30)).ln()),
        ),
        ("geometric", DataType::F64, drawn(&mut |_, row| 2f64.powi(row as i32 % 60))),
        ("none is valid", DataType::F64, drawn(&mut |_, row| strange[row % 5])),
        ("strange", DataType::F64, drawn(&mut |_, row| strange[row % strange.len()])),
        ("subnormal", DataType::F64, drawn(&mut |_, row| f64::from_bits(row as u64 % 7))),
        ("as large as possible", DataType::F64, drawn(&mut |_, _| f64::MAX)),
        (
            "u64",
            DataType::U64,
            integers(&|row| {
                if row % 40 == 3 { (u64::MAX, u64::MAX as f64) } else { (row as u64 % 2, (row % 2) as f64) }
            }),
        ),
        (
            "i64",
            DataType::I64,
            integers(&|row| {
                let w = row as i64 % 9 - 4;
                (w as u64, w as f64)
            }),
        ),
    ]
}

/// The mean over the seeds of what a row stands for is 1, if its probability is the one that is stated: for each row,
/// and more precisely for the heavier and the lighter half of the rows.
#[test]
fn rows_reach_a_level_as_often_as_they_say() {
    const SEEDS: u64 = 4000;
    for (name, data_type, weights) in hostile(120) {
        let table = table(data_type, &weights);
        let mut found = vec![[(0.0, 0.0); LEVELS as usize]; weights.len()];
        for seed in 0..SEEDS {
            let (levels, intervals) = sampled(&table, seed, 32);
            for (row, level) in levels.iter().enumerate() {
                for reached in 1..=*level {
                    let stands_for = intervals.stands_for(reached, weights[row].1);
                    assert!(stands_for.is_finite() && stands_for >= 1.0, "{name}: {stands_for}");
                    let (sum, variance) = &mut found[row][usize::from(reached) - 1];
                    *sum += stands_for / SEEDS as f64;
                    *variance += stands_for * (stands_for - 1.0) / SEEDS as f64;
                }
            }
        }
        let mut by_weight: Vec<usize> = (0..weights.len()).collect();
        by_weight.sort_by(|one, other| weights[*one].1.total_cmp(&weights[*other].1));
        for level in 1..=LEVELS {
            let place = usize::from(level) - 1;
            for rows in by_weight.chunks(60) {
                let count = rows.len() as f64;
                let deviations = || rows.iter().map(|row| found[*row][place].0 - 1.0);
                let variance = rows.iter().map(|row| found[*row][place].1).sum::<f64>() / count / SEEDS as f64;
                let mean = deviations().sum::<f64>() / count;
                let error = f64::sqrt(variance / count);
                let what = format!("{name}, level {level}");
                assert!(mean.abs() < 4.0 * error, "{what}: {mean} from 1, of {error}");
                // Rows that are an interval apart are in the same samples, so as many rows tell as an interval has.
                let spread = deviations().map(|deviation| deviation * deviation).sum::<f64>() / count / variance;
                assert!(spread < 3.0, "{what}: {spread} of the expected variance");
            }
        }
    }
}

/// Counts have at most about twice the variance of an even sample, and sums of the weights hardly any.
#[test]
fn sums_of_the_weights_vary_little() {
    let (_, data_type, weights) = hostile(2000).swap_remove(2);
    let table = table(data_type, &weights);
    let (mut counts, mut sums) = (0.0, 0.0);
    let (rows, total) = (weights.len() as f64, weights.iter().map(|weight| weight.1).sum::<f64>());
    for seed in 0..100 {
        let (levels, intervals) = sampled(&table, seed, 256);
        let sample = || weights.iter().zip(&levels).filter(|(_, level)| **level > 0).map(|(weight, _)| weight.1);
        let count: f64 = sample().map(|weight| intervals.stands_for(1, weight)).sum();
        let sum: f64 = sample().map(|weight| weight * intervals.stands_for(1, weight)).sum();
        counts += (count / rows - 1.0).powi(2) / 100.0;
        sums += (sum / total - 1.0).powi(2) / 100.0;
    }
    // 8 * 7 / rows is the square of the relative error of an even sample that takes each row by itself.
    let even = 7.0 / rows;
    assert!(counts < 2.0 * even, "{counts} over {even}");
    // The weights have a variance of 1, so the sum of an even sample has a variance of twice as much.
    assert!(sums < 0.5 * even, "{sums} over {even}");
}

/// On a lattice, rows at equal distances along the curve have the same parity of their places.
#[test]
fn counts_on_a_lattice_are_within_their_errors() {
    const SIDE: u32 = 64;
    let place = |number: u32| [number % SIDE, number / SIDE];
    for (name, weigh) in [
        ("equal", &(|_| 0.25) as &dyn Fn(u32) -> f64),
        ("by kind", &|number| if (number % SIDE + number / SIDE).is_multiple_of(2) { 22.99 } else { 35.45 }),
        ("none is valid", &|_| 0.0),
    ] {
        let weights: Vec<Weight> = (0..SIDE * SIDE).map(|number| float(weigh(number))).collect();
        let table = table_at(DataType::F64, &weights, |number| place(number).map(|at| at as f32 + 0.5));
        for level in [1, 2] {
            // Columns of the lattice, and rows of one kind.
            let mut squares = [0.0; 2];
            for seed in 0..20 {
                let (levels, intervals) = sampled(&table, seed, 256);
                let mut count = |selects: &dyn Fn(u32) -> bool, kind: usize| {
                    let selected = || (0..SIDE * SIDE).filter(|number| selects(*number));
                    let sample = selected().filter(|number| levels[*number as usize] >= level);
                    let stands_for = sample.map(|number| intervals.stands_for(level, weights[number as usize].1));
                    let (sum, variance) =
                        stands_for.fold((0.0, 0.0), |(sum, variance), f| (sum + f, variance + f * (f - 1.0)));
                    let error = f64::max(variance, f64::from(1 << (6 * level))).sqrt();
                    squares[kind] += ((sum - selected().count() as f64) / error).powi(2);
                };
                (0..SIDE).for_each(|column| count(&|number| place(number)[0] == column, 0));
                (0..2).for_each(|parity| count(&|number| place(number)[0] % 2 == parity, 1));
                (0..2).for_each(|parity| count(&|number| (place(number)[0] + place(number)[1]) % 2 == parity, 1));
            }
            let of_columns = (squares[0] / f64::from(20 * SIDE)).sqrt();
            let of_kinds = (squares[1] / 80.0).sqrt();
            assert!(of_columns < 1.3 && of_kinds < 1.3, "{name}, level {level}: {of_columns}, {of_kinds} errors");
        }
    }
}

#[test]
fn an_eighth_of_a_level_moves_up() {
    for (name, data_type, weights) in hostile(4000) {
        let (levels, intervals) = sampled(&table(data_type, &weights), 3, 256);
        let reached = |level: u8| levels.iter().filter(|reached| **reached >= level).count() as f64;
        for level in 1..=LEVELS {
            let expected = reached(level - 1) / 8.0;
            assert!((reached(level) - expected).abs() <= 1.5, "{name}: {} of {expected}", reached(level));
        }
        let numbers: Vec<f64> = intervals.numbers().collect();
        assert_eq!(LevelIntervals::of_numbers(&numbers), Some(intervals), "{name}");
        assert!(
            numbers[1] >= 8.0 && numbers[1..].windows(2).all(|pair| pair[1] >= 7.99 * pair[0]),
            "{name}: {numbers:?}"
        );
    }
}

#[test]
fn rows_as_large_as_the_interval_move_up_for_certain() {
    let (_, data_type, weights) = hostile(400).swap_remove(1);
    let table = table(data_type, &weights);
    for seed in 0..50 {
        let (levels, intervals) = sampled(&table, seed, 64);
        // A few rows of level 2 need not have one that moves up.
        assert!(levels[17] >= 2 && intervals.stands_for(2, 1e300) == 1.0, "{intervals:?}");
    }
    // With fewer rows than an interval needs, none is certain.
    let mut sizes = vec![1e300, 1.0, 1.0];
    weigh(&mut sizes);
    assert!(next_interval(&sizes) > sizes[0]);
}

#[test]
fn equal_weights_are_an_even_sample() {
    let (levels, intervals) = sampled(&table(DataType::F64, &[float(0.25); 512]), 11, 128);
    assert_eq!([0, 1, 2, 3].map(|level| intervals.stands_for(level, 0.25)), [1.0, 8.0, 64.0, 512.0]);
    assert_eq!([1, 2, 3].map(|level| levels.iter().filter(|reached| **reached >= level).count()), [64, 8, 1]);
}

#[test]
fn intervals_that_no_sample_has_are_refused() {
    let valid = [2.5, 16.0, 140.0, 2000.0];
    assert!(LevelIntervals::of_numbers(&valid).is_some() && LevelIntervals::of_numbers(&valid[..1]).is_some());
    for (place, wild) in [
        (0, 0.0),
        (0, -1.0),
        (0, f64::NAN),
        (0, f64::INFINITY),
        (0, 5e-324),
        (1, 1.0),
        (1, f64::NAN),
        (1, 200.0),
        (2, f64::INFINITY),
        (2, 16.0),
        (3, -2000.0),
        (3, f64::NAN),
    ] {
        let mut numbers = valid;
        numbers[place] = wild;
        assert_eq!(LevelIntervals::of_numbers(&numbers), None, "{wild} at {place}");
    }
    assert_eq!(LevelIntervals::of_numbers(&[]), None);
    let too_many: Vec<f64> = (0..8).map(|level| 8f64.powi(level)).collect();
    assert_eq!(LevelIntervals::of_numbers(&too_many), None);
}

/// Readers compute what a row stands for from a stored value of any type.
#[test]
fn any_stored_value_stands_for_a_finite_number_of_rows() {
    let intervals = LevelIntervals::of_numbers(&[f64::MIN_POSITIVE, 9.0, f64::MAX]).unwrap();
    for weight in [0.0, -0.0, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 5e-324, f64::MAX, 1.0] {
        for level in 0..=7 {
            let stands_for = intervals.stands_for(level, weight);
            assert!(stands_for.is_finite() && stands_for >= 1.0, "{stands_for} at level {level} of {weight}");
        }
    }
}

/// The checksum of the changed seals is right.
#[test]
fn seals_with_intervals_that_no_sample_has_are_no_seals() {
    let rows = table(DataType::F64, &[float(2.0); 300]);
    let (schema, storage, directory) = (Arc::clone(rows.schema()), Arc::new(MemoryStorage::new()), Path::new("/part"));
    storage.create_dir_all(&directory.join("level=1")).unwrap();
    let (part, options) = ((PartId { rank: 7, roll: 0 }, 1), PartOptions::default());
    let shared = Arc::clone(&storage) as Arc<dyn Storage>;
    let mut writer = PartWriter::create_at(shared, directory, part, Arc::clone(&schema), options, identity()).unwrap();
    let mut buffers = EncodeBuffers::new();
    let sample = LevelSample::of_run(Levels { count: LEVELS, seed: 3 }, 200, 7, 0);
    let ((counts, intervals), _) = buffers.divide(&rows, &schema, RunKind::Regular, sample, &options);
    let places = counts[0]..counts[0] + counts[1];
    let entries = writer.append_level(&rows, places, (context(0), intervals), &mut buffers).unwrap();
    let stated = intervals.map(|intervals| intervals.up_to(1));
    assert_eq!(entries[0].intervals.as_deref().copied(), stated);
    let path = writer.path().to_owned();
    drop(writer);
    let content = read_all(&*storage, &path, u64::MAX).unwrap();
    let seals_of = |content: &[u8]| -> Vec<SealedRun> {
        storage.remove_file(&path).unwrap();
        storage.create(&path).unwrap().write_at(0, content).unwrap();
        scan_seals(&*storage.open(&path).unwrap(), &path, &schema).unwrap()
    };
    assert_eq!(seals_of(&content).iter().map(|seal| seal.intervals).collect::<Vec<_>>(), [stated]);
    let end = content.len();
    let length = u64::from_le_bytes(*content[end - 24..].first_chunk().unwrap()) as usize;
    // The mean weight and the interval precede the commit and the part, which take 56 bytes with the trailer.
    for place in [end - 72, end - 64] {
        for wild in [0.0, 0.5, f64::NAN, -20.0, f64::INFINITY, f64::NEG_INFINITY] {
            let mut changed = content.clone();
            changed[place..place + 8].copy_from_slice(&f64::to_le_bytes(wild));
            let checksum = xxh3_64(&changed[end - length..end - 16]);
            changed[end - 16..end - 8].copy_from_slice(&checksum.to_le_bytes());
            let is_valid = place == end - 72 && wild == 0.5;
            assert_eq!(seals_of(&changed).len(), usize::from(is_valid), "{wild} at {place}");
        }
    }
}
