//! Lookups are compared with plans of the same queries.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use proptest::prelude::*;

use crate::format::PartId;
use crate::query::catalog::Catalog;
use crate::query::execute::stream;
use crate::query::index::indexes::IndexedCatalog;
use crate::query::metrics::{Counters, QueryMetrics};
use crate::query::plan::epoch_plan::Planner;
use crate::query::request::{BATCH_ROWS, Query, ResolvedQuery};
use crate::query::use_path::Use;
use crate::random::Random;
use crate::schema::{Clustering, Column, ColumnView, DataType, Schema};
use crate::storage::{MemoryStorage, Storage};
use crate::{LocalJob, WriteOptions};

use DataType::{F32, F64, FixedBytes, I16, I64, U8, U16, U32, U64};

/// Number of epochs of a dataset.
const EPOCHS: u64 = 3;

/// A dataset whose records have keys of some types.
#[derive(Debug, Clone)]
struct Setup {
    key: Vec<DataType>,
    clustering: Clustering,
    rows: u64,
    /// Number of different keys.
    keys: u64,
    page_rows: u32,
    row_groups_per_part: u32,
    spills: bool,
    seed: u64,
}

fn setups() -> impl Strategy<Value = Setup> {
    let hashed = [
        vec![U32],
        vec![U64],
        vec![I64],
        vec![I16],
        vec![FixedBytes(5)],
        vec![FixedBytes(16)],
        vec![U8, U32],
        vec![I64, FixedBytes(12), U16],
    ];
    let hashed = hashed.map(|key| (Clustering::Hash, key));
    let ranged = [U32, I64, I16, F32, F64, U8].map(|key| (Clustering::Range, vec![key]));
    let keys = [hashed.as_slice(), ranged.as_slice()].concat();
    let shape = (1u64..6_000, prop_oneof![Just(3u64), 50u64..10_000], prop_oneof![1u32..8, Just(512)], 1u32..6);
    (prop::sample::select(keys), shape, any::<bool>(), any::<u64>()).prop_map(
        |((clustering, key), (rows, keys, page_rows, row_groups_per_part), spills, seed)| Setup {
            key,
            clustering,
            rows,
            keys,
            page_rows,
            row_groups_per_part,
            spills,
            seed,
        },
    )
}

impl Setup {
    fn schema(&self) -> Schema {
        let name = |place: usize| format!("k{place}");
        let mut columns = vec![Column::new("value", U32)];
        columns.extend(self.key.iter().enumerate().map(|(place, data_type)| Column::new(name(place), *data_type)));
        columns.push(Column::new("small", U8));
        let key: Vec<String> = (0..self.key.len()).map(name).collect();
        let prefix = if self.clustering == Clustering::Hash { "hash:" } else { "" };
        Schema::new(columns, &format!("{prefix}{}", key.join(","))).unwrap()
    }

    /// Returns the stored values of key `number`. Long strings differ after their first eight bytes only.
    fn values(&self, number: u64) -> Vec<Vec<u8>> {
        let value = |(place, data_type): (usize, &DataType)| {
            let scattered = (number >> (3 * place)).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(20);
            match data_type {
                F32 => return (scattered as i32 as f32 / 8.0).to_le_bytes().to_vec(),
                F64 => return (f64::from(scattered as i32) / 8.0).to_le_bytes().to_vec(),
                _ => {}
            }
            let mut value = if data_type.width() > 8 { vec![7; data_type.width() - 8] } else { Vec::new() };
            value.extend_from_slice(&scattered.to_le_bytes());
            value.truncate(data_type.width());
            value
        };
        self.key.iter().enumerate().map(value).collect()
    }

    fn write(&self) -> Arc<MemoryStorage> {
        let storage = Arc::new(MemoryStorage::new());
        let mut options = WriteOptions::new(4);
        (options.memtable_bytes, options.page_rows) = (16 << 10, self.page_rows);
        options.row_groups_per_part = self.row_groups_per_part;
        if self.spills {
            (options.credit_batches, options.credit_timeout) = (1, Duration::ZERO);
        }
        let job = LocalJob::open_with(storage.clone(), "/ds", self.schema(), options).unwrap();
        let mut random = Random::new(self.seed);
        for epoch in 0..EPOCHS {
            job.begin_epoch(epoch).unwrap();
            for (rank, begin) in (0..).zip((0..self.rows).step_by(200)) {
                let rows = 200.min(self.rows - begin);
                let mut columns = vec![Vec::new(); self.key.len()];
                for _ in 0..rows {
                    let values = self.values(random.below(self.keys));
                    columns.iter_mut().zip(values).for_each(|(column, value)| column.extend(value));
                }
                let numbers: Vec<u32> = (begin..begin + rows).map(|row| row as u32).collect();
                let small: Vec<u8> = numbers.iter().map(|number| *number as u8).collect();
                let mut views = vec![ColumnView::from(&numbers)];
                for (column, data_type) in columns.iter().zip(&self.key) {
                    views.push(ColumnView::new(column, data_type.width(), rows as usize, *data_type).unwrap());
                }
                views.push(ColumnView::from(&small));
                job.append(rank % 4, &views).unwrap();
            }
            job.end_epoch().unwrap();
        }
        job.close().unwrap();
        storage
    }

    /// Returns the condition that a record has one of some keys.
    fn condition(&self, numbers: &[u64]) -> String {
        let literal = |(value, data_type): (Vec<u8>, &DataType)| match data_type {
            FixedBytes(_) => format!("x'{}'", value.iter().map(|byte| format!("{byte:02x}")).collect::<String>()),
            _ => crate::schema::Value::from_stored(*data_type, &value).to_string(),
        };
        let literals = |number: &u64| self.values(*number).into_iter().zip(&self.key).map(literal).collect::<Vec<_>>();
        let is_single = self.key.len() == 1;
        let names: Vec<String> = (0..self.key.len()).map(|place| format!("k{place}")).collect();
        match numbers {
            [number] if is_single => format!("k0 = {}", literals(number)[0]),
            _ => {
                let tuple =
                    |values: Vec<String>| if is_single { values.concat() } else { format!("({})", values.join(", ")) };
                let list: Vec<String> = numbers.iter().map(|number| tuple(literals(number))).collect();
                format!("{} IN ({})", tuple(names), list.join(", "))
            }
        }
    }
}

/// Returns the batches of a query, and its metrics.
fn answer(dataset: &Arc<IndexedCatalog>, query: &Query) -> (Vec<RecordBatch>, QueryMetrics) {
    let resolved = ResolvedQuery::resolve(query, &dataset.schema).unwrap();
    let epochs = dataset.select_epochs(&query.epochs).unwrap();
    let mut stream = stream::start(dataset.clone(), resolved, epochs, Arc::new(Counters::default())).unwrap();
    let batches = stream.by_ref().map(Result::unwrap).collect();
    (batches, stream.metrics())
}

fn joined(batches: &[RecordBatch]) -> Option<RecordBatch> {
    let first = batches.first()?;
    Some(arrow_select::concat::concat_batches(&first.schema(), batches).unwrap())
}

fn planner(dataset: &Arc<IndexedCatalog>, query: &Query, epochs: usize) -> Planner {
    let resolved = Arc::new(ResolvedQuery::resolve(query, &dataset.schema).unwrap());
    Planner::new(dataset.clone(), resolved, Arc::default(), epochs)
}

/// Returns whether all epochs of a query are looked up.
fn is_looked_up(dataset: &Arc<IndexedCatalog>, query: &Query) -> bool {
    let epochs = dataset.select_epochs(&query.epochs).unwrap();
    let planner = planner(dataset, query, epochs.len());
    epochs.iter().all(|epoch| planner.plan_cached(*epoch).is_some())
}

/// Draws a query for keys, of which about one in three is absent.
fn draw(setup: &Setup, random: &mut Random) -> Query {
    let keys = [1, 1, 2, 5, 20][random.below(5) as usize];
    let numbers: Vec<u64> = (0..keys).map(|_| random.below(setup.keys + setup.keys / 2 + 1)).collect();
    let mut condition = setup.condition(&numbers);
    match random.below(6) {
        0 => condition = format!("{condition} AND epoch > 0"),
        1 => condition = format!("{condition} AND NOT ({})", setup.condition(&numbers[..1])),
        _ => {}
    }
    let mut query = Query::new().filter(condition).threads(1 + random.below(2) as usize);
    match random.below(3) {
        0 => query = query.epochs(random.below(EPOCHS)),
        1 => query = query.epochs(vec![0, 2]),
        _ => {}
    }
    match random.below(4) {
        0 => query = query.columns(["small", "epoch"]),
        1 => query = query.columns::<[String; 0]>([]),
        _ => {}
    }
    match random.below(6) {
        0 => query.limit(random.below(4)),
        1 => query.batch_rows(2),
        _ => query,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Lookups return the batches of plans, and read no more.
    #[test]
    fn lookups_return_what_plans_do(setup in setups()) {
        let storage = setup.write();
        let open = || open_indexed(&(storage.clone() as Arc<dyn Storage>));
        let (dataset, planned) = (open(), open());
        let mut random = Random::new(!setup.seed);
        for _ in 0..60 {
            let query = draw(&setup, &mut random);
            let (found, metrics) = answer(&dataset, &query);
            let (expected, of_plan) = answer(&planned, &query.clone().using(Use::Scan));
            prop_assert!(found.iter().all(|batch| batch.num_rows() <= query.batch_rows));
            if query.batch_rows == BATCH_ROWS {
                prop_assert_eq!(&found, &expected, "{:?}", query);
            }
            // Chunks of a plan may end elsewhere, and small batches with them.
            prop_assert_eq!(joined(&found), joined(&expected), "{:?}", query);
            if query.limit.is_none() {
                let counts = |metrics: &QueryMetrics| (metrics.runs_considered, metrics.rows_matched);
                prop_assert_eq!(counts(&metrics), counts(&of_plan), "{:?}", query);
                prop_assert!(metrics.runs_touched <= of_plan.runs_touched, "{query:?}: {metrics:?}, {of_plan:?}");
                prop_assert!(metrics.pages_read <= of_plan.pages_read, "{query:?}: {metrics:?}, {of_plan:?}");
            }
        }
    }
}

fn unique(key: Vec<DataType>, page_rows: u32) -> Setup {
    let clustering = Clustering::Hash;
    Setup { key, clustering, rows: 3_000, keys: 1 << 40, page_rows, row_groups_per_part: 3, spills: true, seed: 5 }
}

/// The second query of a key needs no plan, whatever its type, and reads one page of each column.
#[test]
fn warm_lookups_need_no_plan() {
    let hashed = [(vec![U32], 64), (vec![I64], 5), (vec![FixedBytes(16)], 64), (vec![U8, U32], 64)];
    let hashed = hashed.map(|(key, page_rows)| unique(key, page_rows));
    let ranged = [U64, I64].map(|key| Setup { clustering: Clustering::Range, ..unique(vec![key], 64) });
    for setup in hashed.into_iter().chain(ranged) {
        let dataset = open_indexed(&(setup.write() as Arc<dyn Storage>));
        let mut random = Random::new(setup.seed);
        for number in (0..40).map(|_| random.below(setup.keys)) {
            let query = Query::new().epochs(0).filter(setup.condition(&[number]));
            let (rows, of_plan) = answer(&dataset, &query);
            assert!(is_looked_up(&dataset, &query), "{query:?}");
            let (again, metrics) = answer(&dataset, &query);
            assert_eq!(again, rows);
            assert_eq!(again.iter().map(RecordBatch::num_rows).sum::<usize>(), 1, "{query:?}");
            assert!(metrics.pages_read <= of_plan.pages_read);
            assert!(!is_looked_up(&dataset, &query.clone().using(Use::Scan)), "a plan is forced");
        }
    }
}

/// Queries that are no lookups, or whose metadata is not in memory yet, are planned.
#[test]
fn other_queries_are_planned() {
    let setup = unique(vec![U32], 64);
    let storage = setup.write();
    let open = || open_indexed(&(storage.clone() as Arc<dyn Storage>));
    let lookup = Query::new().filter(setup.condition(&[7, 8]));
    assert!(!is_looked_up(&open(), &lookup), "nothing is in memory");
    let dataset = open();
    answer(&dataset, &lookup);
    assert!(is_looked_up(&dataset, &lookup));
    let many: Vec<u64> = (0..40).collect();
    for other in [
        Query::new(),
        Query::new().filter("k0 > 17"),
        Query::new().filter(format!("{} AND value > 3", setup.condition(&[7]))),
        Query::new().filter(format!("{} OR value = 3", setup.condition(&[7]))),
        Query::new().filter(setup.condition(&many)),
        lookup.clone().ordered(true),
        lookup.clone().using(Use::Scan),
    ] {
        answer(&dataset, &other);
        assert!(!is_looked_up(&dataset, &other), "{other:?}");
    }
}

/// A key with many rows is planned, which reads them in chunks, even if each row group has few of them.
#[test]
fn keys_with_many_rows_are_planned() {
    let setup = Setup { rows: 240_000, keys: 20, spills: false, row_groups_per_part: 1000, ..unique(vec![U32], 64) };
    let dataset = open_indexed(&(setup.write() as Arc<dyn Storage>));
    let query = Query::new().epochs(0).filter(setup.condition(&[1])).threads(1);
    let (rows, metrics) = answer(&dataset, &query);
    let count: usize = rows.iter().map(RecordBatch::num_rows).sum();
    assert!(count > 9_000 && count as u64 / metrics.runs_touched < 8_000, "{count} rows, {metrics:?}");
    assert!(!is_looked_up(&dataset, &query));
    assert_eq!(joined(&answer(&dataset, &query).0), joined(&rows));
}

/// Writes a dataset of unique ids that is clustered by values, with an index of the ids.
fn write_indexed(definition: &str) -> Arc<dyn Storage> {
    const ROWS: u64 = 40_000;
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let columns = vec![Column::new("value", U32), Column::new("id", U64), Column::new("small", U8)];
    let mut options = WriteOptions::new(3);
    (options.memtable_bytes, options.page_rows) = (64 << 10, 128);
    options.indexes = vec![definition.parse().unwrap()];
    let job = LocalJob::open_with(storage.clone(), "/ds", Schema::new(columns, "value").unwrap(), options).unwrap();
    for epoch in 0..2 {
        job.begin_epoch(epoch).unwrap();
        let ids: Vec<u64> = (0..ROWS).map(|row| row * 7 + epoch).collect();
        let values: Vec<u32> = ids.iter().map(|id| id.wrapping_mul(0x9E37_79B9) as u32).collect();
        let small: Vec<u8> = ids.iter().map(|id| *id as u8).collect();
        let small = ColumnView::new(&small, 1, small.len(), U8).unwrap();
        job.append(1, &[ColumnView::from(&values), ColumnView::from(&ids), small]).unwrap();
        job.end_epoch().unwrap();
    }
    job.close().unwrap();
    storage
}

/// Opens a dataset with its indexes.
fn open_indexed(storage: &Arc<dyn Storage>) -> Arc<IndexedCatalog> {
    Arc::new(IndexedCatalog::open(storage, "/ds".as_ref()).unwrap())
}

/// The entries' parts stay open beside those of the records, within one limit.
#[test]
fn a_dataset_and_its_indexes_share_open_parts() {
    let storage = write_indexed("id");
    let dataset = open_indexed(&storage);
    answer(&dataset, &Query::new().filter("id = 700").epochs(0).threads(1).using(Use::Index("id".to_owned())));
    let entries = Catalog::open(storage, "/ds/_turbidite/index/id".as_ref()).unwrap();
    for catalog in [&**dataset.catalog(), &entries] {
        let manifest = catalog.manifest(0).unwrap();
        let is_open = |part: &PartId| dataset.parts().part((manifest.commit, *part)).is_some();
        assert!(manifest.parts.iter().any(|entry| is_open(&entry.part)), "{}", catalog.root().display());
    }
}

/// The second query of an id needs no plan of the records, and returns the rows of a scan.
#[test]
fn warm_lookups_by_an_index_need_no_plan_of_the_records() {
    for definition in ["id", "hash:id"] {
        let dataset = open_indexed(&write_indexed(definition));
        let mut random = Random::new(11);
        let mut found = 0;
        for round in 0..60 {
            let id = random.below(40_000 * 7);
            let condition = match round % 4 {
                0 => format!("id IN ({id}, {})", id + 7),
                1 => format!("id = {id} AND small < 200"),
                _ => format!("id = {id}"),
            };
            let mut query = Query::new().filter(condition).threads(1);
            if round % 3 == 0 {
                query = query.columns(["small"]);
            }
            let (expected, _) = answer(&dataset, &query.clone().using(Use::Scan));
            let (planned, of_plan) = answer(&dataset, &query);
            let (rows, metrics) = answer(&dataset, &query);
            assert_eq!(joined(&planned), joined(&expected), "{query:?}");
            assert_eq!(joined(&rows), joined(&expected), "{query:?}");
            assert_eq!(metrics.entries_read, of_plan.entries_read, "{query:?}");
            found += rows.iter().map(RecordBatch::num_rows).sum::<usize>();
            let planner = planner(&dataset, &query, 2);
            for epoch in 0..2 {
                assert!(planner.plan_cached(epoch).is_some(), "{query:?}, epoch {epoch}");
            }
        }
        assert!(found > 10, "{found}");
        for other in ["id > 5", "id = 3 OR small = 1", "small = 1"] {
            assert!(!planner(&dataset, &Query::new().filter(other), 1).may_be_cached(), "{other}");
        }
    }
}
