//! Interprets the fuzzer's bytes as a sequence of choices. Every choice after the last byte is 0, so every prefix of a
//! script is also a script.

/// The remaining bytes of the input.
#[derive(Debug, Clone)]
pub struct Script<'a> {
    rest: &'a [u8],
}

impl<'a> Script<'a> {
    /// Creates a script that begins with the first of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Returns whether no choice remains.
    pub fn is_over(&self) -> bool {
        self.rest.is_empty()
    }

    /// Returns the number of remaining bytes.
    pub fn left(&self) -> usize {
        self.rest.len()
    }

    fn number(&mut self, bytes: usize) -> u64 {
        let (head, rest) = self.rest.split_at(bytes.min(self.rest.len()));
        self.rest = rest;
        head.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    /// Consumes one byte.
    pub fn byte(&mut self) -> u8 {
        self.number(1) as u8
    }

    /// Consumes two bytes.
    pub fn short(&mut self) -> u16 {
        self.number(2) as u16
    }

    /// Consumes four bytes.
    pub fn word(&mut self) -> u32 {
        self.number(4) as u32
    }

    /// Consumes eight bytes.
    pub fn long(&mut self) -> u64 {
        self.number(8)
    }

    /// Returns an index less than `count`, or 0 if `count` is 0.
    pub fn one_of(&mut self, count: usize) -> usize {
        usize::from(self.short()) % count.max(1)
    }

    /// Consumes a length of one byte and that many bytes, or fewer at the end.
    pub fn chunk(&mut self) -> &'a [u8] {
        let length = usize::from(self.byte()).min(self.rest.len());
        let (head, rest) = self.rest.split_at(length);
        self.rest = rest;
        head
    }

    /// Consumes a length of two bytes and that many bytes, or fewer at the end.
    pub fn long_chunk(&mut self) -> &'a [u8] {
        let length = usize::from(self.short()).min(self.rest.len());
        let (head, rest) = self.rest.split_at(length);
        self.rest = rest;
        head
    }

    /// Returns all remaining bytes.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }
}
