//! Partitioning by place: regions of a k-d tree in the epoch's frame.
//!
//! The tree halves the longest side of its cells, level by level, down to 2^-24 of each side of the frame. The path of
//! a record through the tree, one bit for each level, is its ordinal. A partition is an interval of paths, and
//! therefore consists of cells of the tree. Its ends are negotiated like those of ranges of a key, so they lie where
//! the records are, and records in one cell are divided by ties: planes, filaments and single points split, too.
//!
//! Since all cells of a level have the same shape, the path needs no search. It consists of the bits of the
//! coordinates, interleaved in an order that follows from the frame. (If all sides are equal, it is Morton's code.)
//! Rows within a run are ordered by a tree over their own medians (`format`), so the shape of partitions matters for
//! how many of them a box touches, and not for its number of pages.

use super::frame::Frame;
use super::partitioner::Partitioner;
use super::planner::ROUGH_SLOTS;
use super::point_sample::PointSample;
use super::table::PartitionTable;
use crate::random::Random;
use crate::schema::{DataType, KeyOrder, MAX_AXES, NAN_ORDINAL, Schema, Value};

/// Maximum number of levels of one axis.
const AXIS_BITS: usize = 24;

/// Number of levels of the tree. The largest path differs from the ordinal of NaN.
const LEVELS: usize = 63;

/// Number of bits of a coordinate that are placed at a time.
const STEP_BITS: usize = 8;

/// A partitioner by the place of a record.
#[derive(Debug)]
pub(super) struct SpacePartitioner {
    /// The types of the coordinates, and their offsets in a row.
    columns: Vec<(DataType, usize)>,
    /// `None` until there is a frame. All places then have one ordinal.
    tree: Option<Box<CellTree>>,
}

/// The tree of one frame.
#[derive(Debug)]
struct CellTree {
    axes: [CellAxis; MAX_AXES],
}

/// The levels of the tree at which cells are divided along one axis.
#[derive(Debug)]
struct CellAxis {
    least: f64,
    /// Number of the smallest cells in a unit of length.
    scale: f64,
    /// The bits of a path for each byte of a cell's number, lowest byte first.
    placed: [[u64; 1 << STEP_BITS]; AXIS_BITS / STEP_BITS],
}

/// An axis along which nothing is divided.
static NOWHERE: CellAxis = CellAxis { least: 0.0, scale: 0.0, placed: [[0; 1 << STEP_BITS]; AXIS_BITS / STEP_BITS] };

impl CellTree {
    fn new(frame: &Frame, axes: usize) -> Self {
        let mut sides: Vec<(f64, usize)> =
            frame.axes()[..axes].iter().map(|(least, most)| (most / 2.0 - least / 2.0, 0)).collect();
        // The bits of each axis in a path, most significant first.
        let mut bits = [const { Vec::new() }; MAX_AXES];
        for level in 0..LEVELS {
            let divisible = sides.iter().enumerate().filter(|(_, (_, used))| *used < AXIS_BITS);
            // The first of equal sides.
            let longest = divisible.rev().max_by(|(_, (one, _)), (_, (other, _))| one.total_cmp(other));
            let Some((axis, _)) = longest else { break };
            let (side, used) = &mut sides[axis];
            *side /= 2.0;
            *used += 1;
            bits[axis].push(1u64 << (LEVELS - 1 - level));
        }
        let axes = std::array::from_fn(|axis| CellAxis::new(frame.axes()[axis], &bits[axis]));
        Self { axes }
    }
}

impl CellAxis {
    fn new((least, most): (f64, f64), bits: &[u64]) -> Self {
        let cells = (1u64 << bits.len()) as f64;
        let scale = cells / (most - least);
        let mut placed = [[0; 1 << STEP_BITS]; AXIS_BITS / STEP_BITS];
        for (place, bit) in bits.iter().rev().enumerate() {
            let (table, mask) = (&mut placed[place / STEP_BITS], 1 << (place % STEP_BITS));
            for (_, path) in table.iter_mut().enumerate().filter(|(byte, _)| byte & mask != 0) {
                *path |= bit;
            }
        }
        Self { least, scale: if scale.is_finite() { scale } else { 0.0 }, placed }
    }

    /// Returns the axis' bits of the path of a coordinate that is not NaN.
    #[inline]
    fn path(&self, coordinate: f64, bits: u32) -> u64 {
        // The conversion is saturating, and that of NaN, infinity times 0, is 0.
        let cell = (((coordinate - self.least) * self.scale) as u64).min((1 << bits) - 1);
        let mut path = 0;
        for (step, table) in self.placed.iter().enumerate() {
            path |= table[(cell >> (step * STEP_BITS)) as usize & 0xff];
        }
        path
    }

    /// Returns the number of levels of the axis.
    fn bits(&self) -> u32 {
        self.placed.iter().map(|table| table[(1 << STEP_BITS) - 1].count_ones()).sum()
    }
}

impl SpacePartitioner {
    /// Creates the partitioner of a schema's coordinates.
    pub(super) fn new(schema: &Schema) -> Self {
        let column = |index: &usize| (schema.columns()[*index].data_type, schema.offset(*index));
        Self { columns: schema.key_columns().iter().map(column).collect(), tree: None }
    }

    /// Sets the paths of an axis in `out`. NaN has the path of NaN.
    fn add_axis(rows: &[u8], stride: usize, data_type: DataType, axis: &CellAxis, out: &mut [u64]) {
        let bits = axis.bits();
        let path = |coordinate: f64| {
            if coordinate.is_nan() { NAN_ORDINAL } else { axis.path(coordinate, bits) }
        };
        macro_rules! each {
            ($type:ty) => {
                for (path_of_row, row) in out.iter_mut().zip(rows.chunks(stride)) {
                    let mut raw = [0; size_of::<$type>()];
                    raw.copy_from_slice(&row[..size_of::<$type>()]);
                    *path_of_row |= path(<$type>::from_le_bytes(raw).into());
                }
            };
        }
        match data_type {
            DataType::F32 => each!(f32),
            DataType::F64 => each!(f64),
            other => {
                for (path_of_row, row) in out.iter_mut().zip(rows.chunks(stride)) {
                    *path_of_row |= path(Value::from_stored(other, row).as_f64());
                }
            }
        }
    }
}

impl Partitioner for SpacePartitioner {
    fn ordinals(&self, rows: &[u8], stride: usize, out: &mut Vec<u64>) {
        let begin = out.len();
        out.resize(begin + rows.len().div_ceil(stride), 0);
        for (place, (data_type, offset)) in self.columns.iter().enumerate() {
            let axis = self.tree.as_ref().and_then(|tree| tree.axes.get(place)).unwrap_or(&NOWHERE);
            let coordinates = rows.get(*offset..).unwrap_or_default();
            Self::add_axis(coordinates, stride, *data_type, axis, &mut out[begin..]);
        }
    }

    fn is_nan(&self, ordinal: u64) -> bool {
        ordinal == NAN_ORDINAL
    }

    fn fixed_table(&self, _version: u32, _partitions: u32) -> Option<PartitionTable> {
        None
    }

    fn order(&self) -> KeyOrder {
        KeyOrder::WHOLE
    }

    fn bounds(&self, _ordinals: (u64, u64)) -> Option<(Value, Value)> {
        None
    }

    /// The cells of neighbouring paths may be as different as any two.
    fn most_slots(&self) -> usize {
        ROUGH_SLOTS
    }

    fn divides_a_frame(&self) -> bool {
        true
    }

    fn set_frame(&mut self, frame: Option<&Frame>) {
        self.tree = frame.map(|frame| Box::new(CellTree::new(frame, self.columns.len())));
    }

    fn sample(&self, rows: &[u8], stride: usize, random: &mut Random, sample: &mut PointSample) {
        let place = |record: usize| {
            let row = &rows[record * stride..];
            let mut point = [0.0; MAX_AXES];
            for (coordinate, (data_type, offset)) in point.iter_mut().zip(&self.columns) {
                *coordinate = Value::from_stored(*data_type, &row[*offset..]).as_f64();
            }
            point
        };
        sample.observe(rows.len().div_ceil(stride), random, place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Column;

    fn partitioner(data_type: DataType, axes: usize, rows: &[[f64; 3]]) -> SpacePartitioner {
        let names = ["x", "y", "z"];
        let columns = names.map(|name| Column::new(name, data_type)).to_vec();
        let schema = Schema::new(columns, &format!("space:{}", names[..axes].join(","))).unwrap();
        let mut partitioner = SpacePartitioner::new(&schema);
        let mut sample = PointSample::default();
        sample.observe(rows.len(), &mut Random::new(1), |row| rows[row]);
        partitioner.set_frame(Some(&Frame::around(&sample)));
        partitioner
    }

    fn paths(partitioner: &SpacePartitioner, places: &[[f64; 3]]) -> Vec<u64> {
        let rows: Vec<u8> = places.iter().flatten().flat_map(|coordinate| coordinate.to_le_bytes()).collect();
        let mut paths = Vec::new();
        partitioner.ordinals(&rows, 24, &mut paths);
        paths
    }

    #[test]
    fn cells_are_halved_along_their_longest_side() {
        // A domain that is sixteen times as long as it is wide: four levels along its length, then both in turns.
        let corners = [[0.0, 0.0, 0.0], [16.0, 1.0, 0.0]].repeat(8);
        let partitioner = partitioner(DataType::F64, 2, &corners);
        let levels = |place: [f64; 3], levels: u32| paths(&partitioner, &[place])[0] >> (LEVELS as u32 - levels);
        // The frame is an eighth longer than the distance of the points.
        for (x, cell) in [(-0.9, 0), (0.1, 0), (0.2, 1), (7.9, 7), (8.1, 8), (16.9, 15), (1e9, 15), (-1e9, 0)] {
            assert_eq!(levels([x, 0.1, 5.0], 4), cell, "{x}");
            // The next cuts are along x, the first of equal sides, and along y.
            assert_eq!(levels([x, 0.9, 5.0], 6) & 1, 1, "{x}");
            assert_eq!(levels([x, 0.1, 7.0], 6) & 1, 0, "{x}");
        }
    }

    #[test]
    fn paths_ascend_along_each_axis() {
        let corners = [[-1.0, 100.0, 7.0], [1.0, 101.0, 7.0]].repeat(8);
        for axes in [2, 3] {
            let partitioner = partitioner(DataType::F64, axes, &corners);
            for axis in 0..3 {
                let place = |step: i32| {
                    let mut place = [0.3, 100.3, 7.0];
                    place[axis] += f64::from(step) / 300.0;
                    place
                };
                let found = paths(&partitioner, &(-900..900).map(place).collect::<Vec<_>>());
                assert!(found.is_sorted() && found.iter().all(|path| *path < 1 << LEVELS));
                let distinct = found.windows(2).filter(|pair| pair[0] != pair[1]).count();
                // Beyond the frame, and along an axis without length, there is nothing to divide.
                let most = [800, 500, 0][axis];
                assert!((most / 2..=most).contains(&distinct) || (axis, axes) == (2, 2) && distinct == 0, "{distinct}");
            }
        }
    }

    #[test]
    fn strange_coordinates_have_a_place() {
        let partitioner = partitioner(DataType::F64, 3, &[[0.0; 3], [1.0; 3]].repeat(8));
        let least = paths(&partitioner, &[[f64::NEG_INFINITY, f64::MIN, -1e300]])[0];
        let most = paths(&partitioner, &[[f64::INFINITY, f64::MAX, 1e300]])[0];
        assert!(least == 0 && most == (1 << LEVELS) - 1);
        for axis in 0..3 {
            let mut place = [0.5, f64::INFINITY, -0.0];
            place[axis] = f64::NAN;
            let path = paths(&partitioner, &[place])[0];
            assert!(path == NAN_ORDINAL && partitioner.is_nan(path) && !partitioner.is_nan(most));
        }
    }

    #[test]
    fn all_types_have_the_same_places() {
        let corners = [[0.0; 3], [100.0; 3]].repeat(8);
        let places: Vec<[f64; 3]> = (0..100).map(|step| [f64::from(step), f64::from(step * 7 % 100), 50.0]).collect();
        let expected = paths(&partitioner(DataType::F64, 3, &corners), &places);
        for (data_type, stored) in [
            (DataType::I8, Vec::from_iter(places.iter().flatten().flat_map(|value| (*value as i8).to_le_bytes()))),
            (DataType::U16, Vec::from_iter(places.iter().flatten().flat_map(|value| (*value as u16).to_le_bytes()))),
            (DataType::I64, Vec::from_iter(places.iter().flatten().flat_map(|value| (*value as i64).to_le_bytes()))),
            (DataType::F32, Vec::from_iter(places.iter().flatten().flat_map(|value| (*value as f32).to_le_bytes()))),
        ] {
            let partitioner = partitioner(data_type, 3, &corners);
            let mut found = Vec::new();
            partitioner.ordinals(&stored, 3 * data_type.width(), &mut found);
            assert_eq!(found, expected, "{data_type}");
        }
    }
}
