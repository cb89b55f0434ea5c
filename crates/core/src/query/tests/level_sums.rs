//! Sums that are estimated from levels of detail: of the sampled rows and no others, their errors, NaN and infinities.

use proptest::prelude::*;

use super::cursors::{Point, PointRun, memory, open, points, write_points};
use super::*;
use crate::query::Unbinned;
use crate::schema::{Levels, Value};
use crate::storage::FaultStorage;

const EDGES: [f64; 5] = [0.0, 0.25, 0.5, 0.75, 1.0];

/// Writes points, of which each eleventh has a value of these.
fn written(seed: u64, levels: u8, rows: u32, wild: &[f32]) -> (Arc<dyn Storage>, Vec<Point>) {
    let (storage, mut runs) = (memory(), points(seed, levels, (2, 2, rows)));
    for (number, point) in runs.iter_mut().flat_map(|run| &mut run.2).step_by(11).enumerate() {
        point.v = if wild.is_empty() { point.v } else { wild[number % wild.len()] };
    }
    write_points(&storage, Some(Levels { count: levels, seed }), &runs);
    (storage, runs.into_iter().flat_map(|run: PointRun| run.2).collect())
}

fn value(point: &Point, column: &str) -> f64 {
    match column {
        "v" => point.v.into(),
        "y" => point.y.into(),
        _ => point.id as f64,
    }
}

fn is_close(one: f64, other: f64) -> bool {
    one == other || (one.is_nan() && other.is_nan()) || (one - other).abs() <= 1e-10 * one.abs().max(other.abs())
}

/// Checks the sum over these values, of which some are in the sample. Values lie within `most`.
fn check((found, rows): (&Estimate<f64>, u64), truth: &[f64], sampled: &[f64], stands_for: f64, most: f64) {
    assert_eq!(rows, sampled.len() as u64);
    let sum: f64 = sampled.iter().map(|value| value * stands_for).sum();
    assert!(is_close(found.estimate, sum), "{found:?}, {sum}");
    if !sum.is_finite() {
        assert_eq!(found.error, None);
        return;
    }
    if stands_for == 1.0 || found.error == Some(0.0) && truth.len() == sampled.len() {
        assert_eq!(found.error, Some(0.0));
        return;
    }
    if sampled.len() < 30 {
        assert_eq!(found.error, None);
        return;
    }
    let unit = f64::sqrt(stands_for * (stands_for - 1.0));
    let squares: f64 = sampled.iter().map(|value| value * value).sum();
    if squares > 0.0 {
        let typical = f64::sqrt(squares / sampled.len() as f64);
        let expected = unit * (typical + f64::sqrt(squares + 0.75 * typical * typical));
        assert!(is_close(found.error.unwrap(), expected), "{found:?}, {expected}");
        return;
    }
    // If no value is known, a row that the sample misses may have the largest one.
    let Some(error) = found.error.filter(|error| *error > 0.0) else {
        assert!(found.error.is_none() || truth.len() == sampled.len() || truth.iter().all(|value| *value == 0.0));
        return;
    };
    let value = error / unit / (1.0 + f64::sqrt(0.75));
    assert!(
        truth.iter().all(|one| one.abs() <= value * (1.0 + 1e-9)) && value <= most * (1.0 + 1e-9),
        "{value}, {most}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn sums_are_those_of_the_rows_of_a_level(
        seed in any::<u64>(),
        levels in 1u8..4,
        above in 0u8..4,
        rows in prop::sample::select(vec![3u32, 90, 400]),
        filter in prop::sample::select(vec![None, Some("y > 2 and v < 0.9"), Some("x < 20"), Some("v < 0.01")]),
        wild in prop::sample::select(vec![
            &[][..], &[f32::NAN][..], &[f32::INFINITY][..], &[f32::INFINITY, f32::NEG_INFINITY][..], &[0.0, -0.75][..],
        ]),
        summed in prop::sample::select(vec!["v", "y", "id"]),
        threads in 1usize..3,
    ) {
        let level = above.min(levels);
        let (storage, points) = written(seed, levels, rows, wild);
        let matches = |point: &&Point| match filter {
            Some("y > 2 and v < 0.9") => point.y > 2.0 && point.v < 0.9,
            Some("x < 20") => point.x < 20.0,
            Some(_) => point.v < 0.01,
            None => true,
        };
        let matching: Vec<Point> = points.iter().filter(matches).copied().collect();
        let query = Query::new().restricted(filter.map(str::to_owned), None, None).threads(threads);
        let bins = Bins { range: Some((Value::Float(0.0), Value::Float(1.0))), ..Bins::new(EDGES.len() - 1) };
        let faults = Arc::new(FaultStorage::new(storage.clone()));
        let dataset = Dataset::open_with(faults, ROOT).unwrap();
        let found = dataset.histogram(&of_column(&query, "v", &bins, Source::Level(level)).weights(summed)).unwrap();
        // Sums change no count, and the level has no other rows.
        let counts = open(&storage).histogram(&of_column(&query, "v", &bins, Source::Level(level))).unwrap();
        prop_assert_eq!((&found.rows, &found.sampled), (&counts.rows, &counts.sampled));
        let (sums, sampled) = (found.sums.as_ref().unwrap(), found.sampled.as_ref().unwrap());
        prop_assert_eq!((found.weights.as_deref(), sums.bins.len()), (Some(summed), EDGES.len() - 1));
        let stands_for = 8f64.powi(level.into());
        let check = |found: (&Estimate<f64>, u64), most: f64, of: &dyn Fn(f64) -> bool| {
            let chosen = |least: u8| -> Vec<f64> {
                let inside = matching.iter().filter(|point| point.level >= least && of(point.v.into()));
                inside.map(|point| value(point, summed)).collect()
            };
            check(found, &chosen(0), &chosen(level), stands_for, most);
        };
        for (bin, (found, rows)) in sums.bins.iter().zip(sampled.bins.estimates()).enumerate() {
            let (from, to) = (EDGES[bin], EDGES[bin + 1]);
            let most = if summed == "v" { to } else { f64::INFINITY };
            check((&found, *rows), most, &|v| from <= v && (v < to || (v == to && to == 1.0)));
        }
        let at = |reason| (sums.at(reason), sampled.at(reason).estimate);
        let apart: [(Unbinned, &dyn Fn(f64) -> bool); 5] = [
            (Unbinned::Below, &|v| v < 0.0 && v.is_finite()),
            (Unbinned::Above, &|v| v > 1.0 && v.is_finite()),
            (Unbinned::Nan, &f64::is_nan),
            (Unbinned::PositiveInfinity, &|v| v == f64::INFINITY),
            (Unbinned::NegativeInfinity, &|v| v == f64::NEG_INFINITY),
        ];
        for (reason, holds) in apart {
            let (sum, rows) = at(reason);
            check((&sum, rows), f64::INFINITY, holds);
        }
        check((&sums.all, sampled.all.estimate), f64::INFINITY, &|_| true);
    }
}

#[test]
fn sums_are_the_same_with_any_number_of_threads() {
    let (storage, _) = written(5, 2, 6_000, &[1e-9, 1e9]);
    let sums = |threads: usize| {
        let query = Query::new().threads(threads);
        let request = of_column(&query, "y", &Bins::new(3), Source::Level(1)).weights("v");
        let found = open(&storage).histogram(&request).unwrap();
        let bits = |of: Estimate<f64>| (of.estimate.to_bits(), of.error.map(f64::to_bits));
        let sums: Vec<_> = found.sums.unwrap().bins.iter().map(bits).collect();
        (sums, found.sampled)
    };
    assert_eq!(sums(1), sums(4));
}

#[test]
fn columns_without_numbers_are_not_summed() {
    let (storage, _) = written(1, 1, 90, &[]);
    let refused = |summed: &str| {
        let request = of_column(&Query::new(), "v", &Bins::new(3), Source::Level(1)).weights(summed);
        open(&storage).histogram(&request).unwrap_err().to_string()
    };
    assert!(refused("tag").contains("'tag'"), "{}", refused("tag"));
    assert!(refused("ux").contains("ux"), "{}", refused("ux"));
}

/// Pairs of values are estimated by the same rows as one column, with the same errors.
#[test]
fn pairs_add_up_to_the_bins_of_one_column() {
    let (storage, points) = written(7, 2, 2_000, &[f32::NAN, f32::INFINITY]);
    let bins = |count| Bins { range: Some((Value::Float(0.0), Value::Float(1.0))), ..Bins::new(count) };
    for (level, weights) in [(0, None), (1, None), (1, Some("id")), (2, Some("v"))] {
        let request = of_column(&Query::new(), "v", &bins(4), Source::Level(level));
        let request = weights.into_iter().fold(request, HistogramRequest::weights);
        let one = open(&storage).histogram(&request).unwrap();
        let two = open(&storage).histogram(&request.by("v", bins(2))).unwrap();
        assert_eq!((two.rows.bins.len(), two.sample, two.rows.all), (8, one.sample, one.rows.all));
        for bin in 0..4 {
            // The same column has no row in the other half.
            let (half, other) = (bin * 2 + bin / 2, bin * 2 + 1 - bin / 2);
            assert_eq!(two.rows.bins.at(half), one.rows.bins.at(bin));
            assert_eq!(two.rows.bins.at(other).least, 0);
            if let (Some(one), Some(two)) = (&one.sums, &two.sums) {
                assert_eq!(format!("{:?}", two.bins.at(half)), format!("{:?}", one.bins.at(bin)));
            }
        }
        let sampled =
            |of: fn(f32) -> bool| points.iter().filter(|point| point.level >= level && of(point.v)).count() as u64;
        let found = two.sampled.unwrap();
        assert_eq!(found.at(Unbinned::Nan).estimate, sampled(f32::is_nan));
        assert_eq!(found.at(Unbinned::Infinite).estimate, sampled(f32::is_infinite));
    }
}
