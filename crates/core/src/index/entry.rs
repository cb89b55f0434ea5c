//! The columns of an index's entries.

use std::ops::Range;

use crate::error::{Error, Result, UsageError};
use crate::format::PartId;
use crate::schema::{Column, ColumnView, DataType, Schema};
use crate::store::DatasetDescriptor;

use super::columns::position;
use super::definition::IndexDefinition;

/// Number of low bits of an entry's part that number the files of one rank.
const ROLL_BITS: u32 = 12;

/// The columns of the entries of one index: the value, the part, the row, and the carried columns.
#[derive(Debug, Clone)]
pub(crate) struct EntryLayout {
    pub(crate) schema: Schema,
    /// The columns whose values entries have.
    pub(crate) values: IndexedValues,
}

/// The columns of records whose values entries have: the indexed column, then the carried ones. In a copy, all columns
/// of the records.
#[derive(Debug, Clone)]
pub(crate) struct IndexedValues {
    /// Their positions among the records' columns.
    pub(crate) columns: Vec<usize>,
    pub(crate) types: Vec<DataType>,
    /// Whether entries also have the place of their record.
    pub(crate) has_places: bool,
}

/// The place of a record in its epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RecordPlace {
    /// The file, as entries store it.
    pub(crate) part: u32,
    /// The row of the file, counted from 0 in file order.
    pub(crate) row: u32,
}

impl EntryLayout {
    /// Position of the value in an entry.
    pub(crate) const VALUE: usize = 0;
    /// Position of the part in an entry.
    pub(crate) const PART: usize = 1;
    /// Position of the row in an entry.
    pub(crate) const ROW: usize = 2;
    /// Position of the first carried column in an entry.
    pub(crate) const CARRIED: usize = 3;

    /// Returns the origin of entries, as their description states it: the dataset of the records.
    pub(crate) fn source(records: &DatasetDescriptor) -> String {
        format!("index: {}", records.uuid)
    }

    /// Returns the layout of the entries of an index in a dataset with the columns of `records`.
    ///
    /// # Errors
    /// A usage error if there is no such column; a schema error if its type has no order, or cannot be hashed.
    pub(crate) fn new(definition: &IndexDefinition, records: &Schema) -> Result<Self> {
        let mut columns = Vec::with_capacity(1 + definition.carried().len());
        for name in std::iter::once(definition.column()).chain(definition.carried().iter().map(String::as_str)) {
            columns.push(position(records, name)?);
        }
        let of_records: Vec<Column> = columns.iter().map(|column| records.columns()[*column].clone()).collect();
        let place = |wanted: &str| {
            let mut name = wanted.to_owned();
            while of_records.iter().any(|column| column.name.eq_ignore_ascii_case(&name)) {
                name.push('_');
            }
            Column::new(name, DataType::U32)
        };
        let mut entries = vec![of_records[0].clone(), place("part"), place("row")];
        entries.extend_from_slice(&of_records[1..]);
        let types = of_records.iter().map(|column| column.data_type).collect();
        let schema = Schema::clustered(entries, &definition.key())?;
        Ok(Self { schema, values: IndexedValues { columns, types, has_places: true } })
    }

    /// Returns the names of the columns that entries with this schema carry.
    pub(crate) fn carried(entries: &Schema) -> impl Iterator<Item = &str> {
        entries.columns().iter().skip(Self::CARRIED).map(|column| column.name.as_str())
    }
}

impl IndexedValues {
    /// Returns all values of records with these columns, for a copy of them.
    pub(super) fn of_all(columns: &[Column]) -> Self {
        let types = columns.iter().map(|column| column.data_type).collect();
        Self { columns: (0..columns.len()).collect(), types, has_places: false }
    }

    /// Returns the columns of entries of one part: the part's number and the rows, if entries have places, and packed
    /// stored values of each indexed column.
    pub(crate) fn entries<'a>(
        &self,
        values: &'a [Vec<u8>],
        part: &'a [u8; 4],
        rows: &'a [u32],
    ) -> Result<Vec<ColumnView<'a>>> {
        let view = |(values, data_type): (&'a Vec<u8>, &DataType)| {
            ColumnView::new(values, data_type.width(), rows.len(), *data_type)
        };
        let mut views = values.iter().zip(&self.types).map(view);
        if !self.has_places {
            return views.collect::<Result<_, _>>().map_err(Into::into);
        }
        let mut columns: Vec<ColumnView<'a>> = views.by_ref().take(1).collect::<Result<_, _>>()?;
        columns.push(ColumnView::new(part, 0, rows.len(), DataType::U32)?);
        columns.push(ColumnView::from(rows));
        for view in views {
            columns.push(view?);
        }
        Ok(columns)
    }
}

impl IndexDefinition {
    /// Returns the definition of the index that has entries with this schema.
    ///
    /// # Errors
    /// A usage error if no index has such entries.
    pub(crate) fn of_entries(name: &str, entries: &Schema) -> Result<Self> {
        Self::new(entries.clustering(), name)?.carrying(EntryLayout::carried(entries))
    }

    /// Checks that a dataset with the columns of `records` can have this index.
    ///
    /// # Errors
    /// A usage error if there is no such column; a schema error if its type has no order, or cannot be hashed.
    pub fn check(&self, records: &Schema) -> Result<()> {
        EntryLayout::new(self, records).map(drop)
    }
}

impl RecordPlace {
    /// Returns the number by which entries name a part: 4,096 times its rank, plus the number of the file among the
    /// rank's. `None` if the number does not fit.
    pub(crate) fn part_number(part: PartId) -> Option<u32> {
        let fits = part.rank < 1 << (u32::BITS - ROLL_BITS) && part.roll < 1 << ROLL_BITS;
        fits.then_some(part.rank << ROLL_BITS | part.roll)
    }

    /// Returns the number of a part and the rows of one of its row groups, as entries name them.
    ///
    /// # Errors
    /// A usage error if entries cannot name them.
    pub(crate) fn of_group(part: PartId, first_row: u64, rows: u64) -> Result<(u32, Range<u32>)> {
        let number = Self::part_number(part).ok_or_else(|| Self::unnamed(part))?;
        let end = first_row.checked_add(rows).and_then(|end| u32::try_from(end).ok());
        let end = end.ok_or_else(|| Self::too_long(part))?;
        // Not beyond the end, which fits.
        Ok((number, first_row as u32..end))
    }

    /// Returns the error for a part that entries cannot name.
    fn unnamed(part: PartId) -> Error {
        let (ranks, rolls) = (1u32 << (u32::BITS - ROLL_BITS), 1u32 << ROLL_BITS);
        let what = format!(
            "an index names at most {ranks} ranks and {rolls} files of a rank, and {} is beyond; write larger files, or compact the dataset first",
            part.file_name()
        );
        UsageError::Option { option: "index", what }.into()
    }

    /// Returns the error for a part with more rows than entries can name.
    fn too_long(part: PartId) -> Error {
        let what = format!("an index names at most 2^32 rows of a file, and {} has more", part.file_name());
        UsageError::Option { option: "index", what }.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_different_numbers_in_their_order() {
        let part = |rank, roll| PartId { rank, roll };
        let parts = [part(0, 0), part(0, 1), part(0, 4095), part(1, 0), part(131_071, 3), part(1_048_575, 4095)];
        let numbers: Vec<u32> = parts.iter().map(|part| RecordPlace::part_number(*part).unwrap()).collect();
        assert!(numbers.is_sorted_by(|one, other| one < other));
        assert_eq!(RecordPlace::part_number(part(1 << 20, 0)), None);
        assert_eq!(RecordPlace::part_number(part(0, 4096)), None);
    }

    #[test]
    fn names_of_places_differ_from_all_columns() {
        let columns = ["id", "part", "PART_"].map(|name| Column::new(name, DataType::U32));
        let records = Schema::new(columns.to_vec(), "id").unwrap();
        let layout = EntryLayout::new(&"id,with=PART_,with=part".parse().unwrap(), &records).unwrap();
        let names: Vec<&str> = layout.schema.columns().iter().map(|column| column.name.as_str()).collect();
        assert_eq!(names, ["id", "part__", "row", "PART_", "part"]);
        assert_eq!(layout.values.columns, [0, 2, 1]);
        assert_eq!(EntryLayout::carried(&layout.schema).collect::<Vec<_>>(), ["PART_", "part"]);
    }

    #[test]
    fn entries_have_the_value_first_and_names_apart() {
        let columns = vec![Column::new("Part", DataType::F32), Column::new("row", DataType::I64)];
        let records = Schema::new(columns, "row").unwrap();
        let names = |text: &str| {
            let layout = EntryLayout::new(&text.parse().unwrap(), &records).unwrap();
            layout.schema.columns().iter().map(|column| column.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(names("Part"), ["Part", "part_", "row"]);
        assert_eq!(names("hash:row"), ["row", "part", "row_"]);
        assert_eq!(names("Part,with=row"), ["Part", "part_", "row_", "row"]);
        for text in ["x", "row,with=x"] {
            let error = EntryLayout::new(&text.parse().unwrap(), &records).unwrap_err();
            assert!(error.to_string().contains('x'), "{error}");
        }
    }
}
