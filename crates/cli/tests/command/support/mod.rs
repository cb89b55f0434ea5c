//! Runs the real command, and reads dumps with a scan that shares no code with the command.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub(crate) const ENERGY: &str = "energy=sqrt(1+ux*ux+uy*uy+uz*uz)-1";
pub(crate) const IDENTITY: &str = "id:i32=bits_i32(w)-1024608549";
pub(crate) const STEPS: [u64; 8] = [500, 1000, 1500, 2000, 2500, 3000, 3500, 4000];

/// A particle of a dump, with its derived values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Particle {
    pub(crate) rank: u32,
    pub(crate) dx: f32,
    pub(crate) cell: i32,
    pub(crate) ux: f32,
    pub(crate) uy: f32,
    pub(crate) uz: f32,
    pub(crate) energy: f32,
    pub(crate) id: i32,
}

pub(crate) fn sample() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/vpic")
}

/// Returns all particles of a step, decoded from the dumps' bytes.
pub(crate) fn scan(step: u64) -> Vec<Particle> {
    let mut particles = Vec::new();
    for rank in 0..4 {
        let bytes = std::fs::read(sample().join(format!("T.{step}/eparticle.{step}.{rank}"))).unwrap();
        for record in bytes[115..].chunks_exact(32) {
            let word = |index: usize| <[u8; 4]>::try_from(&record[4 * index..4 * index + 4]).unwrap();
            let float = |index: usize| f32::from_le_bytes(word(index));
            let (ux, uy, uz) = (float(4), float(5), float(6));
            let [x, y, z] = [ux, uy, uz].map(f64::from);
            particles.push(Particle {
                rank,
                dx: float(0),
                cell: i32::from_le_bytes(word(3)),
                ux,
                uy,
                uz,
                energy: ((1.0 + x * x + y * y + z * z).sqrt() - 1.0) as f32,
                id: i32::from_le_bytes(word(7)) - 0x3d12_4925,
            });
        }
    }
    particles
}

/// Runs the command until it ends.
pub(crate) fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_turbidite")).args(arguments).output().unwrap()
}

/// Runs the command, which must end with `code`. Returns its standard output and standard error.
#[track_caller]
pub(crate) fn ends_with(code: i32, arguments: &[&str]) -> (String, String) {
    let output = run(arguments);
    let (out, error) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(code), "{arguments:?}\nstdout: {out}\nstderr: {error}");
    assert!(!error.contains("panicked"), "{error}");
    (out, error)
}

/// Runs a command that must succeed and returns its standard output.
#[track_caller]
pub(crate) fn ok(arguments: &[&str]) -> String {
    ends_with(0, arguments).0
}

/// Returns the command's output with `--json`.
#[track_caller]
pub(crate) fn json(arguments: &[&str]) -> serde_json::Value {
    serde_json::from_str(&ok(&[arguments, &["--json"]].concat())).unwrap()
}

/// Returns the path as text for a command line.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Ingests the sample with energies and ids, and returns the command's output.
#[track_caller]
pub(crate) fn ingest(dataset: &Path, more: &[&str]) -> String {
    let source = sample();
    let base =
        ["ingest", text(&source), "--out", text(dataset), "--key", "energy", "--derive", ENERGY, "--derive", IDENTITY];
    ok(&[&base, more].concat())
}

/// Returns the rows of CSV text without the header, as numbers.
pub(crate) fn csv(content: &str) -> Vec<Vec<f64>> {
    content.lines().skip(1).map(|line| line.split(',').map(|cell| cell.parse().unwrap()).collect()).collect()
}
