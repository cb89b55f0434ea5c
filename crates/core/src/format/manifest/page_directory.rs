//! The pages of a row group, as a manifest states them.

/// The places and the first keys of a row group's pages. Queries read pages by them, without the part's footer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PageDirectory {
    /// Rows per page that the writer was asked for. The places of all pages follow from it. 0 if they do not, and only
    /// the page index states them.
    pub page_rows: u32,
    /// Offset of the row group's page indexes, from the beginning of the part's page indexes.
    pub index_offset: u64,
    /// Length of the row group's page indexes in bytes.
    pub index_bytes: u32,
    /// xxh3-64 of the row group's page indexes.
    pub index_checksum: u64,
    /// Length of the row group's filters in bytes. 0 if it has none. The filters of a part lie in the order of its row
    /// groups, from [`PartEntry::filter_offset`](super::entries::PartEntry::filter_offset) on.
    pub filter_bytes: u32,
    /// xxh3-64 of the row group's filters.
    pub filter_checksum: u64,
    /// Ordinals of the first keys of the pages after the first. `None` if unknown.
    pub first_keys: Option<Vec<u64>>,
}
