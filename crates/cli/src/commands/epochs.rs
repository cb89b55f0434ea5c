//! Chooses the epochs that a command processes, and defines the handling of existing epochs.

use clap::ValueEnum;
use turbidite::query::EpochSelection;
use turbidite::store::{EpochSet, IfExists};

use crate::text;

/// The action for an epoch that exists.
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

/// Returns the selection of the epochs that a command was told to process, or of all.
pub(super) fn selection(wanted: Option<&EpochSet>) -> EpochSelection {
    wanted.map_or(EpochSelection::All, |set| set.clone().into())
}

/// Returns the scope of a result as text: `of epoch 200`, `of 8 epochs`.
pub(super) fn of_epochs(epochs: usize, wanted: Option<&EpochSet>) -> String {
    match (epochs, selection(wanted)) {
        (1, EpochSelection::List(labels)) => format!("of epoch {}", labels[0]),
        _ => format!("of {}", text::counted(epochs as u64, "epoch", "epochs")),
    }
}
