//! The Bloom filters of a part, read together.

use std::ops::Range;
use std::path::Path;

use xxhash_rust::xxh3::xxh3_64;

use crate::error::{Error, IoContext, Result};
use crate::format::manifest::entries::PartEntry;
use crate::format::manifest::row_group_entry::RowGroupEntry;
use crate::format::parquet::bloom_filter::BloomFilter;
use crate::storage::ReadableFile;

/// The filters of the key in a part's row groups.
#[derive(Debug)]
pub struct PartFilters {
    bytes: Vec<u8>,
    /// The blocks of the filter of each row group, by its number in the part. `None` if it has none.
    groups: Vec<Option<Range<usize>>>,
}

impl PartFilters {
    /// Reads all filters of a part. `entries` are the row groups of the part in their order.
    ///
    /// # Errors
    /// [`Error::Corruption`] if a filter differs from its checksum in the manifest, or cannot be decoded; I/O errors.
    pub fn read<'a>(
        file: &dyn ReadableFile,
        path: &Path,
        part: &PartEntry,
        entries: impl Iterator<Item = &'a RowGroupEntry> + Clone,
    ) -> Result<Self> {
        let start = part.filter_offset.unwrap_or(part.footer_offset);
        let corruption = |what: &str| Error::corruption_at(path, "filters", what);
        let stated = |entry: &RowGroupEntry| u64::from(entry.pages.filter_bytes);
        let total = entries.clone().fold(0u64, |total, entry| total.saturating_add(stated(entry)));
        let length = part.footer_offset.checked_sub(start);
        let length = length.filter(|length| *length == total && part.footer_offset <= file.bytes());
        let length = length.and_then(|length| usize::try_from(length).ok());
        let mut bytes = vec![0; length.ok_or_else(|| corruption("their place in the manifest is wrong"))?];
        file.read_at(start, &mut bytes).at("read", path)?;
        let (mut groups, mut position) = (Vec::new(), 0usize);
        for entry in entries {
            let (length, checksum) = (entry.pages.filter_bytes as usize, entry.pages.filter_checksum);
            let range = position..position.saturating_add(length);
            let filter = bytes.get(range.clone()).ok_or_else(|| corruption("their place in the manifest is wrong"))?;
            position = range.end;
            let place = || format!("filter of row group {}", entry.row_group);
            if length > 0 && xxh3_64(filter) != checksum {
                return Err(Error::corruption_at(path, place(), "checksum mismatch with the manifest"));
            }
            let blocks = match length {
                0 => None,
                _ => {
                    let decoded = BloomFilter::decode(filter);
                    let decoded = decoded.map_err(|malformed| Error::corruption_at(path, place(), malformed.0))?;
                    Some(range.end - decoded.bytes()..range.end)
                }
            };
            groups.push(blocks);
        }
        Ok(Self { bytes, groups })
    }

    /// Returns whether a row group may contain a key with this hash. A false result is certain.
    pub fn may_contain(&self, row_group: u32, hash: u64) -> bool {
        let Some(Some(range)) = self.groups.get(row_group as usize) else { return true };
        BloomFilter::of_blocks(&self.bytes[range.clone()]).may_contain(hash)
    }

    /// Returns whether a row group has a filter.
    pub fn has_filter(&self, row_group: u32) -> bool {
        self.groups.get(row_group as usize).is_some_and(Option::is_some)
    }

    /// Returns the size in memory, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.len() + self.groups.len() * size_of::<Option<Range<usize>>>()
    }
}
