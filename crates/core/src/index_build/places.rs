//! The division of an epoch's records by place.

use std::io::IoSliceMut;
use std::ops::Range;

use super::sample::{IndexedRecords, SAMPLED_ROWS, sampled_rows};
use crate::error::{Error, Result};
use crate::partition::{CutPoint, Frame, Partitioner, PointSample, TieSequence, partitioner};
use crate::query::{Group, PageIndex};
use crate::random::Random;
use crate::schema::{Column, ColumnView, Schema};

/// Sets the frame of `partitioner`, and returns a sample of the ordinals in it: those of every 16th place in pages
/// whose numbers follow from the numbers of rows. `copy` is the schema of the copy.
///
/// # Errors
/// Corruption of the records that are sampled, or a failure of storage.
pub(super) fn divide_places(
    records: &IndexedRecords<'_>,
    copy: &Schema,
    partitioner: &mut dyn Partitioner,
    parts: u32,
) -> Result<Vec<CutPoint>> {
    let mut sampler = PlaceSampler::new(copy)?;
    for (group, row) in sampled_rows(records.groups, parts) {
        sampler.add_page(&records.groups.group(group)?, group as u32, row)?;
    }
    let (frame, sample) = sampler.sample();
    partitioner.set_frame(Some(&frame));
    Ok(sample)
}

/// Samples places. Its rows have the coordinates only, so a sample of wide records takes little memory.
struct PlaceSampler {
    /// The coordinates among the columns of the records.
    columns: Vec<usize>,
    places: Schema,
    partitioner: Box<dyn Partitioner>,
    rows: Vec<u8>,
    ties: Vec<u32>,
    points: Vec<PointSample>,
    random: Random,
    raw: Vec<u8>,
}

impl PlaceSampler {
    fn new(copy: &Schema) -> Result<Self> {
        let columns = copy.key_columns().to_vec();
        let coordinates: Vec<Column> = columns.iter().map(|column| copy.columns()[*column].clone()).collect();
        let places = Schema::clustered(coordinates, &copy.cluster_key())?;
        Ok(Self {
            columns,
            partitioner: partitioner(&places),
            places,
            rows: Vec::new(),
            ties: Vec::new(),
            points: Vec::new(),
            // The same points on every process.
            random: Random::new(0),
            raw: Vec::new(),
        })
    }

    /// Adds every 16th place of the page that has a row.
    fn add_page(&mut self, group: &Group, number: u32, row: u64) -> Result<()> {
        let pages = group.pages(self.columns[0])?;
        let page = pages.partition_point(|page| page.first_row <= row).saturating_sub(1);
        let Some(page) = pages.get(page) else { return Err(Error::internal("a row group without pages has rows")) };
        let rows = page.first_row..page.first_row + u64::from(page.rows);
        let axes = 0..self.columns.len();
        let values = axes.map(|axis| self.coordinates(group, axis, &rows)).collect::<Result<Vec<_>>>()?;
        let count = (rows.end - rows.start) as usize;
        let views = values
            .iter()
            .zip(self.places.columns())
            .map(|(values, column)| ColumnView::new(values, column.data_type.width(), count, column.data_type));
        let mut packed = Vec::new();
        self.places.pack(&views.collect::<Result<Vec<_>, _>>()?, &mut packed)?;
        let mut points = PointSample::default();
        let mut ties = TieSequence::new(number);
        let stride = self.places.row_bytes();
        self.partitioner.sample(&packed, stride, &mut self.random, &mut points);
        self.points.push(points);
        for place in packed.chunks_exact(stride).step_by(SAMPLED_ROWS) {
            self.rows.extend_from_slice(place);
            self.ties.push(ties.next_tie());
        }
        Ok(())
    }

    /// Reads the coordinates of some rows along an axis. Pages of another column may end elsewhere.
    fn coordinates(&mut self, group: &Group, axis: usize, rows: &Range<u64>) -> Result<Vec<u8>> {
        let (column, width) = (self.columns[axis], self.places.columns()[axis].data_type.width());
        let pages = group.pages(column)?;
        let first = pages.partition_point(|page| page.first_row <= rows.start).saturating_sub(1);
        let last = pages.partition_point(|page| page.first_row < rows.end);
        let mut values = Vec::new();
        for (number, page) in pages.iter().enumerate().take(last).skip(first) {
            self.raw.resize(page.bytes as usize, 0);
            group.read(page.offset, &mut [IoSliceMut::new(&mut self.raw)])?;
            group.decode(&self.raw, column, number, true, &mut values)?;
        }
        let before = (rows.start - pages.get(first).map_or(rows.start, |page| page.first_row)) as usize * width;
        let bytes = (rows.end - rows.start) as usize * width;
        match values.get(before..before + bytes) {
            Some(wanted) => Ok(wanted.to_vec()),
            None => Err(Error::internal("pages have fewer rows than their row group")),
        }
    }

    /// Returns the frame of the sampled places, and their ordinals in it.
    fn sample(mut self) -> (Frame, Vec<CutPoint>) {
        let frame = Frame::around(&PointSample::merge(&self.points, &mut self.random));
        self.partitioner.set_frame(Some(&frame));
        let mut ordinals = Vec::new();
        self.partitioner.ordinals(&self.rows, self.places.row_bytes(), &mut ordinals);
        let placed = ordinals.into_iter().zip(self.ties);
        let placed = placed.filter(|(ordinal, _)| !self.partitioner.is_nan(*ordinal));
        (frame, placed.map(|(ordinal, tie)| CutPoint { ordinal, tie }).collect())
    }
}
