//! Chooses the epochs that a command processes, and defines the handling of existing epochs.

use std::path::Path;

use clap::ValueEnum;
use turbidite::Error;
use turbidite::query::Dataset;
use turbidite::store::{EpochRange, IfExists};

use crate::failure::Failure;
use crate::text;

/// What to do with an epoch that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Existing {
    /// Fail
    Error,
    /// Rewrite it; the old version stays readable until the commit
    Replace,
    /// Keep it and continue with the next one
    Skip,
}

impl From<Existing> for IfExists {
    fn from(existing: Existing) -> Self {
        match existing {
            Existing::Error => Self::Error,
            Existing::Replace => Self::Replace,
            Existing::Skip => Self::Skip,
        }
    }
}

/// Returns the epochs of a dataset within a range. A range of one epoch must exist.
pub(super) fn chosen_epochs(dataset: &Dataset, path: &Path, wanted: Option<EpochRange>) -> Result<Vec<u64>, Failure> {
    let wanted = wanted.unwrap_or(EpochRange::ALL);
    let chosen: Vec<u64> = dataset.epochs()?.into_iter().filter(|&epoch| wanted.contains(epoch)).collect();
    if chosen.is_empty() && wanted.first == wanted.last {
        return Err(Error::EpochMissing { epoch: wanted.first, path: path.to_owned() }.into());
    }
    Ok(chosen)
}

/// Returns the scope of a result as text: `of epoch 200`, `of 8 epochs`.
pub(super) fn of_epochs(epochs: usize, wanted: Option<EpochRange>) -> String {
    match (epochs, wanted) {
        (1, Some(one)) if one.first == one.last => format!("of epoch {one}"),
        _ => format!("of {}", text::counted(epochs as u64, "epoch", "epochs")),
    }
}
