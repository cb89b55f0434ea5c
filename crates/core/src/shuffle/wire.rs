//! Encodes and decodes little-endian fields of messages. Every length is checked before use.

/// An error in decoding a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// The message ends before its last field.
    #[error("a message is truncated")]
    Short,
    /// The message has bytes after its last field.
    #[error("a message has {surplus_bytes} bytes after its fields")]
    Long {
        /// Number of bytes after the last field.
        surplus_bytes: usize,
    },
    /// The message has an unknown kind.
    #[error("a message has an unknown kind, {kind}")]
    Kind {
        /// The first byte of the message.
        kind: u8,
    },
    /// A field is outside its valid range.
    #[error("a message has an invalid {field}")]
    Field {
        /// The name of the field.
        field: &'static str,
    },
    /// An internal inconsistency on this rank, caused by no message.
    #[error("{what}")]
    Internal {
        /// The violated invariant.
        what: &'static str,
    },
}

/// Appends fields to a message.
#[derive(Default)]
pub(super) struct FieldWriter {
    bytes: Vec<u8>,
}

impl FieldWriter {
    pub(super) fn u8(mut self, value: u8) -> Self {
        self.bytes.push(value);
        self
    }

    pub(super) fn u32(mut self, value: u32) -> Self {
        self.bytes.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(super) fn u64(mut self, value: u64) -> Self {
        self.bytes.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// Appends the number of entries that follow: one for each partition or rank, so fewer than 2^32. A larger number
    /// would not match its entries, and the receiver would refuse the message and fail the epoch.
    pub(super) fn count(self, entries: usize) -> Self {
        let count = u32::try_from(entries);
        debug_assert!(count.is_ok(), "a message with {entries} entries");
        self.u32(count.unwrap_or(u32::MAX))
    }

    /// Appends a length and `payload`. Every payload (batches, pivots, tables, one rank's entries) is far smaller than
    /// 4 GiB.
    pub(super) fn block(self, payload: &[u8]) -> Self {
        let mut next = self.u64(payload.len() as u64);
        next.bytes.extend_from_slice(payload);
        next
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

/// Reads the fields of a message in order.
pub(super) struct FieldReader<'a> {
    rest: &'a [u8],
}

impl<'a> FieldReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) fn bytes(&mut self, count: usize) -> Result<&'a [u8], MessageError> {
        let (head, rest) = self.rest.split_at_checked(count).ok_or(MessageError::Short)?;
        self.rest = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], MessageError> {
        let mut raw = [0; N];
        raw.copy_from_slice(self.bytes(N)?);
        Ok(raw)
    }

    pub(super) fn u8(&mut self) -> Result<u8, MessageError> {
        self.array::<1>().map(|raw| raw[0])
    }

    /// Reads a byte that is 0 or 1.
    pub(super) fn flag(&mut self) -> Result<bool, MessageError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(MessageError::Field { field: "flag" }),
        }
    }

    pub(super) fn u32(&mut self) -> Result<u32, MessageError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, MessageError> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn block(&mut self) -> Result<&'a [u8], MessageError> {
        let count = usize::try_from(self.u64()?).map_err(|_| MessageError::Short)?;
        self.bytes(count)
    }

    /// Consumes and returns all remaining bytes.
    pub(super) fn rest(self) -> &'a [u8] {
        self.rest
    }

    /// Checks that no bytes remain.
    pub(super) fn end(self) -> Result<(), MessageError> {
        if self.rest.is_empty() { Ok(()) } else { Err(MessageError::Long { surplus_bytes: self.rest.len() }) }
    }
}
