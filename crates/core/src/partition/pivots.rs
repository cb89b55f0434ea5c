//! Pivots: a summary of a set of keys, which is sent up the tree.
//!
//! A message of k numbers contains the large point masses (key and count, two numbers each), the extremes of the other
//! keys, and points that divide the other keys into intervals of equal mass. Between points, the mass is assumed to be
//! spread evenly along the axis of `scale`. All points of a message are shifted by a common phase. If ranks use
//! different phases, their errors cancel when their pivots are merged.

use std::borrow::Cow;

use super::scale::Scale;
use super::table::DecodeError;

mod merge;

/// Maximum number of records in a distribution. Larger masses are clamped. 2^46 records in units of 2^-80 fit 128 bits.
pub(crate) const MASS_LIMIT: u64 = 1 << 46;

/// A point mass: a key with a large share of the mass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Atom {
    /// Ordinal of the key.
    pub ordinal: u64,
    /// Number of records with the key.
    pub mass: u64,
}

/// A summary of a set of keys: point masses, and points at equal intervals of the other mass.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pivots {
    scale: Scale,
    mass: u64,
    atoms: Vec<Atom>,
    /// Smallest and largest key that is not an atom.
    bounds: (u64, u64),
    /// Offset of the points in their intervals, as a fraction of 2^32.
    phase: u32,
    points: Vec<u64>,
}

/// Sorted keys of equal weight, and the number of records that they represent.
pub(crate) struct Entries<'a> {
    pub(crate) scale: Scale,
    pub(crate) sorted: &'a [u64],
    pub(crate) mass: u64,
}

/// The size of the header of a message, in numbers.
const HEADER_SLOTS: usize = 4;

/// Minimum size of a message in numbers: the header, and some points.
const MINIMUM_SLOTS: usize = 16;

/// Size of a message before the atoms, in bytes: mass, extremes, phase, two counts and scale.
const HEADER_BYTES: usize = 37;

/// The division of a message into atoms and points.
struct Split {
    slots: usize,
    phase: u32,
}

impl Split {
    fn new(slots: usize, phase: f64) -> Self {
        // The conversion to u32 saturates, and converts NaN to zero.
        Self { slots: slots.max(MINIMUM_SLOTS), phase: (phase * 4_294_967_296.0) as u32 }
    }

    /// Returns the maximum number of atoms. Atoms have two numbers each, and take at most half of the message.
    fn most_atoms(&self) -> usize {
        self.slots / 4
    }

    fn points(&self, atoms: usize) -> usize {
        self.slots - HEADER_SLOTS - 2 * atoms
    }
}

/// Returns the number of tail points at each extreme: a sixteenth of all points, and at most sixteen. Tail points get
/// denser towards the extreme, where a thin tail bends the distribution most.
fn tail_points(count: usize) -> usize {
    (count / 16).min(16)
}

/// Ratio of the masses beyond two neighbouring tail points.
const TAIL_RATIO: f64 = 1.25;

/// Iterates over the fraction of the mass below each of `count` points, ascending. Points are spaced evenly in the
/// middle, and geometrically in the tails.
pub(crate) fn fractions(count: usize, phase: u32) -> impl Iterator<Item = f64> {
    let tail = tail_points(count);
    let phase = f64::from(phase) / 4_294_967_296.0;
    // A tail covers the mass of a quarter as many even steps. The two spacings are equal where they meet.
    let edge = (tail / 4) as f64;
    let unit = 1.0 / ((count - 2 * tail) as f64 + 2.0 * edge);
    let low = (1..=tail).rev().map(move |step| edge * unit * TAIL_RATIO.powf(phase - step as f64));
    let even = (0..count - 2 * tail).map(move |point| (edge + point as f64 + phase) * unit);
    let high = (1..=tail).map(move |step| 1.0 - edge * unit * TAIL_RATIO.powf(1.0 - phase - step as f64));
    low.chain(even).chain(high)
}

/// Returns `mass * part / whole`, without overflow.
fn share(mass: u64, part: usize, whole: usize) -> u64 {
    u64::try_from(u128::from(mass) * part as u128 / (whole.max(1) as u128)).unwrap_or(u64::MAX)
}

impl Pivots {
    /// Returns the number of summarised records.
    pub fn mass(&self) -> u64 {
        self.mass
    }

    /// Returns the size of the message, in numbers.
    pub fn slots(&self) -> usize {
        HEADER_SLOTS + 2 * self.atoms.len() + self.points.len()
    }

    /// Returns the size in memory, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.atoms.capacity() * size_of::<Atom>() + self.points.capacity() * size_of::<u64>()
    }

    /// Returns the point masses, in ascending order of their keys.
    pub fn atoms(&self) -> &[Atom] {
        &self.atoms
    }

    /// Returns the smallest and largest key. Returns `None` if there are no keys.
    pub fn extremes(&self) -> Option<(u64, u64)> {
        let rest = (!self.points.is_empty()).then_some(self.bounds);
        let atoms = self.atoms.first().zip(self.atoms.last()).map(|(first, last)| (first.ordinal, last.ordinal));
        match (rest, atoms) {
            (Some(rest), Some(atoms)) => Some((rest.0.min(atoms.0), rest.1.max(atoms.1))),
            (rest, atoms) => rest.or(atoms),
        }
    }

    pub(crate) fn bounds(&self) -> (u64, u64) {
        self.bounds
    }

    pub(crate) fn points(&self) -> &[u64] {
        &self.points
    }

    /// Returns the phase as a fraction of 2^32.
    pub(crate) fn phase(&self) -> u32 {
        self.phase
    }

    /// Returns the number of records outside the atoms.
    pub(crate) fn rest_mass(&self) -> u64 {
        self.atoms.iter().fold(self.mass, |rest, atom| rest.saturating_sub(atom.mass))
    }

    /// Summarises sorted keys of equal weight in a message of `slots` numbers.
    pub(crate) fn from_entries(entries: Entries<'_>, slots: usize, phase: f64) -> Self {
        let Entries { scale, sorted, mass } = entries;
        if sorted.is_empty() {
            return Self::default();
        }
        let mass = mass.min(MASS_LIMIT);
        let split = Split::new(slots, phase);
        let heavy = heavy_runs(sorted, &split);
        let atoms: Vec<Atom> = heavy
            .iter()
            .map(|&(start, end)| Atom { ordinal: sorted[start], mass: share(mass, end - start, sorted.len()) })
            .collect();
        let rest = without(sorted, &heavy);
        let mut this = Self { scale, mass, atoms, ..Self::default() };
        if rest.is_empty() {
            // Rounding may leave a few records over, which belong to the atoms.
            let left = this.rest_mass();
            if let Some(last) = this.atoms.last_mut() {
                last.mass += left;
            }
            return this;
        }
        this.bounds = (rest[0], rest[rest.len() - 1]);
        let count = split.points(this.atoms.len()).min(rest.len());
        this.phase = split.phase;
        // A point is the key at its quantile. Key i covers the range [i, i + 1).
        this.points = fractions(count, split.phase)
            .map(|fraction| rest[((fraction * rest.len() as f64) as usize).min(rest.len() - 1)])
            .collect();
        this
    }

    /// Multiplies the mass by `factor`. Factors below 1 discount older keys. Factors above 1 apply if each key
    /// represents several. The result has at most [`MASS_LIMIT`] records.
    pub fn scaled(mut self, factor: f64) -> Self {
        let factor = factor.max(0.0).min(MASS_LIMIT as f64 / self.mass.max(1) as f64);
        let scale = |mass: u64| (mass as f64 * factor) as u64;
        for atom in &mut self.atoms {
            atom.mass = scale(atom.mass);
        }
        self.mass = self.atoms.iter().fold(0u64, |sum, atom| sum.saturating_add(atom.mass)).max(scale(self.mass));
        self
    }

    /// Appends the encoded pivots to a message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.mass.to_le_bytes());
        out.extend_from_slice(&self.bounds.0.to_le_bytes());
        out.extend_from_slice(&self.bounds.1.to_le_bytes());
        out.extend_from_slice(&self.phase.to_le_bytes());
        // The size of the message limits both counts to far less than 2^32.
        out.extend_from_slice(&(self.atoms.len() as u32).to_le_bytes());
        out.extend_from_slice(&(self.points.len() as u32).to_le_bytes());
        out.push(self.scale.code());
        for atom in &self.atoms {
            out.extend_from_slice(&atom.ordinal.to_le_bytes());
            out.extend_from_slice(&atom.mass.to_le_bytes());
        }
        for point in &self.points {
            out.extend_from_slice(&point.to_le_bytes());
        }
    }

    /// Decodes the output of [`Pivots::encode`]. Other input leads to an error or to other valid pivots.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let refuse = |what| Err(DecodeError { what });
        let Some((header, body)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return refuse("truncated pivots");
        };
        let long = |at: usize| header[at..].first_chunk::<8>().map_or(0, |raw| u64::from_le_bytes(*raw));
        let short = |at: usize| header[at..].first_chunk::<4>().map_or(0, |raw| u32::from_le_bytes(*raw));
        let (atom_count, point_count) = (short(28) as usize, short(32) as usize);
        let (words, tail) = body.as_chunks::<8>();
        if !tail.is_empty() || words.len() != atom_count.saturating_mul(2).saturating_add(point_count) {
            return refuse("pivots of an invalid length");
        }
        let words: Vec<u64> = words.iter().map(|raw| u64::from_le_bytes(*raw)).collect();
        let (atoms, points) = words.split_at(2 * atom_count);
        let atoms: Vec<Atom> = atoms.chunks_exact(2).map(|pair| Atom { ordinal: pair[0], mass: pair[1] }).collect();
        let Some(scale) = Scale::from_code(header[36]) else {
            return refuse("an unknown scale");
        };
        let this = Self {
            scale,
            mass: long(0),
            atoms,
            bounds: (long(8), long(16)),
            phase: short(24),
            points: points.to_vec(),
        };
        if this.mass > MASS_LIMIT
            || this.atoms.iter().map(|atom| u128::from(atom.mass)).sum::<u128>() > this.mass.into()
        {
            return refuse("masses that do not add up");
        }
        if !this.atoms.is_sorted_by(|a, b| a.ordinal < b.ordinal) || !this.points.is_sorted() {
            return refuse("pivots out of order");
        }
        if this.points.first().is_some_and(|first| *first < this.bounds.0)
            || this.points.last().is_some_and(|last| *last > this.bounds.1)
        {
            return refuse("pivots outside their bounds");
        }
        Ok(this)
    }
}

/// Returns the scale of the first summary with keys. All summaries of a dataset have the same scale.
fn common_scale(many: &[Pivots]) -> Scale {
    many.iter().find(|pivots| pivots.mass > 0).map_or(Scale::Even, |pivots| pivots.scale)
}

/// Returns `sorted` without some ranges, which are in order.
fn without<'a>(sorted: &'a [u64], ranges: &[(usize, usize)]) -> Cow<'a, [u64]> {
    if ranges.is_empty() {
        return Cow::Borrowed(sorted);
    }
    let mut rest = Vec::with_capacity(sorted.len());
    let mut from = 0;
    for &(start, end) in ranges {
        rest.extend_from_slice(&sorted[from..start]);
        from = end;
    }
    rest.extend_from_slice(&sorted[from..]);
    Cow::Owned(rest)
}

/// Returns the ranges of equal keys in `sorted` that are long enough to become atoms, in key order.
fn heavy_runs(sorted: &[u64], split: &Split) -> Vec<(usize, usize)> {
    let least = (sorted.len() / split.slots).max(2);
    let mut runs = Vec::new();
    let mut next = 0;
    // A run of `least` keys contains the last of every so many keys at least once.
    while let Some(&key) = sorted.get(next + least - 1) {
        let start = next + sorted[next..next + least].partition_point(|other| *other < key);
        let end = start + sorted[start..].partition_point(|other| *other == key);
        if end - start >= least {
            runs.push((start, end));
        }
        next = end.max(next + least);
    }
    if runs.len() > split.most_atoms() {
        runs.sort_unstable_by_key(|&(start, end)| std::cmp::Reverse(end - start));
        runs.truncate(split.most_atoms());
        runs.sort_unstable();
    }
    runs
}

/// Sums the atoms of all summaries by key. Returns the atoms to keep and the others, both in key order.
fn sort_atoms(many: &[Pivots], split: &Split, mass: u64) -> (Vec<Atom>, Vec<Atom>) {
    let mut all: Vec<Atom> = many.iter().flat_map(|pivots| pivots.atoms.iter().copied()).collect();
    all.sort_unstable_by_key(|atom| atom.ordinal);
    all.dedup_by(|next, kept| {
        let same = next.ordinal == kept.ordinal;
        if same {
            kept.mass = kept.mass.saturating_add(next.mass);
        }
        same
    });
    let least = (mass / split.slots as u64).max(1);
    let (mut heavy, mut light): (Vec<Atom>, Vec<Atom>) = all.into_iter().partition(|atom| atom.mass >= least);
    if heavy.len() > split.most_atoms() {
        heavy.sort_unstable_by_key(|atom| (std::cmp::Reverse(atom.mass), atom.ordinal));
        light.extend(heavy.split_off(split.most_atoms()));
        heavy.sort_unstable_by_key(|atom| atom.ordinal);
    }
    (heavy, light)
}
