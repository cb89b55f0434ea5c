//! Readers that query at any moment through the product's query path, and compare the results with plain lists of
//! records.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, UInt64Type};
use arrow_array::{Array, RecordBatch};
use turbidite::query::TrackRequest;
use turbidite::storage::Storage;
use turbidite::{Clustering, Dataset, Error, Query};

use crate::coverage::Coverage;
use crate::disk::ROOT;
use crate::model::{Content, Model};
use crate::random::Random;

/// Appends the IDs and key bits of a batch.
fn take(batch: &RecordBatch, into: &mut Vec<(u64, u32)>) -> Result<(), String> {
    let column = |name: &str| batch.column_by_name(name).ok_or_else(|| format!("the answer lacks {name}"));
    let (keys, ids) = (column("key")?.as_primitive::<Float32Type>(), column("id")?.as_primitive::<UInt64Type>());
    if keys.null_count() + ids.null_count() > 0 {
        return Err("the answer has nulls".to_owned());
    }
    into.extend(ids.values().iter().zip(keys.values()).map(|(id, key)| (*id, key.to_bits())));
    Ok(())
}

/// Returns the result of a query, ordered by ID.
fn ask(dataset: &Dataset, query: &Query) -> Result<Vec<(u64, u32)>, Error> {
    let mut found = Vec::new();
    for batch in dataset.run(query)? {
        // A batch with an unexpected schema counts as a wrong record.
        take(&batch?, &mut found).unwrap_or_else(|_| found.push((u64::MAX, 0)));
    }
    found.sort_unstable();
    Ok(found)
}

/// Returns the first difference between two lists of records, both ordered by ID.
fn difference(found: &[(u64, u32)], expected: &[(u64, u32)]) -> Option<String> {
    if found == expected {
        return None;
    }
    let first = found.iter().zip(expected).position(|(one, other)| one != other);
    let at = first.unwrap_or(found.len().min(expected.len()));
    let name = |record: Option<&(u64, u32)>| {
        record.map_or("nothing".to_owned(), |(id, bits)| {
            let (writing, rank, number) = (id >> 40, (id >> 32) & 0xff, id & 0xffff_ffff);
            format!("record {number} of rank {rank} in writing {writing} with key {}", f32::from_bits(*bits))
        })
    };
    Some(format!(
        "{} records where {} are right; the first difference: {} instead of {}",
        found.len(),
        expected.len(),
        name(found.get(at)),
        name(expected.get(at))
    ))
}

/// Opens the dataset. Returns `None` if the dataset does not exist and is not required to.
pub(crate) fn open(storage: &Arc<dyn Storage>, model: &Model) -> Result<Option<Dataset>, String> {
    match Dataset::open_with(Arc::clone(storage), ROOT) {
        Ok(dataset) => Ok(Some(dataset)),
        Err(Error::NotADataset { .. }) if model.visible().is_empty() => Ok(None),
        Err(error) => Err(format!("readers: the dataset cannot be opened: {error}")),
    }
}

/// Draws up to four IDs of an epoch, of which one may belong to no record.
fn draw_ids(random: &mut Random, all: &[(u64, u32)]) -> Vec<u64> {
    let mut ids: Vec<u64> = (0..random.between(1, 3)).map(|_| random.pick(all).0).collect();
    if random.one_in(2) {
        ids.push(random.pick(all).0 | 1 << 31);
    }
    ids
}

/// Returns the predicate that looks up these IDs.
fn lookup(ids: &[u64]) -> String {
    match ids {
        [id] => format!("id = {id}"),
        ids => format!("id IN ({})", ids.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")),
    }
}

/// Looks up IDs of an epoch that is clustered by hash, one by one and as trajectories, and compares the records with
/// those of a scan of the written ones.
pub(crate) fn look_up(
    storage: &Arc<dyn Storage>,
    (epoch, all): (u64, &[(u64, u32)]),
    random: &mut Random,
    coverage: &mut Coverage,
) -> Result<(), String> {
    let stated = |error: Error| format!("lookup: epoch {epoch}: {error}");
    let dataset = Dataset::open_with(Arc::clone(storage), ROOT).map_err(stated)?;
    if all.is_empty() {
        return Ok(());
    }
    for _ in 0..8 {
        let ids = draw_ids(random, all);
        let query = Query::new().epochs(epoch).threads(1).columns(["key", "id"]).filter(lookup(&ids));
        let found = ask(&dataset, &query).map_err(stated)?;
        let expected: Vec<_> = all.iter().copied().filter(|(id, _)| ids.contains(id)).collect();
        if let Some(what) = difference(&found, &expected) {
            return Err(format!("lookup: epoch {epoch}, {}: {what}", lookup(&ids)));
        }
        if ids.iter().any(|id| all.binary_search_by_key(id, |record| record.0).is_err()) {
            coverage.met("hash: absent id looked up");
        }
        let request = TrackRequest::of_ids(ids.iter().copied(), "id").rows(Query::new().epochs(epoch));
        let tracks = dataset.tracks(&request, &|_| ()).map_err(stated)?;
        if tracks.metrics().rows != expected.len() as u64 {
            let rows = tracks.metrics().rows;
            return Err(format!("lookup: epoch {epoch}: {rows} rows of trajectories, {} expected", expected.len()));
        }
        coverage.met("hash: lookup equals a scan");
    }
    Ok(())
}

/// Draws a query of one epoch. Returns the query with the expected records.
fn draw(random: &mut Random, clustering: Clustering, epoch: u64, all: &[(u64, u32)]) -> (Query, Vec<(u64, u32)>) {
    let is_ordered = random.one_in(4) && clustering != Clustering::Space;
    let query = Query::new().epochs(epoch).threads(1).columns(["key", "id"]).ordered(is_ordered);
    if random.one_in(2) {
        return (query, all.to_vec());
    }
    if clustering == Clustering::Hash && !random.one_in(4) {
        let ids = draw_ids(random, all);
        let expected = all.iter().copied().filter(|(id, _)| ids.contains(id)).collect();
        return (query.filter(lookup(&ids)), expected);
    }
    // Quarters are exact as text and as f32. Ranges are narrow where there are many keys.
    let base = random.pick(all).1;
    let middle = f32::from_bits(base);
    let middle = if middle.is_finite() && middle.abs() < 1e6 { (middle * 4.0).round() / 4.0 } else { 0.0 };
    let (low, high) = (middle - random.below(8) as f32 / 4.0, middle + random.below(40) as f32 / 4.0);
    let matches = |bits: u32| (low..high).contains(&f32::from_bits(bits));
    let expected = all.iter().copied().filter(|(_, bits)| matches(*bits)).collect();
    (query.filter(format!("key >= {low} AND key < {high}")), expected)
}

/// Checks the current list of epochs, and one query of one of them.
pub(crate) fn look(storage: &Arc<dyn Storage>, model: &Model, random: &mut Random) -> Result<(), String> {
    if let Some(wrong) = &model.wrong {
        return Err(format!("isolation: {wrong}"));
    }
    let Some(dataset) = open(storage, model)? else { return Ok(()) };
    let (found, expected) = (dataset.epochs().map_err(|error| format!("readers: {error}"))?, model.visible());
    if found != expected {
        return Err(format!("isolation: readers find the epochs {found:?} where {expected:?} are committed"));
    }
    if expected.is_empty() {
        return Ok(());
    }
    let epoch = random.pick(&expected);
    check_epoch(&dataset, model, epoch, random)
}

fn check_epoch(dataset: &Dataset, model: &Model, epoch: u64, random: &mut Random) -> Result<(), String> {
    let Some(writing) = model.now(epoch) else { return Ok(()) };
    let all = model.records(writing);
    let (query, expected) = if all.is_empty() {
        (Query::new().epochs(epoch).threads(1).columns(["key", "id"]), Vec::new())
    } else {
        draw(random, model.clustering, epoch, all)
    };
    let found = ask(dataset, &query).map_err(|error| format!("readers: epoch {epoch} cannot be read: {error}"))?;
    match difference(&found, &expected) {
        None => Ok(()),
        Some(what) => Err(format!("isolation: epoch {epoch}, {query:?}: {what}")),
    }
}

/// Returns the current writing of each epoch, or an error if the content is none of the epoch's writings.
pub(crate) fn identify(storage: &Arc<dyn Storage>, model: &Model) -> Result<BTreeMap<u64, usize>, String> {
    let mut contents = BTreeMap::new();
    let dataset = match Dataset::open_with(Arc::clone(storage), ROOT) {
        Ok(dataset) => dataset,
        Err(Error::NotADataset { .. }) => return Ok(contents),
        Err(error) => return Err(format!("durability: the dataset cannot be opened: {error}")),
    };
    for epoch in dataset.epochs().map_err(|error| format!("durability: {error}"))? {
        let query = Query::new().epochs(epoch).threads(1).columns(["key", "id"]);
        let found = ask(&dataset, &query).map_err(|error| format!("durability: epoch {epoch}: {error}"))?;
        let of_epoch = model.writings.iter().enumerate().filter(|(_, (writing, _))| writing.epoch == epoch);
        // Empty writings are indistinguishable, so the expected writing is returned.
        let expected = model.epochs.get(&epoch).cloned().unwrap_or_default();
        let mut fitting: Vec<usize> =
            of_epoch.filter(|(_, (_, records))| **records == found).map(|(number, _)| number).collect();
        fitting.sort_by_key(|number| {
            let content = Some(*number);
            (content != expected.now, !expected.possible.contains(&content))
        });
        let Some(first) = fitting.first() else {
            let what = expected.now.and_then(|writing| difference(&found, model.records(writing)));
            let what = what.unwrap_or_else(|| format!("{} records that nobody wrote", found.len()));
            return Err(format!("durability: epoch {epoch}: {what}"));
        };
        contents.insert(epoch, *first);
    }
    Ok(contents)
}

/// Checks a query of corrupt data: the result is correct, or an error reports the corruption.
pub(crate) fn doubt(storage: &Arc<dyn Storage>, model: &Model, coverage: &mut Coverage) -> Result<(), String> {
    let dataset = match Dataset::open_with(Arc::clone(storage), Path::new(ROOT)) {
        Ok(dataset) => dataset,
        Err(Error::Corruption { .. } | Error::Version { .. }) => {
            coverage.met("reader: corruption reported");
            return Ok(());
        }
        Err(error) => return Err(format!("detection: corruption shows as: {error}")),
    };
    for (label, epoch) in &model.epochs {
        let Some(writing) = epoch.now else { continue };
        let query = Query::new().epochs(*label).threads(1).columns(["key", "id"]);
        match ask(&dataset, &query) {
            Ok(found) => {
                if let Some(what) = difference(&found, model.records(writing)) {
                    return Err(format!("detection: epoch {label} after corruption: {what}"));
                }
            }
            Err(Error::Corruption { .. } | Error::Version { .. }) => coverage.met("reader: corruption reported"),
            Err(error) => return Err(format!("detection: corruption of epoch {label} shows as: {error}")),
        }
        if model.clustering == Clustering::Hash {
            doubt_lookups(&dataset, (*label, model.records(writing)), coverage)?;
        }
    }
    Ok(())
}

/// Checks lookups of all records of an epoch with a corrupt filter: they are found in spite of it, and some lookup
/// reports that a filter is corrupt.
pub(crate) fn doubt_filters(
    storage: &Arc<dyn Storage>,
    epoch: u64,
    model: &Model,
    coverage: &mut Coverage,
) -> Result<(), String> {
    let stated = |error: Error| format!("detection: epoch {epoch} with a corrupt filter: {error}");
    let dataset = Dataset::open_with(Arc::clone(storage), ROOT).map_err(stated)?;
    let records = model.now(epoch).map(|writing| Arc::clone(model.records(writing))).unwrap_or_default();
    let mut corrupt_filters = 0;
    for (id, bits) in records.iter() {
        let query = Query::new().epochs(epoch).threads(1).columns(["key", "id"]).filter(lookup(&[*id]));
        let mut stream = dataset.run(&query).map_err(stated)?;
        let mut found = Vec::new();
        for batch in stream.by_ref() {
            take(&batch.map_err(stated)?, &mut found)?;
        }
        corrupt_filters += stream.metrics().corrupt_filters;
        if let Some(what) = difference(&found, &[(*id, *bits)]) {
            return Err(format!("detection: epoch {epoch} with a corrupt filter, id {id:x}: {what}"));
        }
    }
    if corrupt_filters == 0 {
        return Err(format!("detection: epoch {epoch}: no lookup reports that a filter is corrupt"));
    }
    coverage.met("hash: corrupt filter noticed");
    Ok(())
}

/// Checks lookups in an epoch with corrupt data.
fn doubt_lookups(
    dataset: &Dataset,
    (epoch, records): (u64, &[(u64, u32)]),
    coverage: &mut Coverage,
) -> Result<(), String> {
    for (id, bits) in records.iter().step_by((records.len() / 16).max(1)) {
        let query = Query::new().epochs(epoch).threads(1).columns(["key", "id"]).filter(lookup(&[*id]));
        match ask(dataset, &query) {
            Ok(found) => {
                if let Some(what) = difference(&found, &[(*id, *bits)]) {
                    return Err(format!("detection: epoch {epoch} after corruption, id {id:x}: {what}"));
                }
                coverage.met("hash: lookup in an epoch with corruption");
            }
            Err(Error::Corruption { .. } | Error::Version { .. }) => coverage.met("reader: corruption reported"),
            Err(error) => return Err(format!("detection: corruption of epoch {epoch} shows as: {error}")),
        }
    }
    Ok(())
}

/// A slow reader, which begins before a change and ends after it.
pub(crate) struct SlowReader {
    epoch: u64,
    began: Content,
    seen: Vec<Content>,
    stream: Box<dyn Iterator<Item = Result<RecordBatch, Error>> + Send>,
    found: Vec<(u64, u32)>,
}

impl std::fmt::Debug for SlowReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SlowReader").field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

impl SlowReader {
    /// Begins a reader if there is none, or reads its next batch.
    pub(crate) fn go_on(
        slot: &mut Option<Self>,
        storage: &Arc<dyn Storage>,
        model: &Model,
        random: &mut Random,
        coverage: &mut Coverage,
    ) -> Result<(), String> {
        let Some(mut reader) = slot.take() else {
            *slot = Self::begin(storage, model, random)?;
            return Ok(());
        };
        let now = model.now(reader.epoch);
        reader.seen.push(now);
        match reader.stream.next() {
            Some(Ok(batch)) => {
                take(&batch, &mut reader.found)?;
                *slot = Some(reader);
                return Ok(());
            }
            // Parts that the reader has not yet opened may be removed. The reader must then return an error, not skip
            // the parts.
            Some(Err(_)) if reader.seen.iter().any(|content| *content != reader.began) => return Ok(()),
            Some(Err(error)) => return Err(format!("isolation: a reader of epoch {} fails: {error}", reader.epoch)),
            None => {}
        }
        if reader.seen.iter().any(|content| *content != reader.began) {
            coverage.met("reader: while an epoch is being replaced");
        }
        reader.found.sort_unstable();
        let is_whole = |content: &Content| content.is_some_and(|one| **model.records(one) == reader.found);
        if !is_whole(&reader.began) && !reader.seen.iter().any(is_whole) {
            let right = reader.began.and_then(|one| difference(&reader.found, model.records(one)));
            return Err(format!("isolation: a slow reader of epoch {}: {}", reader.epoch, right.unwrap_or_default()));
        }
        if is_whole(&reader.began) && now != reader.began {
            coverage.met("reader: old data after its replacement");
        }
        Ok(())
    }

    fn begin(storage: &Arc<dyn Storage>, model: &Model, random: &mut Random) -> Result<Option<Self>, String> {
        let visible = model.visible();
        if visible.is_empty() {
            return Ok(None);
        }
        let epoch = random.pick(&visible);
        let Some(dataset) = open(storage, model)? else { return Ok(None) };
        let query = Query::new().epochs(epoch).threads(1).columns(["key", "id"]).batch_rows(128);
        let stream = dataset.run(&query).map_err(|error| format!("isolation: epoch {epoch}: {error}"))?;
        let began = model.now(epoch);
        Ok(Some(Self { epoch, began, seen: vec![began], stream: Box::new(stream), found: Vec::new() }))
    }
}
