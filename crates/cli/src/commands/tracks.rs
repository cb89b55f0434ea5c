//! `turbidite tracks`: follows the same particles through all epochs.

use std::path::PathBuf;

use clap::Args;
use turbidite::Error;
use turbidite::query::TrackRequest;

use super::trajectories::{TrajectoryOptions, parse_ids};
use crate::failure::Failure;

/// Track particles through epochs
///
/// Selects the particles that match --of at epoch --at, or those of --ids, and prints their rows in all epochs: the id,
/// the epoch, then the other columns, sorted by id and epoch. Particles that are missing in some epochs, and rows with
/// a duplicate id and epoch, are counted on standard error.
#[derive(Debug, Args)]
#[command(after_long_help = "\
  turbidite tracks particles --of 'energy > 100' --at 4000 --id id -o hot.parquet
  turbidite tracks particles --of 'energy > 100' --at 4000 --id id --epoch 2000..4000 --columns energy,ux
  turbidite tracks particles --ids 17,42 --id id
  turbidite tracks particles --ids @chosen.txt --id id

An id is an integer, fixed_bytes (in hexadecimal digits), or several of them with colons between them; at most 1,000,000 particles are tracked at once. Rows are sorted
in 64 MiB of memory; beyond that they spill to an unnamed temporary file in the output's folder, or, without -o, in $TMPDIR.")]
pub(crate) struct TracksCommand {
    /// The dataset
    dataset: PathBuf,
    /// Select the particles that match this expression at epoch --at
    #[arg(long, value_name = "EXPRESSION", requires = "at", required_unless_present = "ids")]
    of: Option<String>,
    /// The epoch at which particles are selected
    #[arg(long, value_name = "E", requires = "of")]
    at: Option<u64>,
    /// Select particles by id, separated by commas; or by the ids in a file, separated by commas or white space
    #[arg(long, value_name = "A,B,…|@FILE", conflicts_with_all = ["of", "at"])]
    ids: Option<String>,
    #[command(flatten)]
    options: TrajectoryOptions,
}

impl TracksCommand {
    pub(crate) fn run(&self, as_json: bool) -> Result<(), Failure> {
        let printed = self.options.print(&self.dataset, as_json, |schema, id| match (&self.ids, &self.of, self.at) {
            (Some(ids), _, _) => Ok(TrackRequest::of_ids(parse_ids(&[listed(ids)?], schema, id)?, id)),
            (None, Some(of), Some(at)) => Ok(TrackRequest::new(of, at, id)),
            (None, ..) => Err(Failure::Usage("state --of and --at, or --ids".to_owned())),
        });
        printed.map_err(|failure| self.wrong(failure))
    }

    /// Converts a failure. If the predicate caused it, the message contains the predicate.
    fn wrong(&self, failure: Failure) -> Failure {
        match (failure, &self.of) {
            (Failure::Dataset(Error::Expression(error)), Some(of)) => Failure::Usage(format!("--of '{of}': {error}")),
            (other, _) => other,
        }
    }
}

/// Returns the list of ids that `--ids` states, or that is in the file that it names.
fn listed(stated: &str) -> Result<String, Failure> {
    match stated.strip_prefix('@') {
        None => Ok(stated.to_owned()),
        Some(path) => std::fs::read_to_string(path).map_err(|source| Failure::File {
            operation: "read the ids in",
            path: path.into(),
            source,
        }),
    }
}
