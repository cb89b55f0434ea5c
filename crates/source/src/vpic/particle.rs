//! The fields of a particle in a dump.

use turbidite::{Column, DataType};

use crate::field::Field;

/// Size of a particle as defined by VPIC, in bytes.
pub(super) const PARTICLE_BYTES: usize = 32;

/// Returns the fields of a particle as defined by VPIC.
pub fn particle_fields() -> Vec<Field> {
    let column = |(index, name): (usize, &str)| {
        let data_type = if name == "i" { DataType::I32 } else { DataType::F32 };
        let column = Column::new(name, data_type);
        let column = if name.starts_with('u') { column.with_unit("mc") } else { column };
        Field { column, offset: 4 * index }
    };
    ["dx", "dy", "dz", "i", "ux", "uy", "uz", "w"].into_iter().enumerate().map(column).collect()
}
