//! Programs that mpiexec has started in several processes, and that open a dataset without a transport between them.
//! Processes with a dataset each are fine. Ranks of one dataset that do this by mistake would each write it alone.

use std::path::Path;
use std::time::{Duration, SystemTime};

use turbidite::store::DatasetPaths;

/// Environment variables in which launchers state the number of processes.
const SIZES: [&str; 4] = ["PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"];

/// Clock ticks per second in /proc, on all architectures that we build for.
const TICKS_PER_S: f64 = 100.0;

/// Returns the advice for a process that opens a dataset alone, or `None` if it is the only process of its launch.
pub(crate) fn advice() -> Option<String> {
    let size = SIZES.iter().find_map(|name| std::env::var(name).ok()?.trim().parse::<u32>().ok())?;
    (size > 1).then(|| {
        format!(
            "this is one of {size} processes, and opened the dataset without a transport: if they write one dataset, open it \
             with a transport between them (turbidite_mpi_open)"
        )
    })
}

/// Returns whether an epoch of the dataset at `path` was written since this process started.
pub(crate) fn is_new(path: &Path, epoch: u64) -> bool {
    let written = DatasetPaths::new(path).epoch(epoch).metadata().and_then(|about| about.modified());
    written.ok().zip(started()).is_some_and(|(written, started)| written > started)
}

/// Returns the time at which this process started.
fn started() -> Option<SystemTime> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The fields after the name, which is in parentheses, begin with the third one. The start time is field 22.
    let ticks: f64 = stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()?;
    let uptime = std::fs::read_to_string("/proc/uptime").ok()?;
    let uptime_s: f64 = uptime.split_ascii_whitespace().next()?.parse().ok()?;
    let age_s = (uptime_s - ticks / TICKS_PER_S).max(0.0);
    SystemTime::now().checked_sub(Duration::try_from_secs_f64(age_s).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_has_started_a_short_time_ago() {
        let started = started().unwrap();
        let age = SystemTime::now().duration_since(started).unwrap();
        assert!(age < Duration::from_secs(3600), "{age:?}");
    }

    #[test]
    fn epochs_are_dated() {
        let folder = tempfile::tempdir().unwrap();
        let path = DatasetPaths::new(folder.path()).epoch(3);
        std::fs::create_dir_all(&path).unwrap();
        let (now, far) = (SystemTime::now(), Duration::from_secs(1_000_000));
        for (written, expected) in [(now + far, true), (now - far, false)] {
            std::fs::File::open(&path).unwrap().set_modified(written).unwrap();
            assert_eq!(is_new(folder.path(), 3), expected);
        }
        assert!(!is_new(folder.path(), 4));
    }
}
