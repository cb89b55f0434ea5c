//! Cold starts: reads that depend on each other before a query reads its first page, with nothing in memory.

use std::ops::Range;

use super::*;
use crate::format::PartEntry;
use crate::storage::{FaultStorage, ReadEvent};

/// An epoch of four parts with a few row groups of a few pages.
fn written() -> (Fixture, EpochManifest) {
    let fixture = Fixture::new(DataType::F32, 1024, 4);
    let manifest = fixture.write(&partitioned(1, 4, 2, 12_000));
    (fixture, manifest)
}

/// Returns the reads and announcements of a query on a dataset that has just been opened.
fn events_of(fixture: &Fixture, query: &Query) -> Vec<ReadEvent> {
    let storage = Arc::new(FaultStorage::new(fixture.storage.clone()));
    let dataset = Dataset::open_with(storage.clone(), ROOT).unwrap();
    storage.take_events();
    let rows: usize = dataset.run(&query.clone().threads(1)).unwrap().map(|batch| batch.unwrap().num_rows()).sum();
    assert!(rows > 0, "{query:?}");
    storage.take_events()
}

/// Returns the round of each read. A read depends on all reads that were complete when its place was announced, or when
/// it began if it was not announced.
fn rounds(events: &[ReadEvent]) -> Vec<(&ReadEvent, usize)> {
    let mut announced: Vec<(&ReadEvent, usize)> = Vec::new();
    let (mut complete, mut rounds) = (0, Vec::new());
    for event in events {
        if event.is_announced {
            announced.push((event, complete + 1));
            continue;
        }
        let covers = |other: &Range<u64>| other.start <= event.range.start && event.range.end <= other.end;
        let earlier = announced.iter().find(|(other, _)| other.path == event.path && covers(&other.range));
        let round = earlier.map_or(complete + 1, |(_, round)| *round);
        complete = complete.max(round);
        rounds.push((event, round));
    }
    rounds
}

/// Checks the rounds of a query: the number before its pages, and that all pages are read in the same round.
#[track_caller]
fn check_rounds(fixture: &Fixture, manifest: &EpochManifest, query: &Query, before_pages: usize) {
    let events = events_of(fixture, query);
    let is_page = |event: &ReadEvent| {
        manifest.row_groups.iter().any(|run| {
            event.path == fixture.part_path(1, run.part)
                && (run.offset..run.offset + run.bytes).contains(&event.range.start)
        })
    };
    let rounds = rounds(&events);
    let (pages, others): (Vec<_>, Vec<_>) = rounds.iter().partition(|(event, _)| is_page(event));
    assert!(pages.len() > 1 && pages.iter().all(|(_, round)| *round == before_pages + 1), "{rounds:#?}");
    // The mark of a seal may be read in the pages' round.
    assert!(others.iter().all(|(_, round)| *round <= before_pages + 1), "{rounds:#?}");
    for entry in &manifest.parts {
        let path = fixture.part_path(1, entry.part);
        let footer = |event: &ReadEvent| event.path == path && event.range.end == entry.bytes;
        assert!(!events.iter().any(footer), "a footer is read");
    }
}

#[test]
fn a_range_of_keys_is_read_after_the_manifest() {
    let (fixture, manifest) = written();
    for ordered in [false, true] {
        let query = Query::new().filter("energy between 1.9 and 2.1").ordered(ordered);
        check_rounds(&fixture, &manifest, &query, 1);
        check_rounds(&fixture, &manifest, &query.columns(["a", "id"]), 1);
    }
}

#[test]
fn other_columns_are_read_after_manifest_and_page_indexes() {
    let (fixture, manifest) = written();
    check_rounds(&fixture, &manifest, &Query::new().filter("a > 95"), 2);
    check_rounds(&fixture, &manifest, &Query::new().filter("energy between 1.9 and 2.1 and b > 0"), 2);
    let (first, last) = (manifest.parts.first().unwrap(), manifest.parts.last().unwrap());
    let events = events_of(&fixture, &Query::new().filter("energy < 0.5 and b > 0"));
    let index_reads = |entry: &PartEntry| {
        let path = fixture.part_path(1, entry.part);
        let is_index = |event: &&ReadEvent| event.path == path && event.range.start >= entry.footer_offset;
        events.iter().filter(is_index).filter(|event| !event.is_announced).count()
    };
    assert_eq!((index_reads(first), index_reads(last)), (1, 0), "one read for all row groups that may match");
}

/// Manifests of more than 1 MiB are read by column, which takes one round more.
#[test]
fn a_large_manifest_takes_two_rounds() {
    let (fixture, mut manifest) = written();
    let (part, entry) = (manifest.parts[0], manifest.row_groups[0].clone());
    for rank in 10..10_000 {
        let mut part = part;
        part.part.rank = rank;
        manifest.parts.push(part);
        let mut entry = entry.clone();
        entry.part.rank = rank;
        entry.columns[1].range = Some((crate::schema::Value::Float(1e6), crate::schema::Value::Float(1e6)));
        manifest.row_groups.to_mut().push(entry);
    }
    fixture.put_manifest(&manifest);
    let path = fixture.paths.manifest(1, manifest.commit);
    let manifest_bytes = fixture.storage.open(&path).unwrap().bytes();
    assert!(manifest_bytes > 1 << 20, "{manifest_bytes}");
    let query = Query::new().filter("energy between 1.9 and 2.1");
    check_rounds(&fixture, &manifest, &query, 2);
    let events = events_of(&fixture, &query);
    let read: u64 = events
        .iter()
        .filter(|event| event.path == path && !event.is_announced)
        .map(|event| event.range.end - event.range.start)
        .sum();
    assert!(read * 4 < manifest_bytes * 3, "{read} of {manifest_bytes} bytes");
}

/// First keys cost at most 0.05 % of the pages. Queries that lack them use page indexes.
#[test]
fn first_keys_take_a_small_share_of_the_pages() {
    for (page_rows, has_keys) in [(2048, true), (512, true), (64, false)] {
        let fixture = Fixture::new(DataType::F32, page_rows, 2);
        let manifest = fixture.write(&partitioned(1, 2, 2, 9_000));
        let encoded = |manifest: &EpochManifest| manifest.encode(fixture.schema()).unwrap().len() as u64;
        let mut without = manifest.clone();
        for run in without.row_groups.to_mut() {
            run.pages.first_keys = None;
        }
        let keys_bytes = encoded(&manifest) - encoded(&without);
        // A buffer of an Arrow stream is padded to 64 bytes.
        assert!(keys_bytes <= manifest.page_bytes() / 2000 + 64, "{keys_bytes} of {}", manifest.page_bytes());
        let stored = fixture.open().manifest(1).unwrap();
        let keys = |run: &crate::format::RowGroupEntry| run.pages.first_keys.clone();
        assert!(stored.row_groups.iter().all(|run| keys(run).is_some() == has_keys), "{page_rows}");
        let query = Query::new().filter("energy between 0.5 and 1.5");
        check_rounds(&fixture, &manifest, &query, if has_keys { 1 } else { 2 });
    }
}
