//! What rank 0 tells all ranks when a session begins.

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorClass, Refusal, Result};
use crate::shuffle::MessageError;

/// Rank 0's words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Announcement {
    /// The dataset is open; its dataset.json, and how many ranks receive.
    Dataset { descriptor: Vec<u8>, receivers: u32 },
    /// An epoch is being written.
    Epoch { epoch: u64, commit: [u8; 16] },
    /// The epoch exists and is left as it is.
    Skipped { epoch: u64 },
    /// These epochs were removed.
    Truncated { epochs: Vec<u64> },
    /// Rank 0 could not do it.
    Refused { class: ErrorClass, refusal: Option<Refusal>, cause: String },
}

impl Announcement {
    pub(super) fn refused(error: &Error) -> Self {
        Self::Refused { class: error.class(), refusal: error.refusal(), cause: error.cause() }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        // Numbers and text: there is nothing JSON could refuse.
        serde_json::to_vec(self).unwrap_or_default()
    }

    pub(super) fn decode(rank: u32, words: &[u8]) -> Result<Self> {
        serde_json::from_slice(words)
            .map_err(|_| Error::Message { rank, source: MessageError::Field { field: "announcement" } })
    }
}
