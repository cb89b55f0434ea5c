//! Particles of VPIC dumps, from which the examples generate their input.

use std::path::{Path, PathBuf};

use turbidite::random;

/// Size of a dump's header in bytes.
const HEADER_BYTES: usize = 115;

/// One particle as stored in a dump: its position in its cell, the cell, momentum and weight.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Particle {
    pub(crate) bytes: [u8; 32],
}

impl Particle {
    /// Returns the kinetic energy, computed from the momentum.
    pub(crate) fn energy(&self) -> f64 {
        let component = |at: usize| {
            let raw = [self.bytes[at], self.bytes[at + 1], self.bytes[at + 2], self.bytes[at + 3]];
            f64::from(f32::from_le_bytes(raw))
        };
        let (ux, uy, uz) = (component(16), component(20), component(24));
        (1.0 + ux * ux + uy * uy + uz * uz).sqrt() - 1.0
    }
}

/// SplitMix64, so that the input is reproducible.
#[derive(Debug)]
pub(crate) struct Random(random::Random);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(random::Random::new(seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a random number in 0..1.
    pub(crate) fn unit(&mut self) -> f64 {
        self.0.fraction()
    }
}

/// Returns the particles of each step below `source`. The steps are in order, and each step's particles are in the
/// order of its files.
pub(crate) fn read_steps(source: &Path) -> std::io::Result<Vec<Vec<Particle>>> {
    let mut steps: Vec<(u64, PathBuf)> = std::fs::read_dir(source)?
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let step = path.file_name()?.to_str()?.strip_prefix("T.")?.parse().ok()?;
            Some((step, path))
        })
        .collect();
    steps.sort();
    steps.iter().map(|(_, folder)| read_step(folder)).collect()
}

fn read_step(folder: &Path) -> std::io::Result<Vec<Particle>> {
    let mut files = std::fs::read_dir(folder)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<Vec<PathBuf>>>()?;
    // The last component of a file name is the rank. The files are sorted by its numeric value.
    files.sort_by_key(|path| path.extension().and_then(|rank| rank.to_str()?.parse::<u64>().ok()));
    let mut particles = Vec::new();
    for file in files {
        let content = std::fs::read(file)?;
        let records = content.get(HEADER_BYTES..).unwrap_or_default();
        particles.extend(records.as_chunks::<32>().0.iter().map(|bytes| Particle { bytes: *bytes }));
    }
    Ok(particles)
}
