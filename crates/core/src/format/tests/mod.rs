//! Tests whole parts and manifests. Unit tests of their components are in the modules of the components.

mod corruption;
mod golden;
mod golden_bitmap;
mod golden_hash;
mod manifest;
mod round_trip;
mod seals;
mod weighted_levels;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use uuid::Uuid;

use super::{
    EncodeBuffers, Memtable, PartEntry, PartId, PartIdentity, PartOptions, PartReader, PartWriter, RowGroupEntry,
    RunContext, RunKind,
};
use crate::schema::{Column, DataType, Schema};
use crate::storage::{MemoryStorage, Storage, read_all};

pub(super) const ALL_TYPES: [DataType; 12] = [
    DataType::I8,
    DataType::I16,
    DataType::I32,
    DataType::I64,
    DataType::U8,
    DataType::U16,
    DataType::U32,
    DataType::U64,
    DataType::F32,
    DataType::F64,
    DataType::FixedBytes(5),
    DataType::FixedBytes(600),
];

pub(super) fn identity() -> PartIdentity {
    let (dataset, commit) = (Uuid::from_u128(0xda7a), Uuid::from_u128(0xc0_3317));
    PartIdentity { dataset, commit, epoch: 200 }
}

pub(super) fn context(run: u32) -> RunContext {
    RunContext { run, kind: RunKind::Regular, table_version: 3, bounds: None }
}

/// A part in memory, with its entries in the manifest.
pub(super) struct Written {
    pub(super) storage: Arc<MemoryStorage>,
    pub(super) path: PathBuf,
    pub(super) schema: Arc<Schema>,
    pub(super) entry: PartEntry,
    pub(super) runs: Vec<RowGroupEntry>,
}

impl Written {
    pub(super) fn open(&self) -> crate::Result<PartReader> {
        PartReader::open(&*self.storage, &self.path, &self.entry, identity().commit, Arc::clone(&self.schema))
    }

    pub(super) fn content(&self) -> Vec<u8> {
        read_all(&*self.storage, &self.path, u64::MAX).unwrap()
    }

    /// Replaces the content of the part.
    pub(super) fn put(&self, content: &[u8]) {
        self.storage.remove_file(&self.path).unwrap();
        self.storage.create(&self.path).unwrap().write_at(0, content).unwrap();
    }
}

/// Writes one run per element of `runs`. The second field of an element contains stored rows.
pub(super) fn write_part(schema: &Arc<Schema>, options: PartOptions, runs: &[(RunContext, Vec<u8>)]) -> Written {
    let storage = Arc::new(MemoryStorage::new());
    let part = PartId { rank: 7, roll: 0 };
    let directory = Path::new("/part");
    storage.create_dir_all(directory).unwrap();
    let mut writer =
        PartWriter::create(Arc::clone(&storage) as _, directory, part, Arc::clone(schema), options, identity())
            .unwrap();
    let mut buffers = EncodeBuffers::new();
    let mut entries = Vec::new();
    for (context, rows) in runs {
        let mut table = Memtable::new(Arc::clone(schema), rows.len());
        table.push(rows);
        entries.extend(writer.append_run_with(&table, *context, &mut buffers).unwrap());
    }
    let path = writer.path().to_owned();
    let entry = writer.finish().unwrap();
    Written { storage, path, schema: Arc::clone(schema), entry, runs: entries }
}

/// A random number generator with a seed (xorshift), so that failures are reproducible.
pub(super) struct Noise(pub(super) u64);

impl Noise {
    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Returns random rows. Floats are moderate numbers, some zeros of both signs, infinities, and NaN in columns where
/// `nan_in` allows it.
pub(super) fn random_rows(schema: &Schema, count: usize, noise: &mut Noise, nan_in: impl Fn(usize) -> bool) -> Vec<u8> {
    let mut rows = Vec::with_capacity(count * schema.row_bytes());
    for _ in 0..count {
        for (index, column) in schema.columns().iter().enumerate() {
            let bits = noise.next();
            let special = [0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN][(bits >> 60) as usize % 5];
            let number = match (bits >> 40) % 23 {
                0 if !special.is_nan() || nan_in(index) => special,
                _ => (bits as i32 as f64) / 1e6,
            };
            match column.data_type {
                DataType::F32 => rows.extend_from_slice(&(number as f32).to_le_bytes()),
                DataType::F64 => rows.extend_from_slice(&number.to_le_bytes()),
                DataType::FixedBytes(width) => {
                    rows.extend((0..width as usize).map(|byte| (bits >> (byte % 7)) as u8));
                }
                narrow => rows.extend_from_slice(&bits.to_le_bytes()[..narrow.width()]),
            }
        }
    }
    rows
}

/// Returns the rows in key order, by a stable sort of whole rows.
pub(super) fn plainly_sorted(schema: &Schema, rows: &[u8]) -> Vec<u8> {
    let key = schema.offset(schema.key_index());
    let mut sorted: Vec<&[u8]> = rows.chunks(schema.row_bytes()).collect();
    sorted.sort_by_key(|row| schema.key_order().ordinal(&row[key..]));
    sorted.concat()
}

/// Returns the packed values of one column.
pub(super) fn column_of(schema: &Schema, rows: &[u8], column: usize) -> Vec<u8> {
    let (offset, width) = (schema.offset(column), schema.columns()[column].data_type.width());
    rows.chunks(schema.row_bytes()).flat_map(|row| &row[offset..offset + width]).copied().collect()
}

pub(super) fn schema_of(types: &[DataType], key: usize) -> Arc<Schema> {
    let columns: Vec<Column> =
        types.iter().enumerate().map(|(index, data_type)| Column::new(format!("c{index}"), *data_type)).collect();
    Arc::new(Schema::new(columns, &format!("c{key}")).unwrap())
}
