//! The distribution of keys that pivots represent: cumulative mass as a piecewise linear function of the position in
//! (key, tie) space.
//!
//! A key occupies a unit of the axis (`scale`), from its own position to that of the next key. Ties are positions
//! inside the unit. A point mass is thus mass spread over one unit, and a cut inside a point mass has a tie. The sum
//! over many summaries is exact, for any range of keys: slopes are rounded to integers in units of 2^-80 records per
//! step, so adding and subtracting them leaves no residue.

use super::cut_point::CutPoint;
use super::pivots::{Atom, MASS_LIMIT, Pivots, fractions};
use super::scale::Scale;

/// Number of fractional bits in a slope.
const FRACTION_BITS: u32 = 80;

/// The unit of a slope, in records.
const FRACTION: f64 = 1.0 / (1u128 << FRACTION_BITS) as f64;

/// A piecewise linear cumulative distribution.
#[derive(Debug, Clone, Default)]
pub struct CumulativeMass {
    scale: Scale,
    /// The smallest and largest key with mass.
    extremes: Option<(u64, u64)>,
    /// Positions at which the slope changes, ascending.
    places: Vec<u128>,
    /// Mass below each position.
    below: Vec<f64>,
}

/// A builder that collects the pieces of a distribution.
#[derive(Debug, Default)]
pub struct CumulativeMassBuilder {
    scale: Scale,
    extremes: Option<(u64, u64)>,
    /// Positions at which the slope changes, with the change.
    changes: Vec<(u128, i128)>,
    mass: u64,
}

impl CumulativeMassBuilder {
    pub(crate) fn new(scale: Scale) -> Self {
        Self { scale, ..Self::default() }
    }

    fn widen(&mut self, low: u64, high: u64) {
        self.extremes =
            Some(self.extremes.map_or((low, high), |(lowest, highest)| (lowest.min(low), highest.max(high))));
    }

    /// Spreads `mass` records evenly over an interval.
    fn add(&mut self, from: u128, to: u128, mass: f64) {
        // A division on 128 bits would take several times as long, and round to little better.
        let slope = (mass / FRACTION / (to - from) as f64) as i128;
        match self.changes.last_mut() {
            // Adjacent pieces share a change. This halves the number of changes to sort, since the pieces of a summary
            // are adjacent.
            Some((place, change)) if *place == from => *change += slope,
            _ => self.changes.push((from, slope)),
        }
        self.changes.push((to, -slope));
    }

    /// Limits `mass` so that the total mass does not exceed [`MASS_LIMIT`]. Returns the limited mass.
    fn admit(&mut self, mass: u64) -> u64 {
        let admitted = mass.min(MASS_LIMIT - self.mass);
        self.mass += admitted;
        admitted
    }

    /// Adds a point mass.
    pub(crate) fn add_atom(&mut self, atom: Atom) {
        let mass = self.admit(atom.mass);
        if mass > 0 {
            self.widen(atom.ordinal, atom.ordinal);
            self.add(self.scale.place(atom.ordinal), self.scale.end(atom.ordinal), mass as f64);
        }
    }

    /// Adds mass that is spread evenly between two keys. If they are equal, the mass is added to that key.
    pub fn add_interval(&mut self, from: u64, to: u64, mass: u64) {
        let mass = self.admit(mass) as f64;
        self.widen(from, to);
        let end = if to > from { self.scale.place(to) } else { self.scale.end(from) };
        self.add(self.scale.place(from), end, mass);
    }

    /// Adds all mass of `pivots` except for the point masses.
    pub(crate) fn add_points(&mut self, pivots: &Pivots) {
        let points = pivots.points();
        let mass = self.admit(pivots.rest_mass());
        if points.is_empty() || mass == 0 {
            return;
        }
        let (low, high) = pivots.bounds();
        self.widen(low, high);
        let (mut from, mut below) = (self.scale.place(low), 0.0);
        self.changes.reserve(points.len() + 2);
        for (&point, fraction) in points.iter().zip(fractions(points.len(), pivots.phase())) {
            let (start, end) = (self.scale.place(point), self.scale.end(point));
            let to = start + (end - start) / 2;
            let reached = mass as f64 * fraction;
            if to > from {
                self.add(from, to, reached - below);
            } else {
                // The point is repeated, so its interval lies within the key.
                self.add(start, end, reached - below);
            }
            (from, below) = (to, reached);
        }
        self.add(from, self.scale.end(high), mass as f64 - below);
    }

    /// Sums all pieces and returns the distribution.
    pub fn build(mut self) -> CumulativeMass {
        // The pieces of a summary are in order. A stable sort merges such sequences.
        self.changes.sort_by_key(|change| change.0);
        let mut model = CumulativeMass {
            scale: self.scale,
            extremes: self.extremes,
            places: Vec::with_capacity(self.changes.len()),
            below: Vec::with_capacity(self.changes.len()),
        };
        let (mut slope, mut below) = (0i128, 0i128);
        let mut changes = self.changes.into_iter().peekable();
        while let Some((place, mut change)) = changes.next() {
            while let Some((_, more)) = changes.next_if(|next| next.0 == place) {
                change += more;
            }
            if let Some(&last) = model.places.last() {
                below += slope * (place - last) as i128;
            }
            model.places.push(place);
            model.below.push(below as f64 * FRACTION);
            slope += change;
        }
        model
    }
}

impl CumulativeMass {
    /// Returns the number of records in the distribution.
    pub fn mass(&self) -> f64 {
        self.below.last().copied().unwrap_or(0.0)
    }

    /// Returns the smallest and largest key with mass.
    pub fn extremes(&self) -> Option<(u64, u64)> {
        self.extremes
    }

    /// Returns the mass of all records that sort before `cut`.
    pub fn mass_below(&self, cut: CutPoint) -> f64 {
        let (start, end) = (self.scale.place(cut.ordinal), self.scale.end(cut.ordinal));
        let offset = (end - start) as f64 * (f64::from(cut.tie) / TIES);
        let (place, within) = (start + offset as u128, offset.fract());
        let after = self.places.partition_point(|knot| *knot <= place);
        if after == 0 {
            return 0.0;
        }
        let (Some(next), Some(next_below)) = (self.places.get(after), self.below.get(after)) else {
            return self.mass();
        };
        let (knot, below) = (self.places[after - 1], self.below[after - 1]);
        let fraction = ((place - knot) as f64 + within) / (next - knot) as f64;
        below + (next_below - below) * fraction
    }

    /// Returns the cut points with the given masses below them. `masses` must not descend.
    pub fn cuts(&self, masses: impl Iterator<Item = f64>) -> Vec<CutPoint> {
        let mut cuts = Vec::with_capacity(masses.size_hint().0);
        let mut next = 1;
        for mass in masses {
            while next < self.places.len() && self.below[next] < mass {
                next += 1;
            }
            let cut = if next < self.places.len() {
                self.interpolate(next, mass)
            } else {
                // No mass lies above this position, so the cut is the largest possible one.
                self.places.last().map_or(CutPoint { ordinal: 0, tie: 0 }, |&place| self.cut_at(place, 0.0))
            };
            // Rounding must not reverse the order of the cuts.
            cuts.push(cuts.last().map_or(cut, |&last: &CutPoint| cut.max(last)));
        }
        cuts
    }

    /// Returns the cut with `mass` below it, which lies between positions `next - 1` and `next`.
    fn interpolate(&self, next: usize, mass: f64) -> CutPoint {
        let (from, to) = (self.places[next - 1], self.places[next]);
        let (below, above) = (self.below[next - 1], self.below[next]);
        let fraction = if above > below { ((mass - below) / (above - below)).clamp(0.0, 1.0) } else { 0.0 };
        let offset = (to - from) as f64 * fraction;
        let whole = (offset.floor() as u128).min(to - from);
        self.cut_at(from + whole, if from + whole < to { offset.fract() } else { 0.0 })
    }

    /// Returns the cut at a position plus a fraction of a step.
    fn cut_at(&self, place: u128, fraction: f64) -> CutPoint {
        let (low, high) = self.extremes.unwrap_or_default();
        let ordinal = self.scale.ordinal(place, low, high);
        let (start, end) = (self.scale.place(ordinal), self.scale.end(ordinal));
        if place >= end {
            // All records with the last key sort before the cut.
            let behind = ordinal.checked_add(1);
            return behind.map_or(CutPoint { ordinal, tie: u32::MAX }, |ordinal| CutPoint { ordinal, tie: 0 });
        }
        let within = ((place - start) as f64 + fraction) / (end - start) as f64;
        // The conversion to u32 saturates at the largest tie.
        CutPoint { ordinal, tie: (within * TIES) as u32 }
    }
}

/// Number of different ties.
const TIES: f64 = 4_294_967_296.0;
