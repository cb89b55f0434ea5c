//! Converts LAMMPS rows, whose values are all doubles, to records of the configured types.
//!
//! Invariant: an integer is stored only if the double is exactly that integer.

use turbidite::DataType;
use turbidite_source::Field;
use turbidite_source::lammps::Step;

use crate::config::DatasetPlan;

/// 2^53. Doubles represent every integer up to this bound exactly.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Returns the index of each field's value within a row.
pub(crate) fn places(plan: &DatasetPlan, step: &Step) -> Result<Vec<usize>, String> {
    if step.names.is_empty() {
        // Old releases write no column names, so the configuration must list all columns in order.
        if step.values != plan.fields.len() {
            return Err(format!(
                "has {} values per atom, but the configuration has {} fields",
                step.values,
                plan.fields.len()
            ));
        }
        return Ok((0..step.values).collect());
    }
    let place = |field: &Field| {
        let name = &field.column.name;
        let place = step.names.iter().position(|other| other == name);
        place.ok_or_else(|| format!("has no column '{name}', only {}", step.names.join(" ")))
    };
    plan.fields.iter().map(place).collect()
}

/// Converts rows of `stride` bytes each. `rows` ends at the end of a row.
pub(crate) fn convert(
    plan: &DatasetPlan,
    places: &[usize],
    rows: &[u8],
    stride: usize,
    records: &mut Vec<u8>,
) -> Result<(), String> {
    records.clear();
    for row in rows.chunks_exact(stride) {
        for (field, place) in plan.fields.iter().zip(places) {
            // Each place is less than the number of values per row.
            let value = row[place * 8..].first_chunk().map_or(f64::NAN, |bytes| f64::from_le_bytes(*bytes));
            if !push(records, value, field.column.data_type) {
                let Field { column, .. } = field;
                return Err(format!(
                    "'{}' has the value {value:e}, which does not fit {}",
                    column.name, column.data_type
                ));
            }
        }
    }
    Ok(())
}

/// Appends a value as the given type. Returns whether the type can represent it.
fn push(records: &mut Vec<u8>, value: f64, data_type: DataType) -> bool {
    macro_rules! whole {
        ($type:ty) => {{
            let whole = value as $type;
            records.extend_from_slice(&whole.to_le_bytes());
            whole as f64 == value && value.abs() <= EXACT
        }};
    }
    match data_type {
        DataType::I8 => whole!(i8),
        DataType::I16 => whole!(i16),
        DataType::I32 => whole!(i32),
        DataType::I64 => whole!(i64),
        DataType::U8 => whole!(u8),
        DataType::U16 => whole!(u16),
        DataType::U32 => whole!(u32),
        DataType::U64 => whole!(u64),
        DataType::F32 => {
            records.extend_from_slice(&(value as f32).to_le_bytes());
            true
        }
        DataType::F64 => {
            records.extend_from_slice(&value.to_le_bytes());
            true
        }
        // The configuration refuses this type.
        DataType::FixedBytes(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_stored_exactly_or_not_at_all() {
        let mut records = Vec::new();
        let mut can = |value: f64, data_type: DataType| push(&mut records, value, data_type);
        for (value, data_type) in [
            (255.0, DataType::U8),
            (-128.0, DataType::I8),
            (-0.0, DataType::U64),
            (EXACT, DataType::U64),
            (-EXACT, DataType::I64),
            (4_294_967_295.0, DataType::U32),
            (1.5, DataType::F32),
            (f64::NAN, DataType::F64),
        ] {
            assert!(can(value, data_type), "{value} {data_type}");
        }
        for (value, data_type) in [
            (256.0, DataType::U8),
            (-1.0, DataType::U8),
            (-129.0, DataType::I8),
            (0.5, DataType::I64),
            (f64::NAN, DataType::I32),
            (f64::INFINITY, DataType::U64),
            (9_223_372_036_854_775_808.0, DataType::I64),
            (18_446_744_073_709_551_616.0, DataType::U64),
        ] {
            assert!(!can(value, data_type), "{value} {data_type}");
        }
    }
}
