//! Merges pivots, and computes the distribution that they represent.

use super::{MASS_LIMIT, Pivots, Split, common_scale, fractions, sort_atoms};
use crate::partition::cumulative_mass::{CumulativeMass, CumulativeMassBuilder};

impl Pivots {
    /// Merges summaries into one with `slots` numbers.
    pub fn merge(many: &[Pivots], slots: usize, phase: f64) -> Self {
        let split = Split::new(slots, phase);
        let mass = many.iter().fold(0u64, |sum, pivots| sum.saturating_add(pivots.mass)).min(MASS_LIMIT);
        let (heavy, light) = sort_atoms(many, &split, mass);
        let scale = common_scale(many);
        let mut builder = CumulativeMassBuilder::new(scale);
        for pivots in many {
            builder.add_points(pivots);
        }
        for atom in &light {
            builder.add_atom(*atom);
        }
        let model = builder.build();
        let mut this = Self { scale, mass, atoms: heavy, ..Self::default() };
        let Some(bounds) = model.extremes() else {
            let left = this.rest_mass();
            if let Some(last) = this.atoms.last_mut() {
                last.mass += left;
            }
            return this;
        };
        this.bounds = bounds;
        this.phase = split.phase;
        let targets = fractions(split.points(this.atoms.len()), split.phase).map(|fraction| fraction * model.mass());
        this.points = model.cuts(targets).into_iter().map(|cut| cut.ordinal.clamp(bounds.0, bounds.1)).collect();
        this
    }

    /// Returns the distribution that the summaries represent together.
    pub fn model(many: &[Pivots]) -> CumulativeMass {
        let mut builder = CumulativeMassBuilder::new(common_scale(many));
        for pivots in many {
            builder.add_points(pivots);
            for atom in &pivots.atoms {
                builder.add_atom(*atom);
            }
        }
        builder.build()
    }
}
