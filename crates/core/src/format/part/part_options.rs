//! The layout of a part: how many rows row groups and pages have.

use crate::format::manifest::entries::RunKind;
use crate::format::parquet::bloom_filter::well_filtered_rows;
use crate::format::parquet::page_layout::PageLayout;
use crate::format::row_group::level_sample::staying_rows;
use crate::schema::{Clustering, Schema};
use crate::storage::ALIGNMENT;

/// Divisor of the rows per page in stray and unordered runs and of hashed keys, which are sparse.
const SPARSE_PAGE_FRACTION: u32 = 4;

/// Options for the layout of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartOptions {
    /// Maximum rows per page.
    ///
    /// Columns wider than 8 bytes have fewer rows per page, so their pages are no larger than those of 8-byte values.
    /// Pages have at most 1 MiB, unless a single value is larger. Stray and unordered runs have a quarter of the rows
    /// per page.
    pub page_rows: u32,
    /// Maximum number of row groups per run. A row group contains whole pages of a regular run, so short runs may have
    /// fewer row groups.
    pub row_groups_per_run: u32,
    /// Size of the write buffer in bytes. The buffer has at least 1 MiB, and always holds a whole row group.
    pub write_bytes: usize,
}

impl Default for PartOptions {
    fn default() -> Self {
        Self { page_rows: 2048, row_groups_per_run: 4, write_bytes: 2 << 20 }
    }
}

impl PartOptions {
    /// Returns the rows per row group in a run with `rows` rows: an equal share, rounded up to whole pages of a regular
    /// run. Row groups with a filter have as many rows as suit the size of a filter.
    fn row_group_rows(&self, schema: &Schema, level: u8, rows: usize) -> usize {
        if level > 0 {
            // Levels above 0 are small.
            return rows.max(1);
        }
        let share = rows.div_ceil(self.row_groups_per_run.max(1) as usize);
        let page_rows = self.page_rows_at(schema, level, RunKind::Regular) as usize;
        match schema.clustering() {
            Clustering::Range | Clustering::Space => share.next_multiple_of(page_rows),
            Clustering::Hash => well_filtered_rows(share).next_multiple_of(self.sparse_page_rows() as usize),
        }
    }

    /// Returns the rows per page of a run. Keys of stray and unordered runs are sparse: a query finds a few rows in
    /// each run, and reads a page of each column for them. So do lookups of hashed keys. With levels of detail, pages
    /// of level 0 have what stays of full groups, unless the levels are in proportion to a column.
    pub(super) fn page_rows_at(&self, schema: &Schema, level: u8, kind: RunKind) -> u32 {
        let rows = match kind {
            _ if schema.clustering() == Clustering::Hash => self.sparse_page_rows(),
            RunKind::Regular | RunKind::NanKey => self.page_rows.max(1),
            RunKind::Stray | RunKind::Unordered => self.sparse_page_rows(),
        };
        if level == 0 && schema.levels().is_some() && schema.level_weight().is_none() {
            staying_rows(rows as usize) as u32
        } else {
            rows
        }
    }

    /// Returns the rows per page of runs from which queries read few rows.
    fn sparse_page_rows(&self) -> u32 {
        (self.page_rows / SPARSE_PAGE_FRACTION).max(1)
    }

    /// Returns the rows per row group and per page of a run with `rows` rows at a level.
    pub(super) fn units(&self, schema: &Schema, level: u8, kind: RunKind, rows: usize) -> [usize; 2] {
        [self.row_group_rows(schema, level, rows), self.page_rows_at(schema, level, kind) as usize]
    }

    /// Returns the size of the write buffer for a regular run of `rows` rows, in bytes.
    pub(crate) fn buffer_bytes(&self, schema: &Schema, rows: usize) -> usize {
        let group_rows = self.row_group_rows(schema, 0, rows).min(rows);
        self.buffer_for(PageLayout::new(schema, group_rows, self.page_rows, true).bytes())
    }

    pub(super) fn buffer_for(&self, room_bytes: usize) -> usize {
        // The margin holds the partial block before the row group, and the seal with its padding.
        self.write_bytes.max(1 << 20).max(room_bytes.saturating_add(4 * ALIGNMENT))
    }
}
