//! Encodes and decodes manifests of every format version.

use std::path::Path;
use std::sync::Arc;

use crate::error::Result;
use crate::format::manifest::container::{CONTAINER_MAGIC, Container};
use crate::format::manifest::entries::{PartEntry, PartId};
use crate::format::manifest::epoch_manifest::EpochManifest;
use crate::format::manifest::version_1;
use crate::format::manifest::version_2::{self, Wanted};
use crate::format::version::FormatVersion;
use crate::schema::{Schema, SchemaError};
use crate::storage::ReadableFile;

impl EpochManifest {
    /// Encodes the manifest.
    ///
    /// # Errors
    /// [`crate::Error::Schema`] if a row group lacks statistics of a schema column.
    pub fn encode(&self, schema: &Schema, version: FormatVersion) -> Result<Vec<u8>> {
        for run in &self.row_groups {
            if run.columns.len() != schema.columns().len() {
                let (expected, found) = (schema.columns().len(), run.columns.len());
                return Err(SchemaError::InputColumns { expected, found }.into());
            }
        }
        match version {
            FormatVersion::V1 => version_1::encode(self, schema),
            FormatVersion::V2 => version_2::encode(self, schema),
        }
    }

    /// Decodes a manifest. `path` is the path of its file, for error messages.
    ///
    /// # Errors
    /// - [`crate::Error::Corruption`] if the bytes are not a manifest, do not match the schema, or contradict each
    ///   other
    /// - [`crate::Error::Version`] if a newer release wrote the manifest
    pub fn decode(bytes: Vec<u8>, path: &Path, schema: &Schema) -> Result<Self> {
        if bytes.ends_with(CONTAINER_MAGIC) {
            return version_2::decode(Container::of_bytes(bytes, path)?, path, schema, Wanted::Everything);
        }
        version_1::decode(bytes, path, schema)
    }

    /// Reads from a manifest of format version 2 what a scan needs: parts and row groups with statistics of the key and
    /// of `columns` only. Range counts and statistics of the epoch are empty. Row groups have neither checksums nor
    /// bounds nor versions of the partition table.
    ///
    /// # Errors
    /// As for [`EpochManifest::decode`], and I/O errors.
    pub(crate) fn read_for_scan(
        file: Arc<dyn ReadableFile>,
        path: &Path,
        schema: &Schema,
        columns: &[usize],
    ) -> Result<Self> {
        version_2::decode(Container::open(file, path)?, path, schema, Wanted::Scan(columns))
    }

    /// Checks that row groups and parts are consistent.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let end = |part: &PartEntry| (part.part, part.footer_offset, part.level);
        let mut ends: Vec<(PartId, u64, u8)> = self.parts.iter().map(end).collect();
        // Parts are in order unless another program wrote the manifest.
        if !ends.is_sorted() {
            ends.sort_unstable();
        }
        if ends.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return Err("it lists a part twice");
        }
        if self.parts.iter().any(|part| part.footer_offset >= part.bytes) {
            return Err("a part's footer lies outside the part");
        }
        let (mut rows, mut bytes) = (0u64, 0u64);
        // Row groups are usually in the order of the parts, so the search begins at the part of the previous row group.
        let mut at = 0;
        for run in self.row_groups.places() {
            let end = run.offset.checked_add(run.bytes).ok_or("a row group has an invalid offset or size")?;
            let beside =
                [at, at + 1].into_iter().find(|place| ends.get(*place).is_some_and(|entry| entry.0 == run.part));
            at = beside
                .or_else(|| ends.binary_search_by_key(&run.part, |entry| entry.0).ok())
                .ok_or("a row group lies outside the listed parts")?;
            if end > ends[at].1 {
                return Err("a row group lies outside the listed parts");
            }
            if run.level != ends[at].2 {
                return Err("a row group has another level than its part");
            }
            // A record takes at least one byte. This limits counts and allocations by rows to the size of the files.
            if run.rows > run.bytes || u32::try_from(run.rows).is_err() {
                return Err("a row group has more rows than its bytes can hold");
            }
            rows = rows.checked_add(run.rows).ok_or("the total number of rows overflows")?;
            bytes = bytes.checked_add(run.bytes).ok_or("the total number of bytes overflows")?;
        }
        Ok(())
    }
}
