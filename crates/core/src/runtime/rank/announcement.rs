//! The announcement of rank 0 to all ranks when a session begins.

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorClass, Refusal, Result};
use crate::shuffle::MessageError;

/// An announcement of rank 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Announcement {
    /// The dataset is open; its dataset.json, and the number of ranks that receive.
    Dataset { descriptor: Vec<u8>, receivers: u32 },
    /// An epoch is being written.
    Epoch { epoch: u64, commit: [u8; 16] },
    /// The epoch exists and is left unchanged.
    Skipped { epoch: u64 },
    /// These epochs were removed.
    Truncated { epochs: Vec<u64> },
    /// The operation failed on rank 0.
    Refused { class: ErrorClass, refusal: Option<Refusal>, cause: String },
}

impl Announcement {
    pub(super) fn refused(error: &Error) -> Self {
        Self::Refused { class: error.class(), refusal: error.refusal(), cause: error.cause() }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        // Numbers and text always have a JSON form.
        serde_json::to_vec(self).unwrap_or_default()
    }

    pub(super) fn decode(rank: u32, bytes: &[u8]) -> Result<Self> {
        serde_json::from_slice(bytes)
            .map_err(|_| Error::Message { rank, source: MessageError::Field { field: "announcement" } })
    }
}
