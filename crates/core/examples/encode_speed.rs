//! How fast one core sorts and encodes memtables, and how fast they are written.
//!
//! `encode_speed [FOLDER] [MEMTABLES] [ROW_GROUPS] [PAGE_ROWS] [WRITE_KIB] [MEMTABLE_KIB] [KEY]`. Without a folder (or with `-`)
//! nothing is written, so that the figures are those of sorting and encoding alone. Rows are 36 bytes: seven f32, one
//! of them the key, and one i64, as a particle dump with a derived energy and a tag has.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use turbidite::format::{EncodeBuffers, Memtable, PartId, PartIdentity, PartOptions, PartWriter, RunContext, RunKind};
use turbidite::storage::{DirEntry, FileKind, FileSystem, ReadableFile, Storage, WritableFile};
use turbidite::{Column, DataType, Schema};

/// Files that take everything and keep nothing.
#[derive(Debug)]
struct Nowhere;

impl WritableFile for Nowhere {
    fn write_at(&mut self, _: u64, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn truncate(&mut self, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Storage for Nowhere {
    fn create(&self, _: &Path) -> io::Result<Box<dyn WritableFile>> {
        Ok(Box::new(Self))
    }

    fn open(&self, _: &Path) -> io::Result<Arc<dyn ReadableFile>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn kind(&self, _: &Path) -> io::Result<Option<FileKind>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn list(&self, _: &Path) -> io::Result<Vec<DirEntry>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn create_dir_all(&self, _: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn exchange(&self, _: &Path, _: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn remove_file(&self, _: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn remove_dir_all(&self, _: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Seconds this thread has run, from the scheduler's own account: other processes do not show in it.
fn cpu_s() -> f64 {
    let account = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    account.split(' ').next().and_then(|text| text.parse::<f64>().ok()).unwrap_or(f64::NAN) / 1e9
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, default: usize| arguments.get(index).map_or(Ok(default), |text| text.parse());
    let folder = arguments.first().map_or("-", String::as_str);
    let (memtables, memtable_kib) = (number(1, 32)?, number(5, 8192)?);
    let options = PartOptions {
        row_groups_per_run: number(2, 4)? as u32,
        page_rows: number(3, 4096)? as u32,
        write_bytes: number(4, 2048)? << 10,
    };
    let names = ["x", "y", "z", "ux", "uy", "uz", "energy"];
    let mut columns: Vec<Column> = names.iter().map(|name| Column::new(*name, DataType::F32)).collect();
    columns.push(Column::new("id", DataType::I64));
    let key = arguments.get(6).map_or("energy", String::as_str);
    let schema = Arc::new(Schema::new(columns, key)?);
    let mut table = Memtable::new(Arc::clone(&schema), memtable_kib << 10);
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut uniform = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 24) as f32
    };
    for row in 0..table.remaining_rows() {
        let momentum: [f32; 3] = std::array::from_fn(|_| (0..4).map(|_| uniform() - 0.5).sum());
        let energy = (1.0 + momentum.iter().map(|u| u * u).sum::<f32>()).sqrt() - 1.0;
        let place: [f32; 3] = std::array::from_fn(|_| uniform());
        let mut bytes: Vec<u8> = place.iter().chain(&momentum).flat_map(|value| value.to_le_bytes()).collect();
        bytes.extend_from_slice(&energy.to_le_bytes());
        bytes.extend_from_slice(&(row as i64).to_le_bytes());
        table.push(&bytes);
    }
    let storage: Arc<dyn Storage> = if folder == "-" { Arc::new(Nowhere) } else { Arc::new(FileSystem::new()) };
    let part = PartId { rank: 0, roll: 0 };
    let identity = PartIdentity { dataset: uuid::Uuid::new_v4(), commit: uuid::Uuid::new_v4(), epoch: 0 };
    let (begun, begun_cpu_s) = (Instant::now(), cpu_s());
    let mut writer = PartWriter::create(storage, &PathBuf::from(folder), part, Arc::clone(&schema), options, identity)?;
    let mut buffers = EncodeBuffers::new();
    for run in 0..memtables as u32 {
        let context = RunContext { run, kind: RunKind::Regular, table_version: 0, bounds: None };
        writer.append_run_with(&table, context, &mut buffers)?;
    }
    let (entry, figures) = writer.finish_with_figures()?;
    let (wall_s, used_s) = (begun.elapsed().as_secs_f64(), cpu_s() - begun_cpu_s);
    let megabytes = (memtables * table.bytes()) as f64 / 1e6;
    let rate = |seconds: f64| megabytes / seconds;
    println!(
        "{megabytes:.0} MB: {:.0} MB/s, {:.0} MB per CPU-second; by the clock: sort {:.0}, encode {:.0}, both {:.0}, write {:.0} MB/s, sync {:.3} s; amplification {:.5}, tail {} bytes",
        rate(wall_s),
        rate(used_s),
        rate(figures.sort_s),
        rate(figures.encode_s),
        rate(figures.sort_s + figures.encode_s),
        rate(figures.write_s),
        figures.sync_s,
        entry.bytes as f64 / (memtables * table.bytes()) as f64,
        entry.bytes - entry.footer_offset
    );
    Ok(())
}
