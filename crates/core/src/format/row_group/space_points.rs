//! The places of a memtable's rows, as points of 32-bit coordinates.
//!
//! Coordinates of at most 32 bits are compared exactly, and longer ones by the top 32 bits of their ordinals' span.
//! Coordinates that differ below that are close.

use crate::format::row_group::memtable::{BUCKETS, Memtable};
use crate::schema::{KeyOrder, MAX_AXES};

/// A row: its coordinates, and its slot in the memtable.
#[derive(Debug, Clone, Copy)]
pub(super) struct Point {
    pub(super) coordinates: [u32; MAX_AXES],
    pub(super) slot: u32,
}

/// One axis of a memtable's points.
#[derive(Debug, Clone, Copy)]
pub(super) struct Axis {
    order: KeyOrder,
    /// Offset of the coordinate in a row.
    offset: usize,
    /// Smallest and largest ordinal that is not NaN.
    least: u64,
    most: u64,
    /// Number of low bits of the difference from it that are not compared.
    shift: u32,
}

impl Axis {
    /// Returns the axis of a column's values in the rows at some slots.
    pub(super) fn new(table: &Memtable, column: usize) -> Option<Self> {
        let schema = table.schema();
        let (data_type, offset) = (schema.columns()[column].data_type, schema.offset(column));
        let order = KeyOrder::new(data_type)?;
        if data_type.width() <= size_of::<u32>() {
            let (least, most) = order.extremes();
            let (least, most) = (order.ordinal_of(least), order.ordinal_of(most));
            return Some(Self { order, offset, least, most, shift: 0 });
        }
        let (rows, row_bytes) = (table.slots(), schema.row_bytes());
        let slots = (0..BUCKETS).flat_map(|number| table.bucket(number)).flatten();
        let (least, most) = slots
            .map(|slot| order.ordinal(&rows[slot * row_bytes + offset..]))
            .filter(|ordinal| !order.is_nan(*ordinal))
            .fold((u64::MAX, u64::MIN), |(least, most), ordinal| (least.min(ordinal), most.max(ordinal)));
        let least = least.min(most);
        let shift = (u64::BITS - (most - least).leading_zeros()).saturating_sub(u32::BITS);
        Some(Self { order, offset, least, most, shift })
    }

    /// Returns the place of a row's coordinate on the axis. NaN is last.
    #[inline]
    fn place(&self, row: &[u8]) -> u32 {
        let ordinal = self.order.ordinal(&row[self.offset..]);
        u32::try_from(ordinal.wrapping_sub(self.least) >> self.shift).unwrap_or(u32::MAX)
    }

    /// Returns the coordinate at a place of the axis, or the largest for NaN. Its rounding does not matter.
    #[inline]
    pub(super) fn value(&self, place: u32) -> f64 {
        let ordinal = self.least.saturating_add(u64::from(place) << self.shift);
        self.order.value(ordinal.min(self.most)).as_f64()
    }

    /// Returns the length of an interval.
    pub(super) fn length(&self, (least, most): (u32, u32)) -> f64 {
        let length = self.value(most) - self.value(least);
        // Of infinity less itself.
        if length.is_nan() { 0.0 } else { length }
    }
}

/// Reads the points of all rows of a memtable. Returns their axes.
pub(super) fn load(table: &Memtable, points: &mut Vec<Point>) -> Vec<Axis> {
    let columns = table.schema().key_columns();
    let axes: Vec<Axis> = columns.iter().take(MAX_AXES).filter_map(|column| Axis::new(table, *column)).collect();
    points.clear();
    points.reserve_exact(table.rows());
    let row_bytes = table.schema().row_bytes();
    for slots in (0..BUCKETS).flat_map(|number| table.bucket(number)) {
        let rows = &table.slots()[slots.start * row_bytes..slots.end * row_bytes];
        points.extend((slots.start as u32..).zip(rows.chunks_exact(row_bytes)).map(|(slot, row)| {
            let mut coordinates = [0; MAX_AXES];
            for (coordinate, axis) in coordinates.iter_mut().zip(&axes) {
                *coordinate = axis.place(row);
            }
            Point { coordinates, slot }
        }));
    }
    axes
}

/// Returns the smallest and largest coordinates of points, by axis.
pub(super) fn box_of(points: &[Point]) -> [(u32, u32); MAX_AXES] {
    let mut intervals = [(u32::MAX, u32::MIN); MAX_AXES];
    for point in points {
        for (interval, coordinate) in intervals.iter_mut().zip(point.coordinates) {
            *interval = (interval.0.min(coordinate), interval.1.max(coordinate));
        }
    }
    intervals
}
