//! Tests of datasets with periods: boxes wrap as if the query had stated the periods, and as a loop over the records
//! says, in rows, counts, pieces, shares, cursors, histograms, trajectories and spatial indexes.

use std::sync::Arc;

use crate::support::places::{ROOT, Records, options, schema, verify};
use arrow_array::cast::AsArray;
use arrow_array::types::UInt32Type;
use turbidite::query::{Bins, Count, CursorRequest, HistogramRequest, Source, Step, TrackRequest, Use};
use turbidite::random::Random;
use turbidite::storage::{MemoryStorage, Storage};
use turbidite::{Dataset, Error, IndexBuild, IndexOptions, Levels, LocalJob, Periods, Query, Value};

const KEY: &str = "space:x,y,z";

/// Columns of the coordinates, in the order of the key.
const AXES: [&str; 3] = ["x", "y", "z"];

/// Number of records of an epoch.
const ROWS: usize = 12_000;

/// The periods of the datasets with periods.
const PERIODS: [Option<f64>; 3] = [Some(250.25), None, Some(100.0)];

fn text(periods: &[Option<f64>]) -> String {
    let stated = periods.iter().map(|period| period.map(|period| period.to_string()).unwrap_or_default());
    stated.collect::<Vec<_>>().join(",")
}

/// Opens a job that writes a dataset with these periods, if any.
fn open(storage: &Arc<MemoryStorage>, periods: Option<&[Option<f64>]>, levels: u8) -> Result<LocalJob, Error> {
    let mut schema = schema(KEY);
    if levels > 0 {
        schema = schema.with_levels(Levels { count: levels, seed: 22 }).unwrap();
    }
    if let Some(periods) = periods {
        schema = schema.with_periods(Periods::new(periods.to_vec()).unwrap()).unwrap();
    }
    let mut options = options();
    options.part_bytes = Some(0);
    LocalJob::open_with(storage.clone(), ROOT, schema, options)
}

fn write(records: &Records, periods: Option<&[Option<f64>]>, levels: u8) -> Arc<MemoryStorage> {
    let storage = Arc::new(MemoryStorage::new());
    let job = open(&storage, periods, levels).unwrap();
    job.begin_epoch(3).unwrap();
    records.append(&job);
    job.end_epoch().unwrap();
    job.close().unwrap();
    verify(&storage);
    storage
}

fn dataset(storage: &Arc<MemoryStorage>) -> Dataset {
    Dataset::open_with(storage.clone() as Arc<dyn Storage>, ROOT).unwrap()
}

/// Records in several periods of the domain, and strange ones.
fn records() -> Records {
    let mut records = Records::hostile(5);
    let mut random = Random::new(6);
    let mut places = Vec::new();
    for row in (0..records.number.len()).step_by(records.number.len() / ROWS) {
        let place = [f64::from(records.x[row]), records.y[row], f64::from(records.z[row])];
        let shift = 2000.0 * random.fraction() - 1000.0;
        places.push(if random.below(3) == 0 { place } else { place.map(|at| at + shift) });
    }
    records = Records::new(places);
    records
}

/// A random box over some coordinates, with bounds that no type rounds.
#[derive(Debug)]
struct Sides {
    /// Axis, low and high bound.
    sides: Vec<(usize, f64, f64)>,
    /// The period of each side in the query: as the text of the option, and as it holds.
    stated: Vec<(String, Option<f64>)>,
}

impl Sides {
    fn random(random: &mut Random) -> Self {
        let first = random.below(3) as usize;
        let count = 1 + random.below(3) as usize;
        let sides: Vec<_> = (0..count)
            .map(|place| {
                let quarters = |random: &mut Random, most: u64| random.below(4 * most) as f64 / 4.0;
                let low = quarters(random, 1400) - 700.0;
                ((first + place) % 3, low, low + 0.25 + quarters(random, 280))
            })
            .collect();
        let stated = sides.iter().map(|(axis, ..)| match random.below(6) {
            0 => ("none".to_owned(), None),
            1 => ("64.5".to_owned(), Some(64.5)),
            _ => (String::new(), PERIODS[*axis]),
        });
        let stated = stated.collect();
        Self { sides, stated }
    }

    /// Returns the box, with names of the sides.
    fn text(&self) -> String {
        let side = |(axis, low, high): &(usize, f64, f64)| format!("{}={low}:{high}", AXES[*axis]);
        self.sides.iter().map(side).collect::<Vec<_>>().join(",")
    }

    /// Returns the numbers of the records in the box. `states` tells whether the query states periods.
    fn holds(&self, records: &Records, states: bool) -> Vec<u32> {
        let inside = |row: &usize| {
            let place = [f64::from(records.x[*row]), records.y[*row], f64::from(records.z[*row])];
            self.sides.iter().zip(&self.stated).all(|((axis, low, high), (_, stated))| {
                let at = place[*axis];
                match if states { *stated } else { PERIODS[*axis] } {
                    None => *low <= at && at < *high,
                    Some(period) => {
                        // Remainders are exact, even those of numbers whose distance from a bound would be rounded.
                        let above = (at % period - low % period).rem_euclid(period);
                        at.is_finite() && (high - low >= period || above < high - low)
                    }
                }
            })
        };
        (0..records.number.len()).filter(inside).map(|row| records.number[row]).collect()
    }

    /// Returns the queries of a dataset with periods and of one without that are expected to return the same rows.
    fn queries(&self, states: bool) -> [Query; 2] {
        let query = || Query::new().epochs(3).within(self.text());
        let listed = |text: Vec<String>| text.join(",");
        let held = self.sides.iter().zip(&self.stated);
        let held = held.map(|((axis, ..), (_, period))| if states { *period } else { PERIODS[*axis] });
        let explicit = text(&held.collect::<Vec<_>>());
        match states {
            false => [query(), query().periods(explicit)],
            true => {
                let stated = listed(self.stated.iter().map(|(text, _)| text.clone()).collect());
                [query().periods(stated), query().periods(explicit)]
            }
        }
    }
}

fn sorted(mut numbers: Vec<u32>) -> Vec<u32> {
    numbers.sort_unstable();
    numbers
}

fn numbers(dataset: &Dataset, query: &Query) -> Vec<u32> {
    let mut found = Vec::new();
    for batch in dataset.run(&query.clone().columns(["number"])).unwrap() {
        found.extend_from_slice(batch.unwrap().column(0).as_primitive::<UInt32Type>().values());
    }
    sorted(found)
}

/// Returns the numbers of all rows of a cursor.
fn of_cursor(dataset: &Dataset, query: &Query) -> Vec<u32> {
    let request = CursorRequest::new(query.clone().columns(["number"]));
    let mut cursor = dataset.cursor(&request).unwrap();
    cursor.advance(Step::Quality(1.0)).unwrap();
    let batches = cursor.map(|batch| batch.unwrap().rows.column(0).as_primitive::<UInt32Type>().values().to_vec());
    sorted(batches.flatten().collect())
}

/// Returns the numbers of the particles that a query selects for trajectories.
fn of_tracks(dataset: &Dataset, query: &Query) -> Vec<u32> {
    let request = TrackRequest::of_query(query.clone(), 3, "number".to_owned());
    let tracks = dataset.tracks(&request, &|_| ()).unwrap();
    let batches = tracks.map(|batch| batch.unwrap().column(0).as_primitive::<UInt32Type>().values().to_vec());
    sorted(batches.flatten().collect())
}

#[test]
fn boxes_wrap_as_if_the_query_stated_the_periods() {
    let records = records();
    let periodic = dataset(&write(&records, Some(&PERIODS), 2));
    let flat = dataset(&write(&records, None, 2));
    assert_eq!(periodic.schema().periods().unwrap().as_slice(), PERIODS);
    let mut random = Random::new(7);
    let mut most = 0;
    for turn in 0..60 {
        let sides = Sides::random(&mut random);
        for states in [false, true] {
            let expected = sides.holds(&records, states);
            most = most.max(expected.len());
            let [ours, explicit] = sides.queries(states);
            assert_eq!(numbers(&periodic, &ours), expected, "{sides:?}, {states}");
            assert_eq!(numbers(&flat, &explicit), expected, "{sides:?}, {states}");
            assert_eq!(periodic.count(&ours).unwrap().0, expected.len() as u64);
            if turn % 4 != 0 {
                continue;
            }
            let pieces = periodic.pieces(&ours, 1 << 12).unwrap().into_iter();
            let of_pieces = pieces.flat_map(|piece| numbers(&periodic, &ours.clone().piece(piece)));
            assert_eq!(sorted(of_pieces.collect()), expected);
            let shares = (0..3).flat_map(|share| periodic.share(&ours, share, 3).unwrap());
            let of_shares = shares.flat_map(|piece| numbers(&periodic, &ours.clone().piece(piece)));
            assert_eq!(sorted(of_shares.collect()), expected);
            assert_eq!(of_cursor(&periodic, &ours), expected);
            assert_eq!(of_tracks(&periodic, &ours), expected);
            let mut bins = Bins::new(7);
            bins.range = Some((Value::Int(0), Value::Int(ROWS as i128 * 2)));
            let [found, other] = [(&periodic, &ours), (&flat, &explicit)].map(|(dataset, query)| {
                dataset.histogram(&HistogramRequest::new(query.clone(), "number", bins.clone()))
            });
            let (found, other) = (found.unwrap(), other.unwrap());
            assert_eq!(found.rows.all.most, expected.len() as u64);
            assert_eq!(format!("{:?}", found.rows.bins), format!("{:?}", other.rows.bins));
            let [found, other] = [(&periodic, &ours), (&flat, &explicit)]
                .map(|(dataset, query)| dataset.count_from(query, Source::Level(1)).unwrap());
            let matched = |found: &Count| found.sample.unwrap().matched;
            assert_eq!((found.rows, matched(&found)), (other.rows, matched(&other)));
        }
    }
    assert!(most > ROWS / 20, "some boxes have many records");
    // Sides without names are those of the coordinates.
    let unnamed = |dataset: &Dataset, periods: Option<&str>| {
        let query =
            Query::new().epochs(3).restricted(None, Some("240:260,:,95:103".to_owned()), periods.map(str::to_owned));
        numbers(dataset, &query)
    };
    assert_eq!(unnamed(&periodic, None), unnamed(&flat, Some("250.25,,100")));
    assert_eq!(unnamed(&periodic, Some("none,,none")), unnamed(&flat, None));
}

#[test]
fn indexes_by_space_wrap_where_the_records_do() {
    let records = records();
    let storage = write(&records, Some(&PERIODS), 0);
    for definition in ["space:z,x,levels=1", "space:x,y,levels=2"] {
        let shared: Arc<dyn Storage> = storage.clone();
        let mut build =
            IndexBuild::open_with(shared, ROOT, &definition.parse().unwrap(), &IndexOptions::default()).unwrap();
        build.build_epoch(3, &|_| ()).unwrap();
        build.close().unwrap();
    }
    let copy = Dataset::open_with(storage.clone() as Arc<dyn Storage>, format!("{ROOT}/_turbidite/index/space:z,x"));
    assert_eq!(copy.unwrap().schema().periods().unwrap().to_string(), "100,250.25");
    let dataset = dataset(&storage);
    let unnamed = Query::new().epochs(3).within("240:260,:,95:103");
    let expected = numbers(&dataset, &unnamed);
    assert!(!expected.is_empty());
    for name in ["space:z,x", "space:x,y"] {
        let query = unnamed.clone().using(Use::named(name));
        assert_eq!(
            of_cursor(&dataset, &query),
            expected,
            "sides have the order of the records' coordinates, not of {name}"
        );
    }
    let mut random = Random::new(8);
    for _ in 0..20 {
        let sides = Sides::random(&mut random);
        for states in [false, true] {
            let expected = sides.holds(&records, states);
            let [query, _] = sides.queries(states);
            for name in ["space:z,x", "space:x,y"] {
                let query = query.clone().using(Use::named(name));
                assert_eq!(numbers(&dataset, &query), expected, "{sides:?}, {name}");
                assert_eq!(of_cursor(&dataset, &query), expected, "{sides:?}, {name}");
            }
        }
    }
}

/// Returns the distance of a point from the images of a box that are near to both.
fn distance(point: [f64; 3], bounds: &[(f64, f64)]) -> f64 {
    let along = |axis: usize| {
        let ((low, high), at) = (bounds[axis], point[axis]);
        let from = |shift: f64| (low + shift - at).max(at - high - shift).max(0.0);
        match PERIODS[axis] {
            None => from(0.0),
            Some(period) => (-20..20).map(|turn| from(f64::from(turn) * period)).fold(f64::INFINITY, f64::min),
        }
    };
    (0..3).map(along).fold(0.0, f64::hypot)
}

#[test]
fn cursors_go_from_a_point_across_the_boundary() {
    let records = Records::even(9, 0.0, 250.0);
    let dataset = dataset(&write(&records, Some(&PERIODS), 2));
    let point = [249.0, 20.0, 2.0];
    // One page after the other: each is at least as far as the last one of its level.
    let query = Query::new().epochs(3);
    let mut cursor = dataset.cursor(&CursorRequest::new(query).near(point)).unwrap();
    let mut last = (u8::MAX, 0.0);
    let (mut pages, mut across) = (0, 0);
    for _ in 0..200 {
        cursor.advance(Step::Rows(1)).unwrap();
        let batches: Vec<_> = cursor.by_ref().map(|batch| batch.unwrap()).collect();
        let [batch] = &batches[..] else { continue };
        let bounds = batch.bounds.as_ref().unwrap();
        let found = distance(point, bounds);
        across += usize::from(bounds[0].1 < 50.0 && found < 50.0);
        if batch.level == last.0 {
            assert!(found >= last.1 - 1e-9, "{found} after {}", last.1);
            pages += 1;
        }
        last = (batch.level, found);
    }
    assert!(pages > 50 && across > 0, "{pages} pages were compared, {across} of them are across the boundary");
}

#[test]
fn a_dataset_keeps_its_periods() {
    let few = Records::new(vec![[249.0, 1.0, 99.0], [1.0, 2.0, 1.0], [100.0, 3.0, 50.0]]);
    let storage = write(&few, Some(&PERIODS), 0);
    for stated in [None, Some(&PERIODS[..])] {
        open(&storage, stated, 0).unwrap().close().unwrap();
        assert_eq!(dataset(&storage).schema().periods().unwrap().as_slice(), PERIODS);
    }
    let refused = |storage, periods: &[Option<f64>]| open(storage, Some(periods), 0).unwrap_err().to_string();
    let other = refused(&storage, &[Some(250.25), Some(1.0), Some(100.0)]);
    assert!(other.contains("it has the periods '250.25,,100', but '250.25,1,100' were requested"), "{other}");
    let flat = write(&few, None, 0);
    let none = refused(&flat, &PERIODS);
    assert!(none.contains("it has no periods, but '250.25,,100' were requested"), "{none}");
    let job = open(&storage, None, 0).unwrap();
    job.begin_epoch(4).unwrap();
    few.append(&job);
    job.end_epoch().unwrap();
    job.close().unwrap();
    assert_eq!(dataset(&storage).count(&Query::new().within("245:255,:,:")).unwrap().0, 4, "in both epochs");
}
