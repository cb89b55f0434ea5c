//! Columns as plain little-endian bytes: gathering rows from pages, and conversion to Arrow arrays.
//!
//! Values are copied but never interpreted, so one routine per width serves all types.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::types::{
    ArrowPrimitiveType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{ArrayRef, FixedSizeBinaryArray, PrimitiveArray};
use arrow_buffer::{Buffer, ScalarBuffer};

use crate::schema::DataType;

/// Copies the values of the rows in `ranges` to `out`. The ranges ascend. The first value of `values` belongs to row
/// `base`, and rows without a value are skipped.
pub(in crate::query) fn gather(values: &[u8], width: usize, base: u32, ranges: &[Range<u32>], out: &mut [u8]) {
    match width {
        1 => gather_fixed::<1>(values, base, ranges, out),
        2 => gather_fixed::<2>(values, base, ranges, out),
        4 => gather_fixed::<4>(values, base, ranges, out),
        8 => gather_fixed::<8>(values, base, ranges, out),
        _ => {
            let mut rest = out;
            for range in ranges {
                let range = within(range, base, values.len() / width);
                let found = &values[range.start * width..range.end * width];
                let (slots, later) = rest.split_at_mut(found.len());
                slots.copy_from_slice(found);
                rest = later;
            }
        }
    }
}

/// Returns the part of a row range that lies in the `count` rows from `base` on, counted from `base`.
fn within(range: &Range<u32>, base: u32, count: usize) -> Range<usize> {
    let end = (range.end.saturating_sub(base) as usize).min(count);
    (range.start.saturating_sub(base) as usize).min(end)..end
}

fn gather_fixed<const WIDTH: usize>(values: &[u8], base: u32, ranges: &[Range<u32>], out: &mut [u8]) {
    let (values, _) = values.as_chunks::<WIDTH>();
    let (mut rest, _) = out.as_chunks_mut::<WIDTH>();
    for range in ranges {
        let found = &values[within(range, base, values.len())];
        let (slots, later) = rest.split_at_mut(found.len());
        // Sparse matches consist of single rows. A copy of known size compiles to a move instead of a call.
        match (slots, found) {
            ([slot], [value]) => *slot = *value,
            (slots, found) => slots.copy_from_slice(found),
        }
        rest = later;
    }
}

/// Copies each value of `values` to its place in `out`. The places ascend.
pub(in crate::query) fn scatter(values: &[u8], width: usize, places: &[u32], out: &mut [u8]) {
    let (Some(first), Some(last)) = (places.first(), places.last()) else { return };
    let start = *first as usize;
    if (*last as usize).checked_sub(start) == Some(places.len() - 1) {
        out[start * width..(start + places.len()) * width].copy_from_slice(values);
        return;
    }
    match width {
        1 => scatter_fixed::<1>(values, places, out),
        2 => scatter_fixed::<2>(values, places, out),
        4 => scatter_fixed::<4>(values, places, out),
        8 => scatter_fixed::<8>(values, places, out),
        _ => {
            for (value, place) in values.chunks_exact(width).zip(places) {
                let start = *place as usize * width;
                out[start..start + width].copy_from_slice(value);
            }
        }
    }
}

fn scatter_fixed<const WIDTH: usize>(values: &[u8], places: &[u32], out: &mut [u8]) {
    let (values, _) = values.as_chunks::<WIDTH>();
    let (slots, _) = out.as_chunks_mut::<WIDTH>();
    for (value, place) in values.iter().zip(places) {
        slots[*place as usize] = *value;
    }
}

/// Returns the Arrow array over `bytes`, which contain whole values of the type. Copies only unaligned memory.
pub(in crate::query) fn array(data_type: DataType, bytes: Buffer) -> ArrayRef {
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
        // The schema bounds the width far below `i32::MAX`.
        DataType::FixedBytes(width) => Arc::new(FixedSizeBinaryArray::new(width as i32, bytes, None)),
    }
}

fn primitive<T: ArrowPrimitiveType>(mut buffer: Buffer) -> ArrayRef {
    let rows = buffer.len() / size_of::<T::Native>();
    if buffer.as_ptr().align_offset(align_of::<T::Native>()) != 0 {
        // Arrow aligns allocations to 64 bytes. The system allocator almost always aligns to 16, so copies are rare.
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
            let mut beyond = joined.clone();
            if let Some(first) = beyond.first_mut().filter(|first| first.start == base) {
                first.start -= 5;
            }
            if let Some(last) = beyond.last_mut().filter(|last| last.end == base + rows) {
                last.end += 5;
            }
            beyond.insert(0, base - 20..base - 10);
            for ranges in [ranges, joined, beyond] {
                let mut out = vec![0; expected.len()];
                gather(&values, width, base, &ranges, &mut out);
                prop_assert_eq!(&out, &expected);
            }
        }

        #[test]
        fn scattering_moves_each_value_to_its_place(
            width in 1usize..12,
            places in prop_oneof![
                prop::collection::btree_set(0u32..60, 0..60).prop_map(|places| places.into_iter().collect::<Vec<u32>>()),
                (0u32..60, 0u32..60).prop_map(|(start, end)| (start..end).collect()),
            ],
        ) {
            let values: Vec<u8> = (0..places.len() * width).map(|byte| byte as u8).collect();
            let mut out = vec![255; 60 * width];
            scatter(&values, width, &places, &mut out);
            let mut expected = vec![255; 60 * width];
            for (row, place) in places.iter().enumerate() {
                for byte in 0..width {
                    expected[*place as usize * width + byte] = values[row * width + byte];
                }
            }
            prop_assert_eq!(out, expected);
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
