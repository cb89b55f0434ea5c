//! `turbidite tracks`: follows the same particles through all epochs.

use std::path::PathBuf;

use clap::Args;
use turbidite::query::{Query, TrackRequest};

use super::boxes::{self, BoxOptions};
use super::trajectories::{TrajectoryOptions, parse_ids};
use crate::failure::Failure;

/// The help of `--box`, which selects particles here, and rows in other commands.
const BOX_HELP: &str = "Select the particles within a box at epoch --at, the low ends included, the high ends not";

/// Track particles through epochs
#[derive(Debug, Args)]
#[command(after_help = "\
Rows are sorted by id and epoch. Missing and duplicate ids are counted on standard error. See docs/cli.md.

  turbidite tracks particles --of 'energy > 100' --at 4000 --id id -o hot.parquet
  turbidite tracks particles --of 'energy > 100' --at 4000 --id id --epoch 2000..4000 --columns energy,ux
  turbidite tracks particles --box x=0:10,z=-5:5 --at 4000 --id id
  turbidite tracks particles --ids @chosen.txt --id id")]
#[command(mut_arg("sides", |sides| sides.help(BOX_HELP)))]
pub(crate) struct TracksCommand {
    /// The dataset
    dataset: PathBuf,
    /// Select the particles that match this expression at epoch --at
    #[arg(long, value_name = "EXPRESSION", allow_hyphen_values = true)]
    #[arg(requires = "at", required_unless_present_any = ["ids", "sides"])]
    of: Option<String>,
    #[command(flatten)]
    space: BoxOptions,
    /// The epoch at which particles are selected
    #[arg(long, value_name = "E")]
    at: Option<u64>,
    /// Select particles by id; a file has ids separated by commas or white space
    #[arg(long, value_name = "A,B,…|@FILE", allow_hyphen_values = true, conflicts_with_all = ["of", "at", "sides"])]
    ids: Option<String>,
    #[command(flatten)]
    options: TrajectoryOptions,
}

impl TracksCommand {
    pub(crate) fn run(&self, as_json: bool) -> Result<(), Failure> {
        let printed = self.options.print(&self.dataset, as_json, |schema, id| match (&self.ids, self.at) {
            (Some(ids), _) => Ok(TrackRequest::of_ids(parse_ids(&[listed(ids)?], schema, id)?, id)),
            (None, Some(at)) if self.of.is_some() || self.space.is_stated() => {
                Ok(TrackRequest::of_query(self.selected(), at, id))
            }
            (None, _) => Err(Failure::Usage("state --at and --of or --box, or --ids".to_owned())),
        });
        printed.map_err(|failure| self.wrong(failure))
    }

    /// Returns the query of the rows at epoch --at.
    fn selected(&self) -> Query {
        let query = self.space.restrict(Query::new());
        match &self.of {
            Some(of) => query.filter(of),
            None => query,
        }
    }

    /// Converts a failure. If predicate or box caused it, the message contains them.
    fn wrong(&self, failure: Failure) -> Failure {
        match failure {
            Failure::Dataset(error) => boxes::wrong(error, "--of", self.of.as_deref()),
            other => other,
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
