//! Prints the summary at the end, one line per dataset.

use turbidite::OutOfRange;

use crate::dataset::{Dataset, Tally};
use crate::notices::{complain_in_lines, count, display, grouped};
use crate::process;
use crate::world::World;

/// Prints the results of the datasets. Each line is printed by one rank. Collective.
pub(crate) fn say(datasets: &[Dataset], world: &World) {
    let mut counts: Vec<i64> = Vec::new();
    let mut nearest: Vec<i64> = Vec::new();
    let rank = i64::from(world.rank());
    for (index, dataset) in datasets.iter().enumerate() {
        counts.extend([dataset.tally.files as i64, dataset.tally.unspooled.len() as i64]);
        nearest.push(if process::nearest(index).is_some() { rank } else { i64::MAX });
    }
    if !world.sum(&mut counts) || !world.minimum(&mut nearest) || process::is_quiet() {
        return;
    }
    let mut lines = Vec::new();
    for (index, (dataset, counted)) in datasets.iter().zip(counts.chunks(2)).enumerate() {
        let [files, unspooled] = [counted[0], counted[1]].map(|count| u64::try_from(count).unwrap_or(0));
        let speaks = rank == 0;
        if files > 0 {
            if speaks {
                let mut line = of_tally(&dataset.tally, unspooled, &display(&dataset.plan.out));
                if dataset.plan.lacks_checks() && !dataset.tally.indexed.is_empty() {
                    line += "; the files' headers were not checked: set `records` or `magic`";
                }
                lines.push(line);
                lines.extend(of_range(&dataset.tally).iter().map(ToString::to_string));
            }
        } else if nearest[index] == rank {
            let path = process::nearest(index).map(|nearest| nearest.path).unwrap_or_default();
            lines.push(format!("no file matched '{}'; closest: {}", dataset.plan.pattern, path));
        } else if nearest[index] == i64::MAX && speaks && !world.is_alone() {
            lines.push(format!("no file matched '{}' or resembled it; nothing is indexed", dataset.plan.pattern));
        }
    }
    if !lines.is_empty() {
        complain_in_lines(&lines);
    }
}

fn of_tally(tally: &Tally, unspooled: u64, out: &str) -> String {
    let (epochs, records) =
        (tally.indexed.len() as u64, tally.indexed.values().map(|epoch| epoch.records).sum::<u64>());
    let mut line = format!("indexed {}, {} into {out}", count(epochs, "epoch"), count(records, "record"));
    let (skipped, failed) = (tally.skipped.len() as u64, tally.failed.len() as u64);
    if skipped > 0 {
        let are = is_or_are(skipped);
        line += &format!("; skipped {}, which {are} in the dataset already", count(skipped, "epoch"));
    }
    if failed > 0 {
        line += &format!("; {} not indexed, see above", count_is(failed, "epoch"));
    }
    if unspooled > 0 {
        let (files, stay) = (count(unspooled, "file"), if unspooled == 1 { "stays" } else { "stay" });
        line += &format!("; {files} {stay} where the program wrote {}", if unspooled == 1 { "it" } else { "them" });
    }
    line
}

/// Returns counts of derived values that are out of the range of their columns, over all indexed epochs.
fn of_range(tally: &Tally) -> Vec<OutOfRange> {
    let mut sum = Vec::new();
    tally.indexed.values().for_each(|epoch| OutOfRange::add(&mut sum, &epoch.out_of_range));
    sum
}

fn is_or_are(number: u64) -> &'static str {
    if number == 1 { "is" } else { "are" }
}

fn count_is(number: u64, what: &str) -> String {
    format!("{} {what}{} {}", grouped(number), if number == 1 { "" } else { "s" }, is_or_are(number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::Indexed;

    #[test]
    fn a_line_says_what_has_become_of_a_dataset() {
        let of = |records| Indexed { records, out_of_range: Vec::new() };
        let tally =
            Tally { files: 32, indexed: (0..8).map(|epoch| (epoch, of(917_504))).collect(), ..Tally::default() };
        assert_eq!(of_tally(&tally, 0, "run/e.tbd"), "indexed 8 epochs, 7,340,032 records into run/e.tbd");
        let tally = Tally {
            files: 4,
            indexed: [(0, of(1))].into(),
            skipped: [1, 2].into(),
            failed: [3].into(),
            ..Tally::default()
        };
        assert_eq!(
            of_tally(&tally, 1, "e"),
            "indexed 1 epoch, 1 record into e; skipped 2 epochs, which are in the dataset already; 1 epoch is not indexed, \
             see above; 1 file stays where the program wrote it"
        );
    }
}
