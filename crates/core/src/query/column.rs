//! Columns as plain little-endian bytes: picking rows out of pages, and handing the bytes to Arrow.
//!
//! A value is only ever moved, never interpreted, so one routine per width serves all types.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::types::{
    ArrowPrimitiveType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{ArrayRef, FixedSizeBinaryArray, PrimitiveArray};
use arrow_buffer::{Buffer, ScalarBuffer};

use crate::schema::DataType;

/// A stretch of rows of one of several sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stretch {
    /// Which source.
    pub(super) source: u32,
    /// First row in it.
    pub(super) start: u32,
    /// Number of rows.
    pub(super) rows: u32,
}

/// Appends the values in `ranges` (ascending rows, the first value of `values` being row `base`) to `out`.
pub(super) fn gather(values: &[u8], width: usize, base: u32, ranges: &[Range<u32>], out: &mut Vec<u8>) {
    match width {
        1 => gather_fixed::<1>(values, base, ranges, out),
        2 => gather_fixed::<2>(values, base, ranges, out),
        4 => gather_fixed::<4>(values, base, ranges, out),
        8 => gather_fixed::<8>(values, base, ranges, out),
        _ => {
            for range in ranges {
                let start = (range.start - base) as usize * width;
                let end = (range.end - base) as usize * width;
                out.extend_from_slice(&values[start..end]);
            }
        }
    }
}

fn gather_fixed<const WIDTH: usize>(values: &[u8], base: u32, ranges: &[Range<u32>], out: &mut Vec<u8>) {
    let (values, _) = values.as_chunks::<WIDTH>();
    for range in ranges {
        let (start, end) = ((range.start - base) as usize, (range.end - base) as usize);
        // Single rows are what sparse matches consist of: a copy of known size is a move, not a call.
        if end - start == 1 {
            out.extend_from_slice(&values[start]);
        } else {
            out.extend_from_slice(values[start..end].as_flattened());
        }
    }
}

/// Appends stretches of several sources, in the order given, to `out`.
pub(super) fn interleave(sources: &[&[u8]], width: usize, stretches: &[Stretch], out: &mut Vec<u8>) {
    match width {
        1 => interleave_fixed::<1>(sources, stretches, out),
        2 => interleave_fixed::<2>(sources, stretches, out),
        4 => interleave_fixed::<4>(sources, stretches, out),
        8 => interleave_fixed::<8>(sources, stretches, out),
        _ => {
            for stretch in stretches {
                let start = stretch.start as usize * width;
                let values = sources[stretch.source as usize];
                out.extend_from_slice(&values[start..start + stretch.rows as usize * width]);
            }
        }
    }
}

fn interleave_fixed<const WIDTH: usize>(sources: &[&[u8]], stretches: &[Stretch], out: &mut Vec<u8>) {
    let rows: usize = stretches.iter().map(|stretch| stretch.rows as usize).sum();
    let start = out.len();
    // Room for all at once: most stretches of overlapping sources are single rows, and a check for each would be the
    // larger part of moving it.
    out.resize(start + rows * WIDTH, 0);
    let (mut slots, _) = out[start..].as_chunks_mut::<WIDTH>();
    for stretch in stretches {
        let (values, _) = sources[stretch.source as usize].as_chunks::<WIDTH>();
        let (first, rows) = (stretch.start as usize, stretch.rows as usize);
        let (now, later) = slots.split_at_mut(rows);
        if rows == 1 {
            now[0] = values[first];
        } else {
            now.copy_from_slice(&values[first..first + rows]);
        }
        slots = later;
    }
}

/// The Arrow array over `bytes`, which hold whole values of the type. Copies only when the memory is not aligned.
pub(super) fn array(data_type: DataType, bytes: Buffer) -> ArrayRef {
    match data_type {
        DataType::I8 => primitive::<Int8Type>(bytes),
        DataType::I16 => primitive::<Int16Type>(bytes),
        DataType::I32 => primitive::<Int32Type>(bytes),
        DataType::I64 => primitive::<Int64Type>(bytes),
        DataType::U8 => primitive::<UInt8Type>(bytes),
        DataType::U16 => primitive::<UInt16Type>(bytes),
        DataType::U32 => primitive::<UInt32Type>(bytes),
        DataType::U64 => primitive::<UInt64Type>(bytes),
        DataType::F32 => primitive::<Float32Type>(bytes),
        DataType::F64 => primitive::<Float64Type>(bytes),
        // The width was bounded far below i32::MAX by the schema.
        DataType::FixedBytes(width) => Arc::new(FixedSizeBinaryArray::new(width as i32, bytes, None)),
    }
}

fn primitive<T: ArrowPrimitiveType>(mut buffer: Buffer) -> ArrayRef {
    let rows = buffer.len() / size_of::<T::Native>();
    if buffer.as_ptr().align_offset(align_of::<T::Native>()) != 0 {
        // Arrow allocates on 64 bytes; the system's allocator all but always on 16.
        buffer = Buffer::from_slice_ref(buffer.as_slice());
    }
    Arc::new(PrimitiveArray::<T>::new(ScalarBuffer::new(buffer, 0, rows), None))
}

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn gathering_moves_the_rows_asked_for(width in 1usize..12, rows in 1u32..60, seed in any::<u64>()) {
            let base = 1000;
            let values: Vec<u8> = (0..rows as usize * width).map(|byte| byte as u8).collect();
            let wanted: Vec<u32> = (0..rows).filter(|row| seed >> (row % 64) & 1 == 1).collect();
            let ranges: Vec<Range<u32>> = wanted.iter().map(|row| base + row..base + row + 1).collect();
            let mut joined: Vec<Range<u32>> = Vec::new();
            for range in &ranges {
                match joined.last_mut() {
                    Some(last) if last.end == range.start => last.end = range.end,
                    _ => joined.push(range.clone()),
                }
            }
            let expected: Vec<u8> =
                wanted.iter().flat_map(|row| values[*row as usize * width..][..width].to_vec()).collect();
            for ranges in [ranges, joined] {
                let mut out = Vec::new();
                gather(&values, width, base, &ranges, &mut out);
                prop_assert_eq!(&out, &expected);
                let stretches: Vec<Stretch> = ranges
                    .iter()
                    .map(|range| Stretch { source: 1, start: range.start - base, rows: range.end - range.start })
                    .collect();
                let mut out = Vec::new();
                interleave(&[&[], &values], width, &stretches, &mut out);
                prop_assert_eq!(&out, &expected);
            }
        }
    }

    #[test]
    fn bytes_become_arrays_of_their_type() {
        let bytes: Vec<u8> = [1.5f32, f32::NAN, -0.0].iter().flat_map(|value| value.to_le_bytes()).collect();
        let floats = array(DataType::F32, Buffer::from_vec(bytes));
        let floats = floats.as_primitive::<Float32Type>();
        assert_eq!(floats.value(0), 1.5);
        assert!(floats.value(1).is_nan());
        let opaque = array(DataType::FixedBytes(3), Buffer::from_vec(vec![1u8, 2, 3, 4, 5, 6]));
        assert_eq!(opaque.as_fixed_size_binary().value(1), [4, 5, 6]);
        assert_eq!(array(DataType::U64, Buffer::from_vec(Vec::<u8>::new())).len(), 0);
    }
}
