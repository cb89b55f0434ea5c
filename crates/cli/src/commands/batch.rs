//! Runs lists of range queries over the key, for benchmarks: `query DS --batch queries.csv --log querylog.csv`.

use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use serde::Serialize;
use turbidite::query::{Dataset, Query, QueryMetrics};

use super::answers::{report_ignored, say, say_json};
use crate::failure::{Failure, FileContext};
use crate::output::PendingFile;
use crate::text;

/// Names of the log's columns.
const LOG_HEADER: &str = "epoch,begin,end,matches,runs,bytes_read,read_s,filter_s,merge_s,total_s";

/// One query of the list. The bounds are stored as text, so that 64-bit integers keep all their digits.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RangeQuery {
    epoch: u64,
    begin: String,
    end: String,
}

/// One row of the log.
#[derive(Debug)]
struct Done {
    query: RangeQuery,
    matches: u64,
    metrics: QueryMetrics,
    total_s: f64,
}

/// Totals over all queries.
#[derive(Debug, Default, Serialize)]
struct Summary {
    queries: u64,
    matches: u64,
    bytes_read: u64,
    read_s: f64,
    filter_s: f64,
    merge_s: f64,
    total_s: f64,
    latency_p50_s: f64,
    latency_p99_s: f64,
}

/// Runs all queries of a list in sequence. `template` holds the options that all queries share.
pub(super) fn run(
    dataset: &Dataset,
    list: &Path,
    log: Option<&Path>,
    template: Query,
    as_json: bool,
) -> Result<(), Failure> {
    if !dataset.schema().has_sorted_runs() {
        return Err(Failure::Usage(format!(
            "--batch: a list has ranges of the key, and the records are clustered by '{}'; query with --box",
            dataset.schema().cluster_key()
        )));
    }
    let queries = parse(list, &std::fs::read_to_string(list).on_file("read", list)?)?;
    // The log is created first, so that an hour of queries does not end with a log that cannot be written.
    let log = log.map(|path| Ok::<_, Failure>((path, PendingFile::create(path)?))).transpose()?;
    let key = format!("\"{}\"", dataset.schema().key().name.replace('"', "\"\""));
    let mut done = Vec::with_capacity(queries.len());
    for query in queries {
        let filter = format!("{key} BETWEEN {} AND {}", query.begin, query.end);
        let begun = Instant::now();
        let mut stream = dataset.run(&template.clone().epochs(query.epoch).filter(filter).ordered(true))?;
        let mut matches = 0;
        for batch in &mut stream {
            matches += batch?.num_rows() as u64;
        }
        done.push(Done { query, matches, metrics: stream.metrics(), total_s: begun.elapsed().as_secs_f64() });
    }
    if !as_json {
        // The first of them says it for all.
        done.iter()
            .find(|done| done.metrics.corrupt_filters + done.metrics.corrupt_indexes > 0)
            .inspect(|done| report_ignored(dataset, &done.metrics));
    }
    if let Some((path, mut file)) = log {
        file.write_all(log_text(&done).as_bytes()).on_file("write", path)?;
        file.complete()?;
    }
    let summary = Summary::of(&done);
    if as_json { say_json(&summary) } else { say(&summary.in_words()) }
}

/// Parses a list of queries. Skips a header line, empty lines and lines that begin with #.
fn parse(path: &Path, content: &str) -> Result<Vec<RangeQuery>, Failure> {
    let mut queries = Vec::new();
    for (number, line) in (1..).zip(content.lines()) {
        let line = line.trim();
        let is_header = queries.is_empty() && line.split(',').next().is_some_and(|name| name.trim() == "epoch");
        if line.is_empty() || line.starts_with('#') || is_header {
            continue;
        }
        queries.push(parse_line(line).ok_or_else(|| {
            Failure::Usage(format!(
                "{}: line {number}: expected epoch,begin,end (numbers), found '{line}'",
                path.display()
            ))
        })?);
    }
    Ok(queries)
}

fn parse_line(line: &str) -> Option<RangeQuery> {
    let mut fields = line.split(',').map(str::trim);
    let (epoch, begin, end) = (fields.next()?, fields.next()?, fields.next()?);
    let is_number = |text: &str| text.parse::<f64>().is_ok();
    if fields.next().is_some() || !is_number(begin) || !is_number(end) {
        return None;
    }
    let plain = |text: &str| text.strip_prefix('+').unwrap_or(text).to_owned();
    Some(RangeQuery { epoch: epoch.parse().ok()?, begin: plain(begin), end: plain(end) })
}

fn log_text(done: &[Done]) -> String {
    let mut text = format!("{LOG_HEADER}\n");
    for Done { query, matches, metrics, total_s } in done {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{},{},{},{matches},{},{},{:.9},{:.9},{:.9},{total_s:.9}",
            query.epoch,
            query.begin,
            query.end,
            metrics.runs_touched,
            metrics.bytes_read,
            metrics.read_s,
            metrics.filter_s,
            metrics.merge_s,
        );
    }
    text
}

impl Summary {
    fn of(done: &[Done]) -> Self {
        let mut latencies: Vec<f64> = done.iter().map(|one| one.total_s).collect();
        latencies.sort_unstable_by(f64::total_cmp);
        let at = |percent: usize| {
            let last = latencies.len().saturating_sub(1);
            latencies.get((latencies.len() * percent / 100).min(last)).copied().unwrap_or(0.0)
        };
        let seconds = |of: fn(&QueryMetrics) -> f64| done.iter().map(|one| of(&one.metrics)).sum();
        Self {
            queries: done.len() as u64,
            matches: done.iter().map(|one| one.matches).sum(),
            bytes_read: done.iter().map(|one| one.metrics.bytes_read).sum(),
            read_s: seconds(|metrics| metrics.read_s),
            filter_s: seconds(|metrics| metrics.filter_s),
            merge_s: seconds(|metrics| metrics.merge_s),
            total_s: latencies.iter().sum(),
            latency_p50_s: at(50),
            latency_p99_s: at(99),
        }
    }

    fn in_words(&self) -> String {
        let seconds = |value: f64| text::duration(std::time::Duration::from_secs_f64(value));
        format!(
            "{} in {}: {} matched, {} read\nper query: median {}, 99th percentile {}\n\
             over all threads: read {}, filter {}, merge {}",
            text::counted(self.queries, "query", "queries"),
            seconds(self.total_s),
            text::counted(self.matches, "row", "rows"),
            text::bytes(self.bytes_read),
            seconds(self.latency_p50_s),
            seconds(self.latency_p99_s),
            seconds(self.read_s),
            seconds(self.filter_s),
            seconds(self.merge_s),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read() {
        let content =
            "epoch,begin,end\n# hot\n\n500,0.5,1e3\r\n 4000 , -inf , +7 \n1,9223372036854775808,18446744073709551615";
        let query = |epoch, begin: &str, end: &str| RangeQuery { epoch, begin: begin.into(), end: end.into() };
        let expected = [
            query(500, "0.5", "1e3"),
            query(4000, "-inf", "7"),
            query(1, "9223372036854775808", "18446744073709551615"),
        ];
        assert_eq!(parse(Path::new("q.csv"), content).unwrap(), expected);
    }

    #[test]
    fn wrong_lines_are_named() {
        for line in ["1,2", "1,2,3,4", "x,1,2", "1,a,2", "1,1,", "-1,1,2", "epoch,begin,end"] {
            let message = parse(Path::new("q.csv"), &format!("1,2,3\n{line}")).unwrap_err().to_string();
            assert!(message.contains("q.csv: line 2") && message.contains(line), "{message}");
        }
    }

    #[test]
    fn summaries_add_up() {
        let done: Vec<Done> = (1..=100)
            .map(|number| Done {
                query: RangeQuery { epoch: 1, begin: "0".into(), end: "1".into() },
                matches: 2,
                metrics: QueryMetrics::default(),
                total_s: f64::from(number),
            })
            .collect();
        let summary = Summary::of(&done);
        assert_eq!((summary.queries, summary.matches), (100, 200));
        assert_eq!((summary.latency_p50_s, summary.latency_p99_s), (51.0, 100.0));
        assert_eq!(Summary::of(&[]).latency_p99_s, 0.0);
        assert_eq!(
            log_text(&done[..1]).lines().nth(1).unwrap(),
            "1,0,1,2,0,0,0.000000000,0.000000000,0.000000000,1.000000000"
        );
    }
}
