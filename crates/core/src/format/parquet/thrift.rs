//! Encodes and decodes Thrift's compact protocol, as far as Parquet's metadata requires.
//!
//! The writer emits fields in the order of the calls. The reader visits requested fields and skips all others. It
//! borrows from the input, limits nesting, and never allocates by a length found in the input. Invalid input therefore
//! leads to [`Malformed`] at worst.

/// Maximum nesting depth that the reader accepts. Parquet's structures have fewer than ten levels.
const MAX_DEPTH: u32 = 32;

const BOOLEAN_TRUE: u8 = 1;
const BOOLEAN_FALSE: u8 = 2;
const BYTE: u8 = 3;
const I16: u8 = 4;
const I32: u8 = 5;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const SET: u8 = 10;
const MAP: u8 = 11;
pub(in crate::format) const STRUCT: u8 = 12;

/// The error for bytes that are not the expected Thrift structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::format) struct Malformed(pub(in crate::format) &'static str);

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

/// A writer that appends Thrift structures to a byte vector. The top level is a struct, which [`Writer::end`] closes.
pub(in crate::format) struct Writer<'a> {
    out: &'a mut Vec<u8>,
    /// Number of the last field written in each open struct.
    last: Vec<i16>,
}

impl<'a> Writer<'a> {
    /// Begins a struct at the end of `out`.
    pub(in crate::format) fn new(out: &'a mut Vec<u8>) -> Self {
        let mut last = Vec::with_capacity(8);
        last.push(0);
        Self { out, last }
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.out.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.out.push(value as u8);
    }

    fn zigzag(&mut self, value: i64) {
        self.varint(((value << 1) ^ (value >> 63)) as u64);
    }

    fn field(&mut self, id: i16, kind: u8) {
        let last = self.last.last_mut().map_or(0, |last| std::mem::replace(last, id));
        match id - last {
            delta @ 1..=15 => self.out.push((delta as u8) << 4 | kind),
            _ => {
                self.out.push(kind);
                self.zigzag(i64::from(id));
            }
        }
    }

    pub(in crate::format) fn bool(&mut self, id: i16, value: bool) {
        self.field(id, if value { BOOLEAN_TRUE } else { BOOLEAN_FALSE });
    }

    pub(in crate::format) fn i8(&mut self, id: i16, value: i8) {
        self.field(id, BYTE);
        self.out.push(value as u8);
    }

    pub(in crate::format) fn i16(&mut self, id: i16, value: i16) {
        self.field(id, I16);
        self.zigzag(i64::from(value));
    }

    pub(in crate::format) fn i32(&mut self, id: i16, value: i32) {
        self.field(id, I32);
        self.zigzag(i64::from(value));
    }

    /// Writes a field like [`Writer::i32`], but always in five bytes, the maximum length of a 32-bit varint.
    pub(in crate::format) fn i32_padded(&mut self, id: i16, value: i32) {
        self.field(id, I32);
        let value = ((value << 1) ^ (value >> 31)) as u32;
        self.out.extend([0, 7, 14, 21].map(|shift| (value >> shift) as u8 | 0x80));
        self.out.push((value >> 28) as u8);
    }

    pub(in crate::format) fn i64(&mut self, id: i16, value: i64) {
        self.field(id, I64);
        self.zigzag(value);
    }

    pub(in crate::format) fn binary(&mut self, id: i16, value: &[u8]) {
        self.field(id, BINARY);
        self.raw_binary(value);
    }

    fn raw_binary(&mut self, value: &[u8]) {
        self.varint(value.len() as u64);
        self.out.extend_from_slice(value);
    }

    /// Writes a struct as a field of the open struct.
    pub(in crate::format) fn structure(&mut self, id: i16, content: impl FnOnce(&mut Self)) {
        self.field(id, STRUCT);
        self.element(content);
    }

    fn element(&mut self, content: impl FnOnce(&mut Self)) {
        self.last.push(0);
        content(self);
        self.last.pop();
        self.out.push(0);
    }

    fn list(&mut self, id: i16, kind: u8, len: usize) {
        self.field(id, LIST);
        if len < 15 {
            self.out.push((len as u8) << 4 | kind);
        } else {
            self.out.push(0xf0 | kind);
            self.varint(len as u64);
        }
    }

    /// Writes a list of structs, one per item.
    pub(in crate::format) fn structures<T>(
        &mut self,
        id: i16,
        items: impl ExactSizeIterator<Item = T>,
        mut content: impl FnMut(&mut Self, T),
    ) {
        self.list(id, STRUCT, items.len());
        for item in items {
            self.element(|writer| content(writer, item));
        }
    }

    pub(in crate::format) fn binaries<T: AsRef<[u8]>>(&mut self, id: i16, items: impl ExactSizeIterator<Item = T>) {
        self.list(id, BINARY, items.len());
        for item in items {
            self.raw_binary(item.as_ref());
        }
    }

    pub(in crate::format) fn i32s(&mut self, id: i16, items: &[i32]) {
        self.list(id, I32, items.len());
        for item in items {
            self.zigzag(i64::from(*item));
        }
    }

    /// Writes a list of `len` zeros of type i64.
    pub(in crate::format) fn zeros(&mut self, id: i16, len: usize) {
        self.list(id, I64, len);
        self.out.resize(self.out.len() + len, 0);
    }

    /// Writes a list of `len` booleans, all false.
    pub(in crate::format) fn falses(&mut self, id: i16, len: usize) {
        self.list(id, BOOLEAN_TRUE, len);
        self.out.resize(self.out.len() + len, BOOLEAN_FALSE);
    }

    /// Closes the top-level struct.
    pub(in crate::format) fn end(self) {
        self.out.push(0);
    }
}

/// A field of a struct: its number and type. Its value has not been read.
#[derive(Debug, Clone, Copy)]
pub(in crate::format) struct Field {
    /// The field's number.
    pub(in crate::format) id: i16,
    kind: u8,
}

/// A reader that decodes consecutive structs in a byte slice.
#[derive(Debug, Clone)]
pub(in crate::format) struct Reader<'a> {
    bytes: &'a [u8],
    position: usize,
    depth: u32,
}

impl<'a> Reader<'a> {
    /// Creates a reader at the start of `bytes`.
    pub(in crate::format) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0, depth: 0 }
    }

    /// Returns the number of bytes read so far.
    pub(in crate::format) fn position(&self) -> usize {
        self.position
    }

    fn byte(&mut self) -> Result<u8, Malformed> {
        let byte = *self.bytes.get(self.position).ok_or(Malformed("it is truncated"))?;
        self.position += 1;
        Ok(byte)
    }

    fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Malformed("a number is too long"))
    }

    fn zigzag(&mut self) -> Result<i64, Malformed> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// Visits the fields of a struct. For each field, `visit` either reads the value and returns true, or returns false
    /// to skip the field.
    pub(in crate::format) fn structure(
        &mut self,
        mut visit: impl FnMut(&mut Self, Field) -> Result<bool, Malformed>,
    ) -> Result<(), Malformed> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Malformed("it nests too deeply"));
        }
        let mut last = 0i16;
        loop {
            let head = self.byte()?;
            if head == 0 {
                break;
            }
            let id = match head >> 4 {
                0 => i16::try_from(self.zigzag()?).map_err(|_| Malformed("a field number is out of range"))?,
                delta => last.checked_add(i16::from(delta)).ok_or(Malformed("a field number is out of range"))?,
            };
            last = id;
            let field = Field { id, kind: head & 0x0f };
            if !visit(self, field)? {
                self.skip(field.kind, false)?;
            }
        }
        self.depth -= 1;
        Ok(())
    }

    /// Reads the value of an integer field of any width.
    pub(in crate::format) fn integer(&mut self, field: Field) -> Result<i64, Malformed> {
        match field.kind {
            BYTE => Ok(i64::from(self.byte()? as i8)),
            I16 | I32 | I64 => self.zigzag(),
            _ => Err(Malformed("a field is not a number")),
        }
    }

    /// Reads the value of a binary or string field.
    pub(in crate::format) fn binary(&mut self, field: Field) -> Result<&'a [u8], Malformed> {
        if field.kind != BINARY {
            return Err(Malformed("a field is not a string"));
        }
        self.raw_binary()
    }

    fn raw_binary(&mut self) -> Result<&'a [u8], Malformed> {
        let len = usize::try_from(self.varint()?).map_err(|_| Malformed("a string is too long"))?;
        let end = self.position.checked_add(len).ok_or(Malformed("a string is too long"))?;
        let value = self.bytes.get(self.position..end).ok_or(Malformed("it is truncated"))?;
        self.position = end;
        Ok(value)
    }

    /// Visits the fields of a struct field, like [`Reader::structure`].
    pub(in crate::format) fn structure_field(
        &mut self,
        field: Field,
        visit: impl FnMut(&mut Self, Field) -> Result<bool, Malformed>,
    ) -> Result<(), Malformed> {
        if field.kind != STRUCT {
            return Err(Malformed("a field is not a structure"));
        }
        self.structure(visit)
    }

    fn list_head(&mut self) -> Result<(u8, usize), Malformed> {
        let head = self.byte()?;
        let len = match head >> 4 {
            15 => usize::try_from(self.varint()?).map_err(|_| Malformed("a list is too long"))?,
            len => usize::from(len),
        };
        // An element takes at least one byte.
        if len > self.bytes.len() - self.position {
            return Err(Malformed("a list is too long"));
        }
        Ok((head & 0x0f, len))
    }

    fn list_of(&mut self, field: Field, kind: u8) -> Result<usize, Malformed> {
        if field.kind != LIST {
            return Err(Malformed("a field is not a list"));
        }
        match self.list_head()? {
            (found, len) if found == kind || len == 0 => Ok(len),
            _ => Err(Malformed("a list has elements of another type")),
        }
    }

    /// Calls `element` for each struct of a list field. `element` must read the struct.
    pub(in crate::format) fn structures(
        &mut self,
        field: Field,
        mut element: impl FnMut(&mut Self) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        for _ in 0..self.list_of(field, STRUCT)? {
            element(self)?;
        }
        Ok(())
    }

    /// Calls `element` with each string of a list field.
    pub(in crate::format) fn binaries(
        &mut self,
        field: Field,
        mut element: impl FnMut(&'a [u8]),
    ) -> Result<(), Malformed> {
        for _ in 0..self.list_of(field, BINARY)? {
            element(self.raw_binary()?);
        }
        Ok(())
    }

    fn skip(&mut self, kind: u8, in_list: bool) -> Result<(), Malformed> {
        match kind {
            BOOLEAN_TRUE | BOOLEAN_FALSE if in_list => self.byte().map(|_| ()),
            BOOLEAN_TRUE | BOOLEAN_FALSE => Ok(()),
            BYTE => self.byte().map(|_| ()),
            I16 | I32 | I64 => self.varint().map(|_| ()),
            DOUBLE => {
                let end = self.position + 8;
                if end > self.bytes.len() {
                    return Err(Malformed("it is truncated"));
                }
                self.position = end;
                Ok(())
            }
            BINARY => self.raw_binary().map(|_| ()),
            LIST | SET => {
                self.depth += 1;
                if self.depth > MAX_DEPTH {
                    return Err(Malformed("it nests too deeply"));
                }
                let (kind, len) = self.list_head()?;
                (0..len).try_for_each(|_| self.skip(kind, true))?;
                self.depth -= 1;
                Ok(())
            }
            STRUCT => self.structure(|_, _| Ok(false)),
            MAP => Err(Malformed("it holds a map, which Parquet does not use")),
            _ => Err(Malformed("a field has an unknown type")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_known_struct_has_the_bytes_of_the_specification() {
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out);
        writer.i32(1, -1);
        writer.binary(3, b"ab");
        writer.bool(20, true);
        writer.structure(21, |inner| inner.i32s(1, &[0, 3]));
        writer.end();
        assert_eq!(
            out,
            [0x15, 0x01, 0x28, 2, b'a', b'b', 0x01, 40, 0x1c, 0x19, 0x25, 0, 6, 0, 0],
            "field header, zigzag, long field number, nested struct and list"
        );
    }

    #[test]
    fn unknown_fields_are_skipped() {
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out);
        writer.structures(1, 0..20u16, |inner, value| inner.i64(2, i64::from(value)));
        writer.falses(2, 3);
        writer.zeros(3, 3);
        writer.i8(4, -5);
        writer.binaries(5, ["x", "yz"].iter());
        writer.bool(6, false);
        writer.i64(7, i64::MIN);
        writer.end();
        let mut reader = Reader::new(&out);
        let mut found = None;
        reader
            .structure(|reader, field| {
                if field.id == 7 {
                    found = Some(reader.integer(field)?);
                }
                Ok(field.id == 7)
            })
            .unwrap();
        assert_eq!(found, Some(i64::MIN));
        assert_eq!(reader.position(), out.len());
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_refused_or_read_and_nothing_else(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut reader = Reader::new(&bytes);
            let _ = reader.structure(|_, _| Ok(false));
            prop_assert!(reader.position() <= bytes.len());
        }
    }

    #[test]
    fn endless_nesting_is_refused() {
        assert!(Reader::new(&[0x1c; 10_000]).structure(|_, _| Ok(false)).is_err());
        assert!(Reader::new(&[0x19; 10_000]).structure(|_, _| Ok(false)).is_err());
    }
}
