//! Small files and names: dataset.json, the lock, and arbitrary names in folders.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use turbidite::storage::{MemoryStorage, Storage};
use turbidite::store::{
    DatasetDescriptor, DatasetPaths, EpochRange, VerifyOptions, WriterLock, lock_holder, recover, verify_on,
};
use xxhash_rust::xxh3::xxh3_64;

use super::levels;
use super::sample::{ROOT, Sample};
use super::script::Script;

const LOCK: &str = r#"{"token":"0123456789abcdef0123456789abcdef","host":"nowhere","boot":"b","namespace":"n","process":1,"started":7,"job":null}"#;

/// Returns the seeds of the corpus.
pub fn seeds() -> Vec<Vec<u8>> {
    let descriptor = |descriptor: &DatasetDescriptor| {
        let text = descriptor.encode().expect("it is JSON");
        [&[0], &text[..text.len() - signed(&[]).len()]].concat()
    };
    let names = b"\x03\x07epoch=5\x02\x0acrash.replaced\x01\x085.arrow";
    let by_range = descriptor(&Sample::new().descriptor);
    let of_space = descriptor(&levels::sample().descriptor);
    vec![by_range, [&[1], LOCK.as_bytes()].concat(), names.to_vec(), of_space]
}

/// Returns bytes followed by the checksum of dataset.json.
fn signed(covered: &[u8]) -> Vec<u8> {
    let closing = format!(",\n  \"checksum\": \"{:016x}\"\n}}\n", xxh3_64(covered));
    [covered, closing.as_bytes()].concat()
}

/// Reads one of these inputs.
pub fn target(data: &[u8]) {
    let mut script = Script::new(data);
    match script.byte() % 4 {
        0 => descriptor(&signed(script.rest())),
        1 => lock(script.rest()),
        2 => descriptor(script.rest()),
        _ => names(&mut script),
    }
}

fn descriptor(bytes: &[u8]) {
    let path = Path::new("dataset.json");
    let Ok(descriptor) = DatasetDescriptor::decode(bytes, path) else { return };
    let again = descriptor.encode().expect("what was read can be written");
    assert_eq!(DatasetDescriptor::decode(&again, path).expect("what was written can be read"), descriptor);
}

fn lock(content: &[u8]) {
    let layout = DatasetPaths::new(ROOT);
    for break_lock in [false, true] {
        let memory = Sample::storage(&[(layout.lock(), content.to_vec())]);
        let storage: Arc<dyn Storage> = Arc::new(memory);
        let _ = lock_holder(&*storage, &layout);
        match WriterLock::acquire(&storage, &layout, break_lock) {
            Ok((lock, _)) => lock.release().expect("it is ours"),
            Err(error) => assert!(!break_lock || error.refusal().is_none(), "{error}"),
        }
    }
}

/// Creates files and folders with arbitrary names besides those of a dataset.
fn names(script: &mut Script<'_>) {
    let sample = Sample::new();
    let memory: MemoryStorage = Sample::storage(&sample.files);
    let layout = DatasetPaths::new(ROOT);
    let folders = [layout.data(), layout.manifests(), layout.unfinished(), layout.epoch(1), layout.control()];
    for _ in 0..8 {
        let choice = script.byte();
        let name = String::from_utf8_lossy(script.chunk()).replace(['/', '\0'], "_");
        let _ = name.parse::<EpochRange>();
        if name.is_empty() || name == "." || name == ".." {
            continue;
        }
        let path: PathBuf = folders[usize::from(choice) % folders.len()].join(name);
        let _ = if choice & 0x80 == 0 { memory.create(&path).map(drop) } else { memory.create_dir_all(&path) };
    }
    let storage: Arc<dyn Storage> = Arc::new(memory);
    let mut options = VerifyOptions::default();
    options.threads = 1;
    let _ = verify_on(&storage, &layout, &options, &|_| ());
    let _ = recover(&storage, &layout, &sample.descriptor);
    let _ = turbidite::store::salvage::list(&*storage, &layout, &sample.descriptor);
}
