//! The 115 bytes that begin every VPIC dump, and what each of them may be.
//!
//! Layout (little-endian, packed): see the table `FIELDS`. A field that is not what it can be is an error that names the file,
//! the offset, what was found and what was expected.

use std::path::Path;

use super::SourceError;

/// Length of the header.
pub(crate) const HEADER_BYTES: usize = 115;

/// Length of a particle as VPIC itself defines it.
pub(crate) const PARTICLE_BYTES: usize = 32;

/// The constants of a header, as derivations name them. The order is that of [`Header::constants`].
pub(crate) const CONSTANTS: &[&str] = &[
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

/// Dump type of particles.
const PARTICLE_DUMP: i32 = 3;

/// A checked header of a particle dump.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Header {
    /// The step it was written in.
    pub step: i32,
    /// Cells of the rank's grid along x, y and z.
    pub cells: [i32; 3],
    /// dt, dx, dy, dz, x0, y0, z0, cvac, eps0, damp.
    pub grid: [f32; 10],
    /// The rank that wrote it.
    pub rank: i32,
    /// How many ranks wrote the step.
    pub ranks: i32,
    /// VPIC's number of the species.
    pub species: i32,
    /// Charge over mass.
    pub charge_mass: f32,
    /// Bytes per particle.
    pub element_bytes: i32,
    /// How many particles follow.
    pub particles: i32,
}

/// Names of the ten grid constants.
const GRID_NAMES: [&str; 10] = ["dt", "dx", "dy", "dz", "x0", "y0", "z0", "cvac", "eps0", "damp"];

/// Reads fields one after the other and remembers where it stands.
struct Cursor<'a> {
    path: &'a Path,
    bytes: &'a [u8; HEADER_BYTES],
    offset: usize,
}

impl Cursor<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut value = [0; N];
        value.copy_from_slice(&self.bytes[self.offset..self.offset + N]);
        self.offset += N;
        value
    }

    fn int(&mut self) -> i32 {
        i32::from_le_bytes(self.take())
    }

    fn float(&mut self) -> f32 {
        f32::from_le_bytes(self.take())
    }

    /// The error for the field of `width` bytes that was read last.
    fn wrong(&self, field: &'static str, width: usize, found: impl ToString, expected: impl ToString) -> SourceError {
        SourceError::Field {
            path: self.path.to_owned(),
            field,
            offset: (self.offset - width) as u64,
            found: found.to_string(),
            expected: expected.to_string(),
        }
    }

    /// An integer that must satisfy a condition.
    fn int_where(
        &mut self,
        field: &'static str,
        expected: impl ToString,
        fits: impl Fn(i32) -> bool,
    ) -> Result<i32, SourceError> {
        let value = self.int();
        if fits(value) { Ok(value) } else { Err(self.wrong(field, 4, value, expected)) }
    }

    /// A float that must be finite.
    fn finite(&mut self, field: &'static str) -> Result<f32, SourceError> {
        let value = self.float();
        if value.is_finite() { Ok(value) } else { Err(self.wrong(field, 4, value, "a finite number")) }
    }
}

impl Header {
    /// Reads and checks a header; `path` is for the messages.
    pub(crate) fn parse(path: &Path, bytes: &[u8; HEADER_BYTES]) -> Result<Self, SourceError> {
        let mut at = Cursor { path, bytes, offset: 0 };
        check_preamble(&mut at)?;
        at.int_where("the header's version", 0, |version| version == 0)?;
        at.int_where("the dump type", "3 (particles)", |kind| kind == PARTICLE_DUMP)?;
        let step = at.int_where("the step", "0 or more", |step| step >= 0)?;
        let mut cells = [0; 3];
        for (cells, name) in cells.iter_mut().zip(["nx", "ny", "nz"]) {
            *cells = at.int_where(name, "1 or more", |cells| cells >= 1)?;
        }
        let mut grid = [0.0; 10];
        for (value, name) in grid.iter_mut().zip(GRID_NAMES) {
            *value = at.finite(name)?;
        }
        let rank = at.int_where("the rank", "0 or more", |rank| rank >= 0)?;
        let ranks = at.int_where("the number of ranks", format!("more than the rank, {rank}"), |ranks| ranks > rank)?;
        let species = at.int_where("the species id", "0 or more", |species| species >= 0)?;
        let charge_mass = at.finite("charge/mass")?;
        let element_bytes = at.int_where("the element size", "32 or more", |bytes| bytes >= PARTICLE_BYTES as i32)?;
        at.int_where("the number of dimensions", 1, |dimensions| dimensions == 1)?;
        let particles = at.int_where("the number of particles", "0 or more", |particles| particles >= 0)?;
        Ok(Self { step, cells, grid, rank, ranks, species, charge_mass, element_bytes, particles })
    }

    /// The dump type in a header's bytes, if the bytes before it are those of any VPIC dump.
    pub(crate) fn is_particle_dump(bytes: &[u8]) -> bool {
        let Some(Ok(bytes)) = bytes.get(..HEADER_BYTES).map(<&[u8; HEADER_BYTES]>::try_from) else { return false };
        let mut at = Cursor { path: Path::new(""), bytes, offset: 0 };
        check_preamble(&mut at).is_ok() && at.int() == 0 && at.int() == PARTICLE_DUMP
    }

    /// Length the file must have.
    pub(crate) fn file_bytes(&self) -> u64 {
        // Both factors are checked not to be negative and fit 31 bits.
        HEADER_BYTES as u64 + self.particles as u64 * self.element_bytes as u64
    }

    /// Checks what all ranks of one step and species must have in common.
    pub(crate) fn agrees_with(&self, path: &Path, other: &Self, other_path: &Path) -> Result<(), SourceError> {
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
                let offset = 47 + 4 * index as u64;
                return Err(differs(name, offset, self.grid[index].to_string(), other.grid[index].to_string()));
            }
        }
        let integers = [
            ("the number of ranks", 91, self.ranks, other.ranks),
            ("the species id", 95, self.species, other.species),
            ("the element size", 103, self.element_bytes, other.element_bytes),
        ];
        for (field, offset, found, expected) in integers {
            if found != expected {
                return Err(differs(field, offset, found.to_string(), expected.to_string()));
            }
        }
        if self.charge_mass != other.charge_mass {
            return Err(differs("charge/mass", 99, self.charge_mass.to_string(), other.charge_mass.to_string()));
        }
        Ok(())
    }

    /// The values of [`CONSTANTS`].
    pub(crate) fn constants(&self) -> Box<[f64]> {
        let mut values = vec![f64::from(self.step)];
        values.extend(self.cells.map(f64::from));
        values.extend(self.grid.map(f64::from));
        values.extend([self.rank, self.ranks, self.species].map(f64::from));
        values.push(f64::from(self.charge_mass));
        values.into_boxed_slice()
    }
}

/// Sizes of C types and byte-order marks: the first 23 bytes of any dump.
fn check_preamble(at: &mut Cursor<'_>) -> Result<(), SourceError> {
    let sizes = [
        ("the bits of a char", 8u8),
        ("the size of a short", 2),
        ("the size of an int", 4),
        ("the size of a float", 4),
        ("the size of a double", 8),
    ];
    for (field, expected) in sizes {
        let [found] = at.take();
        if found != expected {
            return Err(at.wrong(field, 1, found, expected));
        }
    }
    let short = u16::from_le_bytes(at.take());
    if short != 0xcafe {
        return Err(at.wrong("the short magic", 2, format!("{short:#06x}"), "0xcafe"));
    }
    let long = u32::from_le_bytes(at.take());
    if long != 0xdead_beef {
        return Err(at.wrong("the int magic", 4, format!("{long:#010x}"), "0xdeadbeef"));
    }
    let float = at.float();
    if float != 1.0 {
        return Err(at.wrong("the float magic", 4, float, "1"));
    }
    let double = f64::from_le_bytes(at.take());
    if double != 1.0 {
        return Err(at.wrong("the double magic", 8, double, "1"));
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The header of a dump, packed by hand.
    pub(crate) fn sample(step: i32, rank: i32, ranks: i32, element_bytes: i32, particles: i32) -> Vec<u8> {
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

    /// Every field in turn gets a value it cannot have; the error names the file and the field's offset.
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

    #[test]
    fn dump_types_are_told_apart() {
        let mut bytes = sample(500, 0, 4, 32, 7);
        assert!(Header::is_particle_dump(&bytes));
        assert!(!Header::is_particle_dump(&bytes[..100]));
        bytes[27] = 1;
        assert!(!Header::is_particle_dump(&bytes), "a field dump");
    }
}
