//! A part file: footer, page indexes, page headers and pages. The manifest's entry is adjusted to match the file, so
//! that the footer's own content is under test.

use std::path::Path;

use turbidite::format::{PageLocation, PartEntry, PartId, PartReader};
use turbidite::storage::{MemoryStorage, Storage};
use xxhash_rust::xxh3::xxh3_64;

use super::sample::{Sample, identity, schema};
use super::script::Script;

/// Encodes a target's input: a choice, the offset of the footer, and the file.
pub fn input(entry: &PartEntry, content: &[u8]) -> Vec<u8> {
    [&[0][..], &(entry.footer_offset as u32).to_le_bytes(), content].concat()
}

/// Returns the seeds of the corpus.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    let sample = Sample::new();
    for manifest in &sample.manifests {
        for entry in &manifest.parts {
            let name = entry.part.file_name();
            let folder = format!("epoch={}", manifest.epoch);
            let of_part = |path: &Path| path.ends_with(Path::new(&folder).join(&name));
            seeds.extend(sample.files.iter().filter(|file| of_part(&file.0)).map(|file| input(entry, &file.1)));
        }
    }
    seeds
}

/// Reads the whole content of a file.
pub fn target(data: &[u8]) {
    let mut script = Script::new(data);
    let choice = script.byte();
    let footer_offset = u64::from(script.word());
    let content = script.rest();
    let storage = MemoryStorage::new();
    let path = Path::new("/part-00000.parquet");
    let written = storage.create(path).and_then(|mut file| file.write_at(0, content));
    written.expect("memory");
    let _ = PartReader::identify(&storage, path);
    let tail = content.get(footer_offset as usize..).unwrap_or_default();
    let footer_checksum = if choice & 1 == 0 { xxh3_64(tail) } else { 0 };
    let part = PartId { rank: u32::from(choice >> 1), roll: 0 };
    let entry = PartEntry::new(part, content.len() as u64, footer_offset, footer_checksum);
    let _ = PartReader::commit_of(&storage, path, &entry);
    for epoch in [1, 2, 30] {
        if let Ok(reader) = PartReader::open_sealed(&storage, path, &entry, identity(epoch), schema()) {
            let _ = reader.confirm();
            read_by_manifest(&reader, epoch);
        }
        if let Ok(reader) = PartReader::open(&storage, path, &entry, identity(epoch).commit, schema()) {
            read(&reader, content);
        }
    }
}

/// Finds the pages by the entries of the sample's manifest, whose page indexes the file may contradict.
fn read_by_manifest(reader: &PartReader, epoch: u64) {
    let manifests = &super::dataset::sample().manifests;
    for entry in manifests.iter().filter(|manifest| manifest.epoch == epoch).flat_map(|manifest| &manifest.row_groups) {
        for by_index in [false, true] {
            let Ok(pages) = reader.row_group(entry, by_index) else { continue };
            for column in 0..schema().columns().len() {
                let Ok(locations) = reader.locations(&pages, entry.row_group, column) else { continue };
                let follows = |pair: &[PageLocation]| pair[0].offset + u64::from(pair[0].bytes) == pair[1].offset;
                assert!(locations.windows(2).all(follows), "pages follow each other");
            }
        }
    }
}

fn read(reader: &PartReader, content: &[u8]) {
    let mut values = Vec::new();
    for group in 0..reader.row_groups() {
        for column in 0..schema().columns().len() {
            let range = reader.chunk_range(group, column).expect("there is such a chunk");
            assert!(range.end as usize <= content.len(), "a chunk lies within the file");
            let pages = reader.pages(group, column).map_or(0, <[_]>::len);
            for page in 0..pages {
                let _ = reader.page_range(group, column, page);
                for check in [true, false] {
                    values.clear();
                    if let Ok(rows) = reader.read_page(group, column, page, check, &mut values) {
                        let width = schema().columns()[column].data_type.width();
                        assert_eq!(values.len(), rows * width, "as many values as rows");
                    }
                }
            }
        }
    }
}
