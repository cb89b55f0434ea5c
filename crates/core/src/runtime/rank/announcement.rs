//! Rank 0's announcement to all ranks at the beginning of a session.

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorClass, Refusal, Result};
use crate::shuffle::MessageError;

/// Rank 0's announcement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Announcement {
    /// The dataset is open. Contains its dataset.json, the number of ranks that receive, and the indexes that are made.
    Dataset { descriptor: Vec<u8>, receivers: u32, indexes: Vec<String> },
    /// The epoch has begun. `indexed` is the commit of the records, if it is an epoch of an index.
    Epoch {
        epoch: u64,
        commit: [u8; 16],
        #[serde(default, skip_serializing_if = "Option::is_none")]
        indexed: Option<[u8; 16]>,
    },
    /// The epoch exists and remains unchanged.
    Skipped { epoch: u64 },
    /// Rank 0's part of a step.
    Step { text: String },
    /// These epochs were removed.
    Truncated { epochs: Vec<u64> },
    /// The operation failed on rank 0.
    Refused { class: ErrorClass, refusal: Option<Refusal>, cause: String },
}

impl Announcement {
    pub(super) fn refused(error: &Error) -> Self {
        Self::Refused { class: error.class(), refusal: error.refusal(), cause: error.cause() }
    }

    /// Returns the announcement, unless it is a refusal.
    ///
    /// # Errors
    /// [`Error::Refused`] with rank 0's cause.
    pub(super) fn accepted(self) -> Result<Self> {
        match self {
            Self::Refused { class, refusal, cause } => Err(Error::Refused { rank: 0, class, refusal, cause }),
            announced => Ok(announced),
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        // Numbers and text can always be encoded as JSON.
        serde_json::to_vec(self).unwrap_or_default()
    }

    pub(super) fn decode(rank: u32, bytes: &[u8]) -> Result<Self> {
        serde_json::from_slice(bytes)
            .map_err(|_| Error::Message { rank, source: MessageError::Field { field: "announcement" } })
    }
}
