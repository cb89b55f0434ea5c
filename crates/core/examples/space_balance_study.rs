//! Measures the load imbalance of partitions in space, beside the two methods of aggregation that libbat's authors
//! compare (libbat, sections III.A and VI.B).
//!
//! `space_balance_study DIRECTORY [records=12000000] [partitions=512] [epochs=2] [pivots=512] [append=1000]`
//!
//! DIRECTORY contains VPIC dumps (`T.<step>/eparticle.<step>.<rank>`); the particles of the last step are replicated
//! with a jitter of a tenth of a cell. The other domains are synthetic. Ours is a job of as many ranks as partitions,
//! whose parts are discarded; the ranks have contiguous slices of the records in the order of their slabs, and append
//! `append` records in turn. The first epoch knows nothing, and the others begin with the last one's distribution.
//!
//! Aggregation assigns whole ranks to files. There are eight ranks for each file, which own equal boxes of the domain,
//! and the target size is that of a partition. The tree divides the longest axis between ranks, where the halves have
//! the most similar numbers of particles; *overfull* leaves have up to 1.5 times the target size if the best division
//! leaves more than nine tenths on a side. The grid is uniform over the ranks that have particles.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use turbidite::random::Random;
use turbidite::{Column, ColumnView, DataType, LocalJob, Schema, WriteOptions};

#[allow(dead_code, reason = "examples share it, and each uses a part")]
mod support;

use support::nowhere::PartsNowhere;

type Failure = Box<dyn std::error::Error>;

/// Ranks of the simulation for each file of an aggregation.
const RANKS_PER_FILE: usize = 8;

/// Size of an overfull leaf over the target size.
const OVERFULL: f64 = 1.5;

/// The cost of a division, half a share less the smaller side, from which a leaf may be overfull.
const BAD_DIVISION: f64 = 0.4;

type Place = [f64; 3];

/// Places of records, and along how many axes the domain is decomposed.
struct Domain {
    name: &'static str,
    places: Vec<Place>,
    axes: usize,
}

fn argument(name: &str, default: u64) -> u64 {
    let value = |argument: String| argument.strip_prefix(name)?.strip_prefix('=')?.parse().ok();
    std::env::args().skip(2).find_map(value).unwrap_or(default)
}

fn main() -> Result<(), Failure> {
    let directory =
        std::env::args().nth(1).ok_or("usage: space_balance_study DIRECTORY [records=N] [partitions=N] …")?;
    let (records, partitions) = (argument("records", 12_000_000) as usize, argument("partitions", 512) as usize);
    let epochs = argument("epochs", 2);
    println!("| domain | method | partitions | imbalance % | largest / mean |");
    println!("| --- | --- | ---: | ---: | ---: |");
    let mut random = Random::new(1);
    for domain in domains(Path::new(&directory), records, &mut random)? {
        let show = |method: &str, loads: &[u64]| {
            let (imbalance, largest) = balance(loads);
            println!("| {} | {method} | {} | {:.2} | {largest:.3} |", domain.name, loads.len(), 100.0 * imbalance);
        };
        let owned = ranks(&domain, partitions * RANKS_PER_FILE);
        let target = records as f64 / partitions as f64;
        show("uniform grid over ranks", &uniform_grid(&owned, target));
        for (method, overfull) in [("tree over ranks", 1.0), ("tree over ranks, overfull leaves", OVERFULL)] {
            let mut leaves = Vec::new();
            grow(owned.clone(), target, overfull, &mut leaves);
            show(method, &leaves);
        }
        for (epoch, loads) in ours(&domain.places, partitions, epochs)?.iter().enumerate() {
            show(&format!("ours, epoch {}", epoch + 1), loads);
        }
    }
    Ok(())
}

/// Returns the standard deviation of loads over their mean, and the largest load over the mean.
fn balance(loads: &[u64]) -> (f64, f64) {
    let mean = loads.iter().sum::<u64>() as f64 / loads.len() as f64;
    let variance = loads.iter().map(|load| (*load as f64 - mean).powi(2)).sum::<f64>() / loads.len() as f64;
    (variance.sqrt() / mean, loads.iter().copied().max().unwrap_or(0) as f64 / mean)
}

/// Returns a standard normal number, by the sum of uniform ones.
fn normal(random: &mut Random) -> f64 {
    (0..12).map(|_| random.fraction()).sum::<f64>() - 6.0
}

fn domains(directory: &Path, records: usize, random: &mut Random) -> Result<[Domain; 3], Failure> {
    let particles = dump_places(directory)?;
    let jittered = |record: usize| -> Place {
        let place = particles[record * particles.len() / records];
        std::array::from_fn(|axis| place[axis] + [0.05, 0.01, 0.05][axis] * normal(random))
    };
    // The cells of the run lie in the plane of x and z.
    let dumps = (0..records).map(jittered).map(|[x, y, z]| [x, z, y]).collect();
    let mut centres: Vec<(Place, f64)> = Vec::new();
    for _ in 0..60 {
        let centre = std::array::from_fn(|_| 100.0 * random.fraction());
        centres.push((centre, 10f64.powf(3.0 * random.fraction() - 2.0)));
    }
    let clustered = |_| {
        let (centre, width) = centres[random.below(60) as usize];
        centre.map(|coordinate| coordinate + width * normal(random))
    };
    let clusters = in_slabs((0..records).map(clustered).collect());
    // A column that has collapsed: dense below, and thin above.
    let collapsed =
        |_| -> Place { [64.0 * random.fraction(), 64.0 * random.fraction(), 512.0 * random.fraction().powi(6)] };
    let column = in_slabs((0..records).map(collapsed).collect());
    Ok([
        Domain { name: "VPIC, one cell thick", places: dumps, axes: 2 },
        Domain { name: "clusters", places: clusters, axes: 3 },
        Domain { name: "collapsed column", places: column, axes: 3 },
    ])
}

/// Returns the places in the order of the slabs of a decomposed domain.
fn in_slabs(mut places: Vec<Place>) -> Vec<Place> {
    places.sort_by(|one, other| (one[0] / 8.0).floor().total_cmp(&(other[0] / 8.0).floor()));
    places
}

/// Returns the places of the particles of the last step.
fn dump_places(directory: &Path) -> Result<Vec<Place>, Failure> {
    let mut steps: Vec<(u64, PathBuf)> = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if let Some(step) = name.strip_prefix("T.").and_then(|step| step.parse().ok()) {
            steps.push((step, path));
        }
    }
    let (_, folder) = steps.iter().max().ok_or("the directory has no dumps")?;
    let mut files = std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    files.sort();
    let mut places = Vec::new();
    for file in files {
        let bytes = std::fs::read(file)?;
        let field = |at: usize| -> [u8; 4] { std::array::from_fn(|byte| bytes[at + byte]) };
        let number = |at: usize| f64::from(f32::from_le_bytes(field(at)));
        let cells = [35, 39].map(|at| i64::from(i32::from_le_bytes(field(at))) + 2);
        let (widths, origin) = ([51, 55, 59].map(number), [63, 67, 71].map(number));
        for at in (115..bytes.len() - 31).step_by(32) {
            let cell = i64::from(i32::from_le_bytes(field(at + 12)));
            let cell = [cell % cells[0], cell / cells[0] % cells[1], cell / (cells[0] * cells[1])];
            places.push(std::array::from_fn(|axis| {
                let inside = (number(at + 4 * axis) + 1.0) / 2.0;
                origin[axis] + (cell[axis] as f64 - 1.0 + inside) * widths[axis]
            }));
        }
    }
    Ok(places)
}

/// A rank of the simulation: its box of the domain, as numbers of the boxes along each axis, and its particles.
#[derive(Clone, Copy)]
struct Rank {
    cell: [usize; 3],
    rows: u64,
}

/// Divides a domain into boxes of equal size, one for each of about `count` ranks. Returns the ranks with particles.
fn ranks(domain: &Domain, count: usize) -> Vec<Rank> {
    let mut limits = [(f64::INFINITY, f64::NEG_INFINITY); 3];
    for place in &domain.places {
        for (limit, coordinate) in limits.iter_mut().zip(place) {
            *limit = (limit.0.min(*coordinate), limit.1.max(*coordinate));
        }
    }
    // The boxes of a simulation's ranks are about cubes.
    let lengths = limits.map(|(low, high)| (high - low).max(1e-9));
    let side = (lengths[..domain.axes].iter().product::<f64>() / count as f64).powf(1.0 / domain.axes as f64);
    let sides: [usize; 3] =
        std::array::from_fn(
            |axis| {
                if axis < domain.axes { ((lengths[axis] / side).round() as usize).max(1) } else { 1 }
            },
        );
    let mut rows = vec![0u64; sides.iter().product()];
    for place in &domain.places {
        let cell: [usize; 3] = std::array::from_fn(|axis| {
            let share = (place[axis] - limits[axis].0) / lengths[axis];
            ((share * sides[axis] as f64) as usize).min(sides[axis] - 1)
        });
        rows[(cell[0] * sides[1] + cell[1]) * sides[2] + cell[2]] += 1;
    }
    let rank = |(number, rows): (usize, u64)| Rank {
        cell: [number / (sides[1] * sides[2]), number / sides[2] % sides[1], number % sides[2]],
        rows,
    };
    rows.into_iter().enumerate().map(rank).filter(|rank| rank.rows > 0).collect()
}

/// Returns the smallest and the largest number of the ranks' boxes along each axis.
fn limits(ranks: &[Rank]) -> [(usize, usize); 3] {
    ranks.iter().fold([(usize::MAX, 0); 3], |limits, rank| {
        std::array::from_fn(|axis| (limits[axis].0.min(rank.cell[axis]), limits[axis].1.max(rank.cell[axis])))
    })
}

/// Assigns ranks to the cells of a uniform grid with as many cells as there are files of the target size. Returns the
/// loads of the cells that have particles.
fn uniform_grid(ranks: &[Rank], target: f64) -> Vec<u64> {
    let limits = limits(ranks);
    let lengths = limits.map(|(low, high)| high - low + 1);
    let total: u64 = ranks.iter().map(|rank| rank.rows).sum();
    let files = (total as f64 / target).max(1.0);
    let used = lengths.iter().filter(|length| **length > 1).count().max(1);
    let side = (lengths.iter().product::<usize>() as f64 / files).powf(1.0 / used as f64).max(1.0);
    let sides = lengths.map(|length| ((length as f64 / side).round() as usize).clamp(1, length));
    let mut loads = vec![0; sides.iter().product()];
    for rank in ranks {
        let cell: [usize; 3] =
            std::array::from_fn(|axis| (rank.cell[axis] - limits[axis].0) * sides[axis] / lengths[axis]);
        loads[(cell[0] * sides[1] + cell[1]) * sides[2] + cell[2]] += rank.rows;
    }
    loads.retain(|load| *load > 0);
    loads
}

/// Divides ranks along the longest axis until a leaf has at most the target size, and appends the loads of the leaves.
fn grow(mut ranks: Vec<Rank>, target: f64, overfull: f64, leaves: &mut Vec<u64>) {
    let total: u64 = ranks.iter().map(|rank| rank.rows).sum();
    let limits = limits(&ranks);
    let longest = (0..3).max_by_key(|axis| limits[*axis].1 - limits[*axis].0).unwrap_or(0);
    if total as f64 <= target || ranks.len() < 2 || limits[longest].0 == limits[longest].1 {
        leaves.push(total);
        return;
    }
    ranks.sort_by_key(|rank| rank.cell[longest]);
    let (mut below, mut best) = (0, (f64::INFINITY, 0));
    for place in 1..ranks.len() {
        below += ranks[place - 1].rows;
        if ranks[place - 1].cell[longest] != ranks[place].cell[longest] {
            let cost = (0.5 - below as f64 / total as f64).abs();
            best = if cost < best.0 { (cost, place) } else { best };
        }
    }
    if best.0 > BAD_DIVISION && total as f64 <= overfull * target {
        leaves.push(total);
        return;
    }
    let upper = ranks.split_off(best.1);
    grow(ranks, target, overfull, leaves);
    grow(upper, target, overfull, leaves);
}

/// Writes epochs with as many ranks as partitions. Returns the loads of each epoch.
fn ours(places: &[Place], partitions: usize, epochs: u64) -> Result<Vec<Vec<u64>>, Failure> {
    let folder = tempfile::tempdir()?;
    let columns = ["x", "y", "z"].map(|name| Column::new(name, DataType::F32)).to_vec();
    let mut options = WriteOptions::new(partitions as u32);
    options.part_bytes = Some(0);
    options.memtable_bytes = 1 << 20;
    options.pivots = argument("pivots", options.pivots.into()) as u32;
    let schema = Schema::clustered(columns, &"space:x,y,z".parse()?)?;
    let job = LocalJob::open_with(Arc::new(PartsNowhere::default()), folder.path().join("ds"), schema, options)?;
    let rows: Vec<[u8; 12]> = places
        .iter()
        .map(|place| {
            let mut row = [0; 12];
            row.chunks_exact_mut(4)
                .zip(place)
                .for_each(|(bytes, value)| bytes.copy_from_slice(&(*value as f32).to_le_bytes()));
            row
        })
        .collect();
    let slice = |rank: usize| &rows[rank * rows.len() / partitions..(rank + 1) * rows.len() / partitions];
    let longest = rows.len().div_ceil(partitions) + 1;
    let mut loads = Vec::new();
    for epoch in 0..epochs {
        job.begin_epoch(epoch)?;
        let append = argument("append", 1_000) as usize;
        for start in (0..longest).step_by(append) {
            for rank in 0..partitions {
                let slice = slice(rank);
                let rows = &slice[start.min(slice.len())..(start + append).min(slice.len())];
                let column = |axis: usize| {
                    ColumnView::new(
                        rows.as_flattened().get(4 * axis..).unwrap_or_default(),
                        12,
                        rows.len(),
                        DataType::F32,
                    )
                };
                job.append(rank as u32, &[column(0)?, column(1)?, column(2)?])?;
            }
        }
        loads.push(job.end_epoch()?.rows_per_receiver);
    }
    job.close()?;
    Ok(loads)
}
