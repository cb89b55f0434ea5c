//! Partitioning by place: regions of a k-d tree in the epoch's frame.
//!
//! The tree halves the longest side of its cells, level by level, down to 2^-23 of each side of the frame. The path of
//! a record through the tree, one bit for each level, is its ordinal. A partition is an interval of paths, and
//! therefore consists of cells of the tree. Its ends are negotiated like those of ranges of a key, so they lie where
//! the records are, and records in one cell are divided by ties: planes, filaments and single points split, too.
//!
//! Each axis goes on beyond the frame, in cells that grow with the distance from it, so records that have left the
//! frame since it was made are divided by place, too. The first bits of a path state the axes along which its place is
//! beyond the frame. All paths within it are therefore consecutive, without gaps where there are no records.
//!
//! Since all cells of a level have the same shape in the frame, the path needs no search. It consists of the bits of
//! the coordinates, interleaved in an order that follows from the frame. (If all sides are equal, it is Morton's code.)
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

/// The levels of the tree at which cells are divided along one axis. The cells within the frame come first, and as many
/// are beyond it.
#[derive(Debug)]
struct CellAxis {
    /// The least coordinate within the frame.
    least: f64,
    /// Number of the smallest cells in a unit of length within the frame.
    scale: f64,
    /// Number of the smallest cells within the frame.
    cells: f64,
    /// The bits of a path for each byte of a cell's number, lowest byte first.
    placed: [[u64; 1 << STEP_BITS]; AXIS_BITS / STEP_BITS],
}

/// An axis along which nothing is divided.
static NOWHERE: CellAxis =
    CellAxis { least: 0.0, scale: 0.0, cells: 0.0, placed: [[0; 1 << STEP_BITS]; AXIS_BITS / STEP_BITS] };

impl CellTree {
    fn new(frame: &Frame, axes: usize) -> Self {
        let mut sides: Vec<(f64, usize)> =
            frame.axes()[..axes].iter().map(|(least, most)| (most / 2.0 - least / 2.0, 0)).collect();
        // The bits of each axis in a path, most significant first.
        let mut bits: [Vec<u64>; MAX_AXES] = std::array::from_fn(|axis| vec![1 << (LEVELS - 1 - axis)]);
        for level in axes..LEVELS {
            let divisible = sides.iter().enumerate().filter(|(_, (_, used))| *used < AXIS_BITS - 1);
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
        let cells = (1u64 << (bits.len() - 1)) as f64;
        let scale = cells / (most - least);
        let mut placed = [[0; 1 << STEP_BITS]; AXIS_BITS / STEP_BITS];
        for (place, bit) in bits.iter().rev().enumerate() {
            let (table, mask) = (&mut placed[place / STEP_BITS], 1 << (place % STEP_BITS));
            for (_, path) in table.iter_mut().enumerate().filter(|(byte, _)| byte & mask != 0) {
                *path |= bit;
            }
        }
        Self { least, scale: if scale.is_finite() { scale } else { 0.0 }, cells, placed }
    }

    /// Returns the number of a coordinate's cell.
    #[inline]
    fn cell(&self, coordinate: f64) -> u64 {
        let along = (coordinate - self.least) * self.scale;
        let last = (self.cells as u64).saturating_sub(1);
        if (0.0..=self.cells).contains(&along) {
            return (along as u64).min(last);
        }
        // Half of the cells beyond the frame are below it. Of these, places at a distance of n times the frame's length
        // are within the n / (1 + n) that are closest to it.
        let half = self.cells / 2.0;
        let share = |distance: f64| half * (1.0 - 1.0 / (1.0 + distance / self.cells));
        let beyond = if along < 0.0 { half - share(-along) } else { half + share(along - self.cells) };
        // The conversion is saturating, and that of NaN, infinity times 0, is 0.
        last + 1 + (beyond as u64).min(last)
    }

    /// Returns the axis' bits of the path of a coordinate that is not NaN.
    #[inline]
    fn path(&self, coordinate: f64) -> u64 {
        let cell = self.cell(coordinate);
        let mut path = 0;
        for (step, table) in self.placed.iter().enumerate() {
            path |= table[(cell >> (step * STEP_BITS)) as usize & 0xff];
        }
        path
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
        let path = |coordinate: f64| {
            if coordinate.is_nan() { NAN_ORDINAL } else { axis.path(coordinate) }
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
        // The first two levels are for places beyond the frame.
        let levels = |place: [f64; 3], levels: u32| paths(&partitioner, &[place])[0] >> (LEVELS as u32 - 2 - levels);
        // The frame is an eighth longer than the distance of the points.
        for (x, cell) in [(-0.9, 0), (0.1, 0), (0.2, 1), (7.9, 7), (8.1, 8), (16.9, 15)] {
            assert_eq!(levels([x, 0.1, 5.0], 4), cell, "{x}");
            // The next cuts are along x, the first of equal sides, and along y.
            assert_eq!(levels([x, 0.9, 5.0], 6) & 1, 1, "{x}");
            assert_eq!(levels([x, 0.1, 7.0], 6) & 1, 0, "{x}");
        }
        // Eight cells are on each side of the frame. The closest half of them has as much of the axis as the frame.
        for (x, cell) in [(1e9, 15), (16.0 + 19.5, 12), (16.0 + 18.5, 11), (-18.5, 4), (-19.5, 3), (-1e9, 0)] {
            assert_eq!(levels([x, 0.1, 5.0], 4), 0b10_0000 | cell, "{x}");
        }
    }

    #[test]
    fn paths_ascend_along_each_axis() {
        let corners = [[-1.0, 100.0, 7.0], [1.0, 101.0, 7.0]].repeat(8);
        for axes in [2, 3] {
            let partitioner = partitioner(DataType::F64, axes, &corners);
            for axis in 0..3 {
                let place = |step: i32| {
                    let mut place = [0.0, 100.5, 7.0];
                    place[axis] += f64::from(step) / [300.0, 600.0, 300.0][axis];
                    place
                };
                // The frame ends after 337 steps. Along an axis without length, there is nothing to divide.
                for steps in [-900..-340, -335..335, 340..900] {
                    let found = paths(&partitioner, &steps.clone().map(place).collect::<Vec<_>>());
                    assert!(found.is_sorted() && found.iter().all(|path| *path < 1 << LEVELS), "{steps:?}");
                    let distinct = found.windows(2).filter(|pair| pair[0] != pair[1]).count();
                    assert_eq!(distinct, if axis == 2 { 0 } else { steps.len() - 1 }, "{steps:?}");
                }
            }
        }
    }

    #[test]
    fn records_that_have_left_the_frame_are_divided_by_place() {
        let partitioner = partitioner(DataType::F64, 3, &[[0.0; 3], [1.0; 3]].repeat(8));
        for distance in [1.0, -1.0, 10.0, -100.0] {
            // The corners of a box of the frame's size.
            let corner = |number: u32| [0, 1, 2].map(|axis| distance * 1.5 + f64::from(number >> axis & 1));
            let found = paths(&partitioner, &(0..8).map(corner).collect::<Vec<_>>());
            let closest = found
                .iter()
                .enumerate()
                .flat_map(|(number, one)| found[..number].iter().map(move |other| one.abs_diff(*other)));
            assert!(closest.min().unwrap() > 1 << 10, "{distance}: {found:x?}");
        }
    }

    #[test]
    fn strange_coordinates_have_a_place() {
        let partitioner = partitioner(DataType::F64, 3, &[[0.0; 3], [1.0; 3]].repeat(8));
        let least = paths(&partitioner, &[[f64::NEG_INFINITY, f64::MIN, -1e300]])[0];
        let most = paths(&partitioner, &[[f64::INFINITY, f64::MAX, 1e300]])[0];
        assert!(least == 0b111 << (LEVELS - 3) && most == (1 << LEVELS) - 1);
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
