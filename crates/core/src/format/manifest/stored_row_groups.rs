//! Row groups in the arrays of a manifest. Entries are created on access.

use std::sync::Arc;

use arrow_buffer::ScalarBuffer;

use crate::format::manifest::arrow_columns::Lists;
use crate::format::manifest::entries::{PartId, RunKind};
use crate::format::manifest::page_directory::PageDirectory;
use crate::format::manifest::row_group_entry::RowGroupEntry;
use crate::format::manifest::row_group_statistics::RowGroupStatistics;
use crate::format::manifest::stored_statistics::{StoredColumn, StoredRange, StoredStatistics};
use crate::format::row_group::level_intervals::LevelIntervals;
use crate::schema::KeyOrder;

/// The location of a row group.
#[derive(Debug, Clone, Copy)]
pub(in crate::format) struct Place {
    pub(in crate::format) part: PartId,
    pub(in crate::format) level: u8,
    pub(in crate::format) offset: u64,
    pub(in crate::format) bytes: u64,
    pub(in crate::format) rows: u64,
}

/// The row groups of a manifest.
#[derive(Debug)]
pub(in crate::format) struct StoredRowGroups {
    pub(in crate::format) ranks: ScalarBuffer<u32>,
    pub(in crate::format) rolls: ScalarBuffer<u32>,
    /// Levels of detail. `None` if all row groups are of level 0.
    pub(in crate::format) levels: Option<ScalarBuffer<u8>>,
    /// How levels were sampled, by row group. Empty unless levels are in proportion to a column.
    pub(in crate::format) intervals: Vec<Option<Box<LevelIntervals>>>,
    pub(in crate::format) runs: ScalarBuffer<u32>,
    pub(in crate::format) row_groups: ScalarBuffer<u32>,
    pub(in crate::format) offsets: ScalarBuffer<u64>,
    pub(in crate::format) bytes: ScalarBuffer<u64>,
    pub(in crate::format) rows: ScalarBuffer<u64>,
    /// Codes of kinds, all of them valid.
    pub(in crate::format) kinds: ScalarBuffer<u8>,
    /// `None` if a scan has not read it.
    pub(in crate::format) origin: Option<StoredOrigin>,
    pub(in crate::format) column_statistics: Arc<StoredStatistics>,
    pub(in crate::format) pages: StoredPages,
}

/// Columns of row groups that queries do not use.
#[derive(Debug)]
pub(in crate::format) struct StoredOrigin {
    pub(in crate::format) table_versions: ScalarBuffer<u32>,
    pub(in crate::format) checksums: ScalarBuffer<u64>,
    pub(in crate::format) bounds: StoredRange,
}

/// Places and checksums of the page indexes of row groups.
#[derive(Debug)]
pub(in crate::format) struct StoredIndexes {
    pub(in crate::format) offsets: ScalarBuffer<u64>,
    pub(in crate::format) bytes: ScalarBuffer<u32>,
    pub(in crate::format) checksums: ScalarBuffer<u64>,
}

/// Places and first keys of the pages of row groups.
#[derive(Debug)]
pub(in crate::format) struct StoredPages {
    pub(in crate::format) page_rows: ScalarBuffer<u32>,
    /// `None` if a scan has not read them.
    pub(in crate::format) index: Option<StoredIndexes>,
    /// Lengths and checksums of filters. `None` if there are none.
    pub(in crate::format) filters: Option<(ScalarBuffer<u32>, ScalarBuffer<u64>)>,
    pub(in crate::format) first_keys: Lists,
    pub(in crate::format) order: KeyOrder,
}

impl StoredPages {
    /// Returns the pages of a row group.
    fn one(&self, row: usize) -> PageDirectory {
        let index = self.index.as_ref().map(|index| (index.offsets[row], index.bytes[row], index.checksums[row]));
        let (index_offset, index_bytes, index_checksum) = index.unwrap_or_default();
        let ordinals = |keys: &[u8]| {
            let width = self.order.data_type().width();
            let mut ordinals = Vec::with_capacity(keys.len() / width);
            self.order.ordinals(keys, width, keys.len() / width, &mut ordinals);
            ordinals
        };
        PageDirectory {
            page_rows: self.page_rows[row],
            index_offset,
            index_bytes,
            index_checksum,
            filter_bytes: self.filters.as_ref().map_or(0, |(bytes, _)| bytes[row]),
            filter_checksum: self.filters.as_ref().map_or(0, |(_, checksums)| checksums[row]),
            first_keys: self.first_keys.get(row).map(ordinals),
        }
    }
}

impl StoredRowGroups {
    /// Returns whether a row group has more NaN values than rows.
    pub(in crate::format) fn has_excess_nans(&self) -> bool {
        let counts = self.column_statistics.columns.iter().filter_map(|column| match column {
            StoredColumn::Known { nan_counts, .. } => nan_counts.as_ref(),
            StoredColumn::Opaque | StoredColumn::Unread => None,
        });
        counts.into_iter().any(|counts| counts.iter().zip(&self.rows).any(|(nans, rows)| nans > rows))
    }

    pub(in crate::format) fn len(&self) -> usize {
        self.ranks.len()
    }

    /// Creates the entry of a row group. Its column statistics are read from the arrays on first use.
    pub(in crate::format) fn entry(&self, row: usize) -> RowGroupEntry {
        let Place { part, level, offset, bytes, rows } = self.place(row);
        let origin = self.origin.as_ref();
        RowGroupEntry {
            part,
            level,
            intervals: self.intervals.get(row).cloned().flatten(),
            run: self.runs[row],
            row_group: self.row_groups[row],
            offset,
            bytes,
            rows,
            // The constructor has checked the codes.
            kind: RunKind::from_code(u32::from(self.kinds[row])).unwrap_or(RunKind::NanKey),
            table_version: origin.map_or(0, |origin| origin.table_versions[row]),
            bounds: origin.and_then(|origin| origin.bounds.one(row)),
            checksum: origin.map_or(0, |origin| origin.checksums[row]),
            columns: RowGroupStatistics::stored(Arc::clone(&self.column_statistics), row as u32),
            pages: self.pages.one(row),
        }
    }

    pub(in crate::format) fn place(&self, row: usize) -> Place {
        Place {
            part: PartId { rank: self.ranks[row], roll: self.rolls[row] },
            level: self.levels.as_ref().map_or(0, |levels| levels[row]),
            offset: self.offsets[row],
            bytes: self.bytes[row],
            rows: self.rows[row],
        }
    }

    /// Returns the smallest and the largest ordinals of a column in the row groups. The range is the full one where it
    /// is unknown.
    pub(in crate::format) fn ordinals(&self, column: usize, order: KeyOrder) -> (Vec<u64>, Vec<u64>) {
        match self.column_statistics.columns.get(column) {
            Some(StoredColumn::Known { range, .. }) => range.ordinals(order.of_values()),
            _ => (vec![0; self.len()], vec![u64::MAX; self.len()]),
        }
    }
}
