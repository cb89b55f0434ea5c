//! Decodes manifests in place, without copies, so no length in a file leads to an allocation.
//!
//! Columns are read apart, so a scan reads the places of the row groups and the statistics of the columns it tests.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use arrow_array::types::{UInt8Type, UInt32Type, UInt64Type};
use arrow_buffer::ScalarBuffer;
use arrow_schema::DataType as ArrowType;

use crate::error::{Error, Result};
use crate::format::manifest::arrow_columns::{ArrowColumns, ColumnPlace, Lists, array, nullable, plain};
use crate::format::manifest::container::{Container, StatedEpoch};
use crate::format::manifest::encoding::{
    FILTER_BYTES, FILTER_CHECKSUM, FILTER_OFFSET, KEY_COUNTS, LEVEL, LEVEL_INTERVALS, PARTITION, PARTS, ROW_GROUPS,
    STATISTICS, bounds, first_keys_type, intervals_type,
};
use crate::format::manifest::entries::{PartEntry, PartId, RunKind};
use crate::format::manifest::epoch_manifest::{EpochManifest, EpochMetrics};
use crate::format::manifest::range_counts::KeyRangeCounts;
use crate::format::manifest::row_group_entries::RowGroupEntries;
use crate::format::manifest::stored_row_groups::{StoredIndexes, StoredOrigin, StoredPages, StoredRowGroups};
use crate::format::manifest::stored_statistics::{StoredColumn, StoredRange, StoredStatistics};
use crate::format::row_group::level_intervals::LevelIntervals;
use crate::schema::{Column, MAX_LEVELS, Schema};
use crate::storage::ReadableFile;

/// The sections and columns to read of a manifest.
#[derive(Debug, Clone, Copy)]
enum Wanted<'a> {
    Everything,
    /// Parts, row groups, and the statistics of the key and of these columns.
    Scan(&'a [usize]),
}

impl Wanted<'_> {
    fn has_statistics(self, column: usize, key: usize) -> bool {
        match self {
            Self::Everything => true,
            Self::Scan(columns) => column == key || columns.contains(&column),
        }
    }
}

impl EpochManifest {
    /// Decodes a manifest. `path` is the path of its file, for error messages.
    ///
    /// # Errors
    /// - [`crate::Error::Corruption`] if the bytes are not a manifest, do not match the schema, or contradict each
    ///   other
    /// - [`crate::Error::Version`] if another release wrote the manifest
    pub fn decode(bytes: Vec<u8>, path: &Path, schema: &Schema) -> Result<Self> {
        decode(Container::of_bytes(bytes, path)?, path, schema, Wanted::Everything)
    }

    /// Reads from a manifest what a scan needs: parts and row groups with statistics of the key and of `columns` only.
    /// Range counts and metrics of the epoch are empty. Row groups have neither checksums nor bounds nor versions of
    /// the partition table.
    ///
    /// # Errors
    /// As for [`EpochManifest::decode`], and I/O errors.
    pub(crate) fn read_for_scan(
        file: Arc<dyn ReadableFile>,
        path: &Path,
        schema: &Schema,
        columns: &[usize],
    ) -> Result<Self> {
        decode(Container::open(file, path)?, path, schema, Wanted::Scan(columns))
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

/// Decodes a manifest. `path` is the path of its file, for error messages.
fn decode(mut container: Container, path: &Path, schema: &Schema, wanted: Wanted<'_>) -> Result<EpochManifest> {
    let corruption = |what: &str| Error::corruption(path, what);
    let section = |container: &Container, name: &str| {
        container.section(name).ok_or_else(|| corruption(&format!("it has no section '{name}'")))
    };
    let (row_groups, parts) = (section(&container, ROW_GROUPS)?, section(&container, PARTS)?);
    let row_groups = ArrowColumns::read(&mut container, row_groups)?.map_err(corruption)?;
    let mut texts: Vec<Range<u64>> = Vec::new();
    if let Wanted::Everything = wanted {
        texts.push(section(&container, STATISTICS)?);
        texts.extend(container.section(KEY_COUNTS));
    }
    let differ = || corruption("its columns differ from the dataset's schema");
    let mut group_places = GroupPlaces::of(&row_groups, schema, wanted).ok_or_else(differ)?;
    let columns = group_places.all().into_iter().flat_map(ColumnPlace::ranges);
    // All columns of the parts are needed, so they are read as a whole.
    container.load(columns.chain(texts.iter().cloned()).chain([parts.clone()]))?;
    if group_places.index.is_none() && group_places.lack_places(&container).ok_or_else(differ)? {
        group_places.index = Some(index_places(&row_groups).ok_or_else(differ)?);
        container.load(group_places.index.iter().flatten().flat_map(|place| place.ranges()))?;
    }
    let parts = ArrowColumns::read(&mut container, parts)?.map_err(corruption)?;
    let part_places = PartPlaces::of(&parts).ok_or_else(differ)?;
    let text =
        |range: Option<&Range<u64>>| -> Option<String> { String::from_utf8(container.get(range?)?.to_vec()).ok() };
    let metrics: EpochMetrics = match wanted {
        Wanted::Scan(_) => EpochMetrics::default(),
        Wanted::Everything => text(texts.first())
            .and_then(|text| serde_json::from_str(&text).ok())
            .ok_or_else(|| corruption("the metrics of the epoch cannot be decoded"))?,
    };
    let stored = group_places.take(&container, row_groups.rows(), schema);
    let mut stored = stored.ok_or_else(|| corruption("a row group cannot be decoded"))?;
    stored.intervals = intervals_of(&container, group_places.intervals, &stored, schema).map_err(corruption)?;
    if stored.has_excess_nans() {
        return Err(corruption("a row group has more NaN values than rows"));
    }
    let stated = container.stated().ok_or_else(|| corruption("its commit cannot be decoded"))?;
    let StatedEpoch { epoch, commit, partitions, indexed_commit, attributes } = stated;
    let manifest = EpochManifest {
        epoch,
        commit,
        partitions,
        indexed_commit,
        attributes,
        parts: part_places.take(&container, parts.rows()).ok_or_else(|| corruption("a part cannot be decoded"))?,
        row_groups: RowGroupEntries::stored(stored),
        keys: text(texts.get(1)).map(KeyRangeCounts::stored).unwrap_or_default(),
        metrics,
    };
    manifest.check().map_err(corruption)?;
    // Ranks that have not read the dataset's description merge reports of others.
    let most = schema.levels().map_or(MAX_LEVELS, |levels| levels.count);
    match manifest.parts.iter().find(|part| part.level > most) {
        Some(PartEntry { part, level, .. }) => {
            Err(corruption(&format!("{} has the level {level}, but the highest is {most}", part.file_name())))
        }
        None => Ok(manifest),
    }
}

/// The places of the columns of the parts.
struct PartPlaces<'a> {
    /// Rank, roll, bytes, offset and checksum of the footer.
    fixed: [&'a ColumnPlace; 5],
    /// Offset of the filters, partition.
    by_hash: Option<[&'a ColumnPlace; 2]>,
    levels: Option<&'a ColumnPlace>,
}

impl<'a> PartPlaces<'a> {
    fn of(columns: &'a ArrowColumns) -> Option<Self> {
        let by_hash = (columns.place(FILTER_OFFSET, &ArrowType::UInt64), columns.place(PARTITION, &ArrowType::UInt32));
        Some(Self {
            fixed: [
                columns.place("rank", &ArrowType::UInt32)?,
                columns.place("roll", &ArrowType::UInt32)?,
                columns.place("bytes", &ArrowType::UInt64)?,
                columns.place("footer_offset", &ArrowType::UInt64)?,
                columns.place("footer_checksum", &ArrowType::UInt64)?,
            ],
            by_hash: by_hash.0.zip(by_hash.1).map(|(filters, partitions)| [filters, partitions]),
            levels: columns.place(LEVEL, &ArrowType::UInt8),
        })
    }

    fn take(&self, container: &Container, rows: usize) -> Option<Vec<PartEntry>> {
        let [ranks, rolls, bytes, footer_offsets, footer_checksums] = self.fixed;
        let (ranks, rolls) = (plain::<UInt32Type>(container, ranks)?, plain::<UInt32Type>(container, rolls)?);
        let bytes = plain::<UInt64Type>(container, bytes)?;
        let footer_offsets = plain::<UInt64Type>(container, footer_offsets)?;
        let footer_checksums = plain::<UInt64Type>(container, footer_checksums)?;
        let (filter_offsets, partitions) = match self.by_hash {
            Some([filters, partitions]) => {
                (nullable::<UInt64Type>(container, filters)?, nullable::<UInt32Type>(container, partitions)?)
            }
            None => (vec![None; rows], vec![None; rows]),
        };
        let levels = levels_of(container, self.levels)?;
        let part = |row: usize| PartEntry {
            level: levels.as_ref().map_or(0, |levels| levels[row]),
            filter_offset: filter_offsets[row],
            partition: partitions[row],
            ..PartEntry::new(
                PartId { rank: ranks[row], roll: rolls[row] },
                bytes[row],
                footer_offsets[row],
                footer_checksums[row],
            )
        };
        Some((0..rows).map(part).collect())
    }
}

/// The places of the columns of the row groups.
struct GroupPlaces<'a> {
    /// Rank, roll, run, row group, rows per page.
    u32s: [&'a ColumnPlace; 5],
    /// Offset, bytes, rows.
    u64s: [&'a ColumnPlace; 3],
    kinds: &'a ColumnPlace,
    levels: Option<&'a ColumnPlace>,
    intervals: Option<&'a ColumnPlace>,
    first_keys: &'a ColumnPlace,
    /// Version of the partition table, checksum, bounds. A scan does not read them.
    origin: Option<[&'a ColumnPlace; 4]>,
    /// Length and checksum of the filters, if there are any.
    filters: Option<[&'a ColumnPlace; 2]>,
    /// Offset, length and checksum of the page indexes. A scan reads them if it may need a page index.
    index: Option<[&'a ColumnPlace; 3]>,
    /// Smallest and largest values and NaN counts of the numeric columns. `None` for the others, and if they are not
    /// wanted.
    statistics: Vec<Option<StatisticsPlaces<'a>>>,
}

fn index_places(columns: &ArrowColumns) -> Option<[&ColumnPlace; 3]> {
    Some([
        columns.place("index_offset", &ArrowType::UInt64)?,
        columns.place("index_bytes", &ArrowType::UInt32)?,
        columns.place("index_checksum", &ArrowType::UInt64)?,
    ])
}

/// Returns the levels in a column. Returns `Some(None)` if there is no such column, and `None` if it cannot be decoded.
fn levels_of(container: &Container, place: Option<&ColumnPlace>) -> Option<Option<ScalarBuffer<u8>>> {
    match place {
        Some(place) => plain::<UInt8Type>(container, place).map(Some),
        None => Some(None),
    }
}

/// Returns how row groups were sampled. Every row group above level 0 states it if levels are in proportion to a
/// column.
fn intervals_of(
    container: &Container,
    place: Option<&ColumnPlace>,
    groups: &StoredRowGroups,
    schema: &Schema,
) -> Result<Vec<Option<Box<LevelIntervals>>>, &'static str> {
    let Some(place) = place else {
        return if schema.level_weight().is_none() { Ok(Vec::new()) } else { Err("it lacks the intervals of levels") };
    };
    let lists = Lists::of(container, place, size_of::<f64>()).ok_or("the intervals of levels cannot be decoded")?;
    let of_group = |row: usize| {
        let level = groups.place(row).level;
        let list = lists.get(row).unwrap_or_default();
        let numbers: Vec<f64> = list.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect();
        if numbers.is_empty() && (level == 0 || schema.level_weight().is_none()) {
            return Ok(None);
        }
        let intervals = LevelIntervals::of_numbers(&numbers).filter(|found| level > 0 && found.levels() == level);
        intervals.map(|intervals| Some(Box::new(intervals))).ok_or("a row group has intervals that no sample has")
    };
    (0..groups.len()).map(of_group).collect()
}

struct StatisticsPlaces<'a> {
    range: [&'a ColumnPlace; 2],
    nan_counts: Option<&'a ColumnPlace>,
}

impl<'a> GroupPlaces<'a> {
    fn of(columns: &'a ArrowColumns, schema: &Schema, wanted: Wanted<'_>) -> Option<Self> {
        let u32s = |name| columns.place(name, &ArrowType::UInt32);
        let u64s = |name: &str| columns.place(name, &ArrowType::UInt64);
        let [lower, upper] = bounds(schema);
        let key_type = schema.key_value_type().arrow();
        let bound = |name: &str| columns.place(name, &key_type);
        let first_keys = columns.place("first_keys", &first_keys_type(schema))?;
        let (origin, index) = match wanted {
            Wanted::Everything => {
                let origin = [u32s("table_version")?, u64s("checksum")?, bound(&lower)?, bound(&upper)?];
                (Some(origin), Some(index_places(columns)?))
            }
            // Page indexes have the statistics of columns other than the key, and first keys that the manifest lacks.
            Wanted::Scan(wanted)
                if first_keys.has_nulls() || wanted.iter().any(|column| *column != schema.key_index()) =>
            {
                (None, Some(index_places(columns)?))
            }
            Wanted::Scan(_) => (None, None),
        };
        let mut statistics = Vec::with_capacity(schema.columns().len());
        for (index, Column { name, .. }) in schema.columns().iter().enumerate() {
            let data_type = schema.statistics_type(index);
            let Some(data_type) = data_type.filter(|_| wanted.has_statistics(index, schema.key_index())) else {
                statistics.push(None);
                continue;
            };
            let place = |what: &str| columns.place(&format!("{what}:{name}"), &data_type.arrow());
            let nan_counts = if data_type.is_float() { Some(u64s(&format!("nan:{name}"))?) } else { None };
            statistics.push(Some(StatisticsPlaces { range: [place("min")?, place("max")?], nan_counts }));
        }
        let filters =
            (columns.place(FILTER_BYTES, &ArrowType::UInt32), columns.place(FILTER_CHECKSUM, &ArrowType::UInt64));
        Some(Self {
            u32s: [u32s("rank")?, u32s("roll")?, u32s("run")?, u32s("row_group")?, u32s("page_rows")?],
            u64s: [u64s("offset")?, u64s("bytes")?, u64s("rows")?],
            kinds: columns.place("kind", &ArrowType::UInt8)?,
            levels: columns.place(LEVEL, &ArrowType::UInt8),
            intervals: columns.place(LEVEL_INTERVALS, &intervals_type()),
            first_keys,
            filters: filters.0.zip(filters.1).map(|(bytes, checksums)| [bytes, checksums]),
            origin,
            index,
            statistics,
        })
    }

    fn all(&self) -> Vec<&'a ColumnPlace> {
        let statistics = self.statistics.iter().flatten();
        let statistics = statistics.flat_map(|places| places.range.into_iter().chain(places.nan_counts));
        let fixed = self.u32s.into_iter().chain(self.u64s).chain([self.kinds, self.first_keys]);
        fixed
            .chain(self.origin.into_iter().flatten())
            .chain(self.index.into_iter().flatten())
            .chain(self.filters.into_iter().flatten())
            .chain(self.levels)
            .chain(self.intervals)
            .chain(statistics)
            .collect()
    }

    /// Returns whether the places of some row group's pages follow from its page index only. Returns `None` if a column
    /// cannot be decoded.
    fn lack_places(&self, container: &Container) -> Option<bool> {
        Some(plain::<UInt32Type>(container, self.u32s[4])?.contains(&0))
    }

    /// Creates the row groups from the loaded columns. Returns `None` if a column cannot be decoded.
    fn take(&self, container: &Container, rows: usize, schema: &Schema) -> Option<StoredRowGroups> {
        // Row numbers are stored as `u32`.
        u32::try_from(rows).ok()?;
        let u32s = |place| plain::<UInt32Type>(container, place);
        let u64s = |place| plain::<UInt64Type>(container, place);
        let kinds = plain::<UInt8Type>(container, self.kinds)?;
        if kinds.iter().any(|kind| RunKind::from_code(u32::from(*kind)).is_none()) {
            return None;
        }
        let [ranks, rolls, runs, row_groups, page_rows] = self.u32s;
        let [offsets, bytes, row_counts] = self.u64s;
        let range = |places: [&ColumnPlace; 2], data_type| {
            let [least, most] = places;
            Some(StoredRange {
                data_type,
                least: array(container, least, data_type)?,
                most: array(container, most, data_type)?,
            })
        };
        let mut columns = Vec::with_capacity(schema.columns().len());
        for (index, places) in self.statistics.iter().enumerate() {
            columns.push(match (places, schema.statistics_type(index)) {
                (Some(places), Some(data_type)) => StoredColumn::Known {
                    range: range(places.range, data_type)?,
                    nan_counts: match places.nan_counts {
                        Some(place) => Some(u64s(place)?),
                        None => None,
                    },
                },
                (None, Some(_)) => StoredColumn::Unread,
                (_, None) => StoredColumn::Opaque,
            });
        }
        let key = schema.key_value_type();
        let origin = match self.origin {
            Some([table_versions, checksums, lower, upper]) => Some(StoredOrigin {
                table_versions: u32s(table_versions)?,
                checksums: u64s(checksums)?,
                bounds: range([lower, upper], key)?,
            }),
            None => None,
        };
        let index = match self.index {
            Some([offsets, bytes, checksums]) => {
                Some(StoredIndexes { offsets: u64s(offsets)?, bytes: u32s(bytes)?, checksums: u64s(checksums)? })
            }
            None => None,
        };
        Some(StoredRowGroups {
            ranks: u32s(ranks)?,
            rolls: u32s(rolls)?,
            levels: levels_of(container, self.levels)?,
            intervals: Vec::new(),
            runs: u32s(runs)?,
            row_groups: u32s(row_groups)?,
            offsets: u64s(offsets)?,
            bytes: u64s(bytes)?,
            rows: u64s(row_counts)?,
            kinds,
            origin,
            column_statistics: Arc::new(StoredStatistics { columns }),
            pages: StoredPages {
                page_rows: u32s(page_rows)?,
                index,
                first_keys: Lists::of(container, self.first_keys, key.width())?,
                filters: match self.filters {
                    Some([bytes, checksums]) => Some((u32s(bytes)?, u64s(checksums)?)),
                    None => None,
                },
                order: schema.key_order().of_values(),
            },
        })
    }
}
