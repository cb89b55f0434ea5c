//! Measures queries by predicates, in one process that opens the dataset once: by the access path that is chosen, and
//! by a scan.
//!
//! `predicate_speed DS EPOCH FILE [--rounds N] [--threads N]`
//!
//! FILE has a predicate in each line. Each is answered as a count, and with all columns of the rows, N times by each
//! path in turns, after a first time that fills the caches. Prints a JSON object for each: the medians in microseconds.

use std::time::Instant;

use turbidite::query::{Dataset, Query, Use};

const USAGE: &str = "usage: predicate_speed DS EPOCH FILE [--rounds N] [--threads N]";

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, epoch, file, options @ ..] = arguments.as_slice() else { return Err(USAGE.into()) };
    let (mut rounds, mut threads) = (5, None);
    for option in options.chunks(2) {
        match option {
            [name, value] if name == "--rounds" => rounds = value.parse::<usize>()?.max(1),
            [name, value] if name == "--threads" => threads = Some(value.parse::<usize>()?),
            _ => return Err(USAGE.into()),
        }
    }
    let (dataset, epoch) = (Dataset::open(path)?, epoch.parse::<u64>()?);
    for predicate in std::fs::read_to_string(file)?.lines() {
        let mut query = Query::new().epochs(epoch).filter(predicate);
        if let Some(threads) = threads {
            query = query.threads(threads);
        }
        let accesses = [query.clone(), query.using(Use::Scan)];
        let (rows, [count, count_by_scan]) = medians_us(&accesses, rounds, &|query| Ok(dataset.count(query)?.0))?;
        let all_rows = |query: &Query| -> Outcome<u64> {
            let mut rows = 0;
            for batch in dataset.run(query)? {
                rows += batch?.num_rows() as u64;
            }
            Ok(rows)
        };
        let (found, [read, read_by_scan]) = medians_us(&accesses, rounds, &all_rows)?;
        if found != rows {
            return Err(format!("{predicate}: {found} rows, counted {rows}").into());
        }
        println!(
            r#"{{"predicate":"{predicate}","rows":{rows},"count_us":{{"chosen":{count:.1},"scan":{count_by_scan:.1}}},"rows_us":{{"chosen":{read:.1},"scan":{read_by_scan:.1}}}}}"#
        );
    }
    Ok(())
}

/// Answers two queries in turns. Returns their answer, which must be the same, and their median times.
fn medians_us(
    queries: &[Query; 2],
    rounds: usize,
    answer: &dyn Fn(&Query) -> Outcome<u64>,
) -> Outcome<(u64, [f64; 2])> {
    let mut times = [const { Vec::new() }; 2];
    let mut answers = [0; 2];
    for round in 0..=rounds {
        for ((query, times), found) in queries.iter().zip(&mut times).zip(&mut answers) {
            let begun = Instant::now();
            *found = answer(query)?;
            if round > 0 {
                times.push(begun.elapsed().as_secs_f64() * 1e6);
            }
        }
    }
    if answers[0] != answers[1] {
        return Err(format!("{} rows by an index, {} by a scan", answers[0], answers[1]).into());
    }
    let median = |mut times: Vec<f64>| {
        times.sort_unstable_by(f64::total_cmp);
        times[times.len() / 2]
    };
    Ok((answers[0], times.map(median)))
}
