//! The bytes: memtables become runs, runs become parts, parts are listed in manifests.

mod model;

pub use model::{ColumnSummary, EpochFigures, EpochManifest, PartEntry, PartId, RunEntry, RunKind};
