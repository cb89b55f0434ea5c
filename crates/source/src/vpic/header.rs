//! Decodes the header of VPIC dumps, which has 115 bytes, and checks its fields.
//!
//! The header is little-endian and packed. It consists of the [`MARKS`], which are the same in every particle dump, and
//! of fields at the offsets below. The error for an invalid field states the file, the offset, the value and the
//! expected value.

use std::path::Path;

use turbidite::{Column, DataType};

use super::particle::PARTICLE_BYTES;
use crate::error::SourceError;
use crate::field::Field;

/// Length of the header.
pub const HEADER_BYTES: usize = 115;

/// Bytes that are the same in every particle dump.
#[derive(Debug)]
pub(super) struct Mark {
    pub(super) offset: usize,
    pub(super) bytes: &'static [u8],
    /// Name of the field.
    field: &'static str,
    /// Expected value, as text.
    expected: &'static str,
    /// Name and expected value in one phrase.
    pub(super) meaning: &'static str,
}

/// The marks: sizes of C types and byte-order marks, then the version of the header, the dump type and the number of
/// dimensions.
pub(super) const MARKS: [Mark; 12] = [
    mark(0, &[8], "the bits of a char", "8", "the number of bits of a char"),
    mark(1, &[2], "the size of a short", "2", "the size of a short"),
    mark(2, &[4], "the size of an int", "4", "the size of an int"),
    mark(3, &[4], "the size of a float", "4", "the size of a float"),
    mark(4, &[8], "the size of a double", "8", "the size of a double"),
    mark(5, &0xcafe_u16.to_le_bytes(), "the short magic", "0xcafe", "the short 0xcafe"),
    mark(INT_MAGIC, &0xdead_beef_u32.to_le_bytes(), "the int magic", "0xdeadbeef", "the int 0xdeadbeef"),
    mark(FLOAT_MAGIC, &1f32.to_le_bytes(), "the float magic", "1", "the float 1"),
    mark(15, &1f64.to_le_bytes(), "the double magic", "1", "the double 1"),
    mark(23, &0i32.to_le_bytes(), "the header's version", "0", "the version 0"),
    mark(27, &3i32.to_le_bytes(), "the dump type", "3 (particles)", "the dump type 3 of particles"),
    mark(DIMENSIONS, &1i32.to_le_bytes(), "the number of dimensions", "1", "the number of dimensions, which is 1,"),
];

/// Index of the mark that is checked first, since it reveals the byte order.
pub(super) const SHORT_MAGIC: usize = 5;

/// Number of marks before the first field that differs between dumps.
const LEADING_MARKS: usize = 11;

const fn mark(
    offset: usize,
    bytes: &'static [u8],
    field: &'static str,
    expected: &'static str,
    meaning: &'static str,
) -> Mark {
    Mark { offset, bytes, field, expected, meaning }
}

// Offsets of the fields, in bytes.
const INT_MAGIC: usize = 7;
const FLOAT_MAGIC: usize = 11;
pub(super) const STEP: usize = 31;
const CELLS: usize = 35;
const GRID: usize = 47;
pub(super) const RANK: usize = 87;
const RANKS: usize = 91;
const SPECIES: usize = 95;
const CHARGE_MASS: usize = 99;
pub(super) const ELEMENT_BYTES: usize = 103;
const DIMENSIONS: usize = 107;
pub(super) const PARTICLES: usize = 111;

/// Names of the three constants in [`Header::cells`].
const CELLS_NAMES: [&str; 3] = ["nx", "ny", "nz"];

/// Names of the ten constants in [`Header::grid`].
const GRID_NAMES: [&str; 10] = ["dt", "dx", "dy", "dz", "x0", "y0", "z0", "cvac", "eps0", "damp"];

/// Names of a header's constants in derivations, in the order of [`Header::constants`].
pub(super) const CONSTANTS: &[&str] = &[
    "header.step",
    "header.nx",
    "header.ny",
    "header.nz",
    "header.dt",
    "header.dx",
    "header.dy",
    "header.dz",
    "header.x0",
    "header.y0",
    "header.z0",
    "header.cvac",
    "header.eps0",
    "header.damp",
    "header.rank",
    "header.ranks",
    "header.species",
    "header.q_m",
];

/// Returns the constants of a header and their offsets.
pub fn constants() -> Vec<Field> {
    // The numbers from the step to charge/mass are consecutive and have four bytes each.
    let is_float = |offset: usize| (GRID..RANK).contains(&offset) || offset == CHARGE_MASS;
    let places = CONSTANTS.iter().zip((STEP..).step_by(4));
    let field = |(name, offset): (&&str, usize)| {
        let data_type = if is_float(offset) { DataType::F32 } else { DataType::I32 };
        Field { column: Column::new(*name, data_type), offset }
    };
    places.map(field).collect()
}

/// The header of a particle dump.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Header {
    /// The step in which the dump was written.
    pub(super) step: i32,
    /// Number of cells of the rank's grid along x, y and z.
    pub(super) cells: [i32; 3],
    /// The values dt, dx, dy, dz, x0, y0, z0, cvac, eps0 and damp.
    pub(super) grid: [f32; 10],
    /// The rank that wrote the dump.
    pub(super) rank: i32,
    /// Number of ranks that wrote the step.
    pub(super) ranks: i32,
    /// VPIC's number of the species.
    pub(super) species: i32,
    /// Charge over mass.
    pub(super) charge_mass: f32,
    /// Bytes per particle.
    pub(super) element_bytes: i32,
    /// Number of particles that follow the header.
    pub(super) particles: i32,
}

impl Mark {
    /// Returns the header's bytes at the mark's offset.
    pub(super) fn found<'a>(&self, header: &'a [u8; HEADER_BYTES]) -> &'a [u8] {
        &header[self.offset..self.offset + self.bytes.len()]
    }

    /// Returns whether a header has the mark.
    pub(super) fn is_in(&self, header: &[u8; HEADER_BYTES]) -> bool {
        self.found(header) == self.bytes
    }

    /// Checks that a header has the mark. `path` appears in the error message.
    fn check(&self, path: &Path, header: &[u8; HEADER_BYTES]) -> Result<(), SourceError> {
        if self.is_in(header) {
            return Ok(());
        }
        Err(wrong(path, self.field, self.offset, self.shown(self.found(header)), self.expected))
    }

    /// Returns the bytes found at the mark's offset as text.
    fn shown(&self, found: &[u8]) -> String {
        match (found, self.offset) {
            (&[one], _) => one.to_string(),
            (&[low, high], _) => format!("{:#06x}", u16::from_le_bytes([low, high])),
            (&[a, b, c, d], INT_MAGIC) => format!("{:#010x}", u32::from_le_bytes([a, b, c, d])),
            (&[a, b, c, d], FLOAT_MAGIC) => f32::from_le_bytes([a, b, c, d]).to_string(),
            (&[a, b, c, d], _) => i32::from_le_bytes([a, b, c, d]).to_string(),
            _ => found.first_chunk().map_or(f64::NAN, |bytes| f64::from_le_bytes(*bytes)).to_string(),
        }
    }
}

/// Returns the error for an invalid field.
fn wrong(path: &Path, field: &'static str, offset: usize, found: String, expected: impl ToString) -> SourceError {
    SourceError::Field { path: path.to_owned(), field, offset: offset as u64, found, expected: expected.to_string() }
}

/// Checks that an integer satisfies a condition.
fn check_int(
    path: &Path,
    field: &'static str,
    (offset, value): (usize, i32),
    expected: impl ToString,
    fits: bool,
) -> Result<(), SourceError> {
    if fits { Ok(()) } else { Err(wrong(path, field, offset, value.to_string(), expected)) }
}

/// Checks that a float is finite.
fn check_finite(path: &Path, field: &'static str, offset: usize, value: f32) -> Result<(), SourceError> {
    if value.is_finite() { Ok(()) } else { Err(wrong(path, field, offset, value.to_string(), "a finite number")) }
}

impl Header {
    /// Decodes the fields of a header without checking them.
    pub(super) fn decode(bytes: &[u8; HEADER_BYTES]) -> Self {
        let word = |offset: usize| [bytes[offset], bytes[offset + 1], bytes[offset + 2], bytes[offset + 3]];
        let int = |offset: usize| i32::from_le_bytes(word(offset));
        let float = |offset: usize| f32::from_le_bytes(word(offset));
        Self {
            step: int(STEP),
            cells: std::array::from_fn(|index| int(CELLS + 4 * index)),
            grid: std::array::from_fn(|index| float(GRID + 4 * index)),
            rank: int(RANK),
            ranks: int(RANKS),
            species: int(SPECIES),
            charge_mass: float(CHARGE_MASS),
            element_bytes: int(ELEMENT_BYTES),
            particles: int(PARTICLES),
        }
    }

    /// Decodes and checks a header, in the order of its bytes. `path` appears in error messages.
    pub(super) fn parse(path: &Path, bytes: &[u8; HEADER_BYTES]) -> Result<Self, SourceError> {
        let header = Self::decode(bytes);
        let Self { step, cells, grid, rank, ranks, species, charge_mass, element_bytes, particles } = header;
        let (leading, trailing) = MARKS.split_at(LEADING_MARKS);
        leading.iter().try_for_each(|mark| mark.check(path, bytes))?;
        check_int(path, "the step", (STEP, step), "0 or more", step >= 0)?;
        for ((name, cells), offset) in CELLS_NAMES.into_iter().zip(cells).zip((CELLS..).step_by(4)) {
            check_int(path, name, (offset, cells), "1 or more", cells >= 1)?;
        }
        for ((name, value), offset) in GRID_NAMES.into_iter().zip(grid).zip((GRID..).step_by(4)) {
            check_finite(path, name, offset, value)?;
        }
        check_int(path, "the rank", (RANK, rank), "0 or more", rank >= 0)?;
        let more = format!("more than the rank, {rank}");
        check_int(path, "the number of ranks", (RANKS, ranks), more, ranks > rank)?;
        check_int(path, "the species id", (SPECIES, species), "0 or more", species >= 0)?;
        check_finite(path, "charge/mass", CHARGE_MASS, charge_mass)?;
        let whole = element_bytes >= PARTICLE_BYTES as i32;
        check_int(path, "the element size", (ELEMENT_BYTES, element_bytes), "32 or more", whole)?;
        trailing.iter().try_for_each(|mark| mark.check(path, bytes))?;
        check_int(path, "the number of particles", (PARTICLES, particles), "0 or more", particles >= 0)?;
        Ok(header)
    }

    /// Returns whether `bytes` begins like a particle dump.
    pub(super) fn begins_particle_dump(bytes: &[u8]) -> bool {
        let Some(header) = bytes.first_chunk() else { return false };
        MARKS[..LEADING_MARKS].iter().all(|mark| mark.is_in(header))
    }

    /// Returns the length that the file must have, in bytes.
    pub(super) fn file_bytes(&self) -> u64 {
        // Both factors are non-negative 32-bit integers, so the product fits u64.
        HEADER_BYTES as u64 + self.particles as u64 * self.element_bytes as u64
    }

    /// Checks the fields that must agree on all ranks of a step and species.
    pub(super) fn agrees_with(&self, path: &Path, other: &Self, other_path: &Path) -> Result<(), SourceError> {
        let differs = |field, offset, found: String, expected: String| SourceError::Field {
            path: path.to_owned(),
            field,
            offset,
            found,
            expected: format!("{expected} as in {}", other_path.display()),
        };
        for (index, name) in GRID_NAMES.iter().enumerate() {
            let is_origin = (4..7).contains(&index);
            if !is_origin && self.grid[index] != other.grid[index] {
                let offset = (GRID + 4 * index) as u64;
                return Err(differs(name, offset, self.grid[index].to_string(), other.grid[index].to_string()));
            }
        }
        let integers = [
            ("the number of ranks", RANKS, self.ranks, other.ranks),
            ("the species id", SPECIES, self.species, other.species),
            ("the element size", ELEMENT_BYTES, self.element_bytes, other.element_bytes),
        ];
        for (field, offset, found, expected) in integers {
            if found != expected {
                return Err(differs(field, offset as u64, found.to_string(), expected.to_string()));
            }
        }
        if self.charge_mass != other.charge_mass {
            return Err(differs(
                "charge/mass",
                CHARGE_MASS as u64,
                self.charge_mass.to_string(),
                other.charge_mass.to_string(),
            ));
        }
        Ok(())
    }

    /// Returns the values of [`CONSTANTS`].
    pub(super) fn constants(&self) -> Box<[f64]> {
        let mut values = vec![f64::from(self.step)];
        values.extend(self.cells.map(f64::from));
        values.extend(self.grid.map(f64::from));
        values.extend([self.rank, self.ranks, self.species].map(f64::from));
        values.push(f64::from(self.charge_mass));
        values.into_boxed_slice()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns the header of a dump, encoded by hand.
    pub(in crate::vpic) fn sample(step: i32, rank: i32, ranks: i32, element_bytes: i32, particles: i32) -> Vec<u8> {
        let mut bytes = vec![8, 2, 4, 4, 8];
        bytes.extend(0xcafe_u16.to_le_bytes());
        bytes.extend(0xdead_beef_u32.to_le_bytes());
        bytes.extend(1f32.to_le_bytes());
        bytes.extend(1f64.to_le_bytes());
        for value in [0, 3, step, 128, 1, 64] {
            bytes.extend(i32::to_le_bytes(value));
        }
        for value in [0.2f32, 0.5, 1.0, 0.5, 64.0 * rank as f32, -0.5, -32.0, 1.0, 1.0, 0.0] {
            bytes.extend(value.to_le_bytes());
        }
        for value in [rank, ranks, 0] {
            bytes.extend(i32::to_le_bytes(value));
        }
        bytes.extend((-1f32).to_le_bytes());
        for value in [element_bytes, 1, particles] {
            bytes.extend(i32::to_le_bytes(value));
        }
        assert_eq!(bytes.len(), HEADER_BYTES);
        bytes
    }

    fn parse(bytes: &[u8]) -> Result<Header, SourceError> {
        Header::parse(Path::new("/dumps/T.500/e.500.1"), bytes.try_into().unwrap())
    }

    #[test]
    fn a_good_header_gives_its_values() {
        let header = parse(&sample(500, 1, 4, 48, 7)).unwrap();
        assert_eq!((header.step, header.rank, header.ranks), (500, 1, 4));
        assert_eq!((header.cells, header.element_bytes, header.particles), ([128, 1, 64], 48, 7));
        assert_eq!(header.file_bytes(), 115 + 48 * 7);
        let constants = header.constants();
        let named = |name: &str| constants[CONSTANTS.iter().position(|known| *known == name).unwrap()];
        assert_eq!((named("header.step"), named("header.nx"), named("header.nz")), (500.0, 128.0, 64.0));
        assert_eq!((named("header.dx"), named("header.x0"), named("header.z0")), (0.5, 64.0, -32.0));
        assert_eq!((named("header.rank"), named("header.ranks"), named("header.q_m")), (1.0, 4.0, -1.0));
        assert_eq!(constants.len(), CONSTANTS.len());
    }

    /// For each field in turn, an invalid value causes an error with the file's name and the field's offset.
    #[test]
    fn every_corrupted_field_is_named() {
        let nan = f32::NAN.to_le_bytes();
        let minus = (-1i32).to_le_bytes();
        let mut cases: Vec<(usize, Vec<u8>)> = (0..5).map(|offset| (offset, vec![77])).collect();
        cases.push((5, vec![0xca, 0xfe]));
        cases.push((7, vec![0; 4]));
        cases.push((11, nan.to_vec()));
        cases.push((15, 2f64.to_le_bytes().to_vec()));
        for offset in [23, 27, 31, 35, 39, 43, 87, 95, 103, 107, 111] {
            cases.push((offset, minus.to_vec()));
        }
        cases.push((91, 1i32.to_le_bytes().to_vec()));
        for index in 0..10 {
            cases.push((47 + 4 * index, f32::INFINITY.to_le_bytes().to_vec()));
        }
        cases.push((99, nan.to_vec()));
        let covered: usize = cases.iter().map(|(_, value)| value.len()).sum();
        assert_eq!(covered, HEADER_BYTES, "every byte of the header belongs to one case");
        for (offset, value) in cases {
            let mut bytes = sample(500, 1, 4, 32, 7);
            bytes[offset..offset + value.len()].copy_from_slice(&value);
            let message = parse(&bytes).unwrap_err().to_string();
            assert!(message.starts_with("/dumps/T.500/e.500.1: "), "{message}");
            assert!(message.contains(&format!(" at offset {offset} is ")), "offset {offset}: {message}");
            assert!(message.contains(", expected "), "{message}");
        }
    }

    #[test]
    fn ranks_of_one_step_must_agree() {
        let one = parse(&sample(500, 0, 4, 32, 7)).unwrap();
        let same = |bytes: &[u8]| parse(bytes).unwrap().agrees_with(Path::new("b"), &one, Path::new("a"));
        assert!(same(&sample(500, 1, 4, 32, 9)).is_ok(), "origin, rank and count may differ");
        let offsets = [47, 51, 55, 59, 75, 79, 83, 91, 95, 99, 103];
        for offset in offsets {
            let mut bytes = sample(500, 1, 4, 32, 9);
            bytes[offset] ^= 0x40;
            let message = same(&bytes).unwrap_err().to_string();
            assert!(message.contains(&format!("at offset {offset} is ")) && message.contains("as in a"), "{message}");
        }
    }

    /// The values at the offsets of [`constants`] equal the values of [`Header::constants`].
    #[test]
    fn constants_lie_where_they_are_decoded() {
        let bytes = sample(500, 1, 4, 48, 7);
        let fields = constants();
        let (first, last) = (&fields[0], &fields[17]);
        assert_eq!((first.column.name.as_str(), first.offset), ("header.step", 31));
        assert_eq!((last.column.name.as_str(), last.offset), ("header.q_m", 99));
        let stored = |field: &Field| {
            let word = *bytes[field.offset..].first_chunk().unwrap();
            match field.column.data_type {
                DataType::I32 => f64::from(i32::from_le_bytes(word)),
                DataType::F32 => f64::from(f32::from_le_bytes(word)),
                other => panic!("{other}"),
            }
        };
        assert_eq!(fields.iter().map(stored).collect::<Vec<_>>(), *parse(&bytes).unwrap().constants());
    }

    #[test]
    fn dump_types_are_told_apart() {
        let mut bytes = sample(500, 0, 4, 32, 7);
        assert!(Header::begins_particle_dump(&bytes));
        assert!(!Header::begins_particle_dump(&bytes[..100]));
        bytes[27] = 1;
        assert!(!Header::begins_particle_dump(&bytes), "a field dump");
    }
}
