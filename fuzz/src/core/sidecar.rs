//! The sidecars of a bitmap index with modified bytes. Without recomputed checksums, counts must be correct. With
//! recomputed checksums, every call must return.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use turbidite::query::{Dataset, Query, Source, Use};
use turbidite::storage::Storage;
use turbidite::store::{DatasetPaths, VerifyOptions, verify_on};
use turbidite::{IndexBuild, IndexOptions};
use xxhash_rust::xxh3::xxh3_64;

use super::sample::{ROOT, Sample, files_below};
use super::script::Script;

const INDEX: &str = "bitmap:energy,a,b";

/// The conditions: each column alone, all of them, and a pair of columns.
const CONDITIONS: [&str; 4] =
    ["energy > 0.25", "isnan(a) or a < 10", "not (b > 0) and a > 5 or energy < 0.5", "a > energy"];

/// Size of the trailer, of the directory's first fields, and of the fields of a section.
const TRAILER_BYTES: usize = 32;
const IDENTITY_BYTES: usize = 56;
const SECTION_BYTES: usize = 48;

/// The sample with an index, and the numbers of rows of each condition.
struct Indexed {
    files: Vec<(PathBuf, Vec<u8>)>,
    /// Positions of the sidecars among the files.
    sidecars: Vec<usize>,
    counts: Vec<u64>,
}

fn indexed() -> &'static Indexed {
    static INDEXED: OnceLock<Indexed> = OnceLock::new();
    INDEXED.get_or_init(|| {
        let storage: Arc<dyn Storage> = Arc::new(Sample::storage(&Sample::new().files));
        let dataset = Dataset::open_with(storage.clone(), ROOT).expect("it is intact");
        let count = |text: &&str| dataset.count(&Query::new().filter(*text)).expect("it is intact").0;
        let counts = CONDITIONS.iter().map(count).collect();
        let definition = INDEX.parse().expect("it is a definition");
        let mut build = IndexBuild::open_with(storage.clone(), ROOT, &definition, &IndexOptions::default())
            .expect("the columns have numbers");
        for epoch in build.missing().expect("memory") {
            build.build_epoch(epoch, &|_| ()).expect("memory");
        }
        build.close().expect("memory");
        let files = files_below(&*storage, ROOT.as_ref());
        let is_sidecar = |(path, _): &(PathBuf, Vec<u8>)| path.extension().is_some_and(|end| end == "bitmap");
        let sidecars = (0..files.len()).filter(|place| is_sidecar(&files[*place])).collect();
        Indexed { files, sidecars, counts }
    })
}

/// Returns the seeds of the corpus: one change of each kind, with and without recomputed checksums.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = vec![vec![0], vec![1]];
    for repair in [0u8, 1] {
        for kind in 0..4u8 {
            for place in [0u8, 8, 60, 64, 90, 112, 160] {
                // A place from the end, where the directory is, or from the beginning.
                seeds.push(vec![repair, 1, kind, place, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff]);
                seeds.push(vec![repair, 2, kind | 4, place, 1, 0, 0, 3, 0, 0, 0, 0]);
            }
        }
    }
    seeds
}

/// Counts rows by a modified index.
pub fn target(data: &[u8]) {
    let mut script = Script::new(data);
    let repair = script.byte() & 1 == 1;
    let indexed = indexed();
    let mut files = indexed.files.clone();
    for _ in 0..8 {
        if script.is_over() {
            break;
        }
        let which = indexed.sidecars[script.one_of(indexed.sidecars.len())];
        change(&mut script, &mut files[which].1);
    }
    if repair {
        indexed.sidecars.iter().for_each(|which| repair_checksums(&mut files[*which].1));
    }
    let storage: Arc<dyn Storage> = Arc::new(Sample::storage(&files));
    let dataset = Dataset::open_with(storage.clone(), ROOT).expect("the records are intact");
    for (text, expected) in CONDITIONS.iter().zip(&indexed.counts) {
        let query = Query::new().threads(1).filter(*text).using(Use::Index(INDEX.to_owned()));
        let (counted, _) = dataset.count(&query).expect("the records are intact");
        let listed: usize = dataset
            .run(&query.clone().columns(["id"]))
            .expect("the records are intact")
            .map(|batch| batch.expect("the records are intact").num_rows())
            .sum();
        let bounds = dataset.count_from(&query, Source::Bounds).expect("the records are intact").rows;
        if !repair {
            assert_eq!((counted, listed as u64), (*expected, *expected), "{text}");
            assert!(bounds.least <= counted && counted <= bounds.most, "{text}: {bounds:?}");
        }
    }
    let mut options = VerifyOptions::default();
    options.threads = 1;
    verify_on(&storage, &DatasetPaths::new(ROOT), &options, &|_| ()).expect("findings are no errors");
}

/// Makes one change to a sidecar.
fn change(script: &mut Script<'_>, content: &mut Vec<u8>) {
    let kind = script.byte();
    let place = script.word() as usize % (content.len() + 1);
    // The directory, at the end, is the part with the most to say.
    let at = if kind & 4 == 4 { place } else { content.len() - place };
    match kind % 4 {
        0 if at < content.len() => content[at] ^= script.byte().max(1),
        1 => content.truncate(at),
        2 => {
            let new = script.long().to_le_bytes();
            let end = (at + new.len()).min(content.len());
            content[at..end].copy_from_slice(&new[..end - at]);
        }
        3 => drop(content.splice(at..at, script.chunk().iter().copied())),
        _ => {}
    }
}

/// Recomputes the checksums of the sections and of the directory, if the places that these state are in the file.
fn repair_checksums(content: &mut [u8]) {
    let Some(end) = content.len().checked_sub(TRAILER_BYTES) else { return };
    let number = |content: &[u8], at: usize| {
        content.get(at..at + 8).map_or(u64::MAX, |bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
    };
    let Some(begin) = usize::try_from(number(content, end)).ok().filter(|begin| *begin < end) else { return };
    // Three columns have sections of a row group, after its eight bytes.
    let group_bytes = 8 + 3 * SECTION_BYTES;
    let groups = (end - begin).saturating_sub(IDENTITY_BYTES) / group_bytes;
    for section in 0..groups * 3 {
        let of_group = begin + IDENTITY_BYTES + section / 3 * group_bytes + 8;
        for at in [0, 20].map(|part| of_group + section % 3 * SECTION_BYTES + part) {
            let (offset, bytes) = (number(content, at), number(content, at + 16) & u64::from(u32::MAX));
            let range = usize::try_from(offset).ok().and_then(|from| Some(from..from.checked_add(bytes as usize)?));
            let checksum = range.and_then(|range| content.get(range)).map(xxh3_64);
            if let (Some(checksum), Some(place)) = (checksum, content.get_mut(at + 8..at + 16)) {
                place.copy_from_slice(&checksum.to_le_bytes());
            }
        }
    }
    let checksum = xxh3_64(&content[begin..end]);
    content[end + 16..end + 24].copy_from_slice(&checksum.to_le_bytes());
}
