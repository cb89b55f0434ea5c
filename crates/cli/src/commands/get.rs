//! `turbidite get`: prints the rows of particles, given their ids.

use std::path::PathBuf;

use clap::Args;
use turbidite::query::TrackRequest;

use super::trajectories::{TrajectoryOptions, parse_ids};
use crate::failure::Failure;

/// Print the rows of particles by id
#[derive(Debug, Args)]
#[command(after_help = "\
  turbidite get particles 17 42 --id id --epoch 4000 --columns energy,ux
  turbidite get particles 3:17 --id cpu,id
  turbidite get particles --id id -- -17 -3")]
pub(crate) struct Get {
    /// The dataset
    dataset: PathBuf,
    /// The ids: integers, fixed_bytes such as 0x0a1b, or several of these with colons between them
    #[arg(required = true, value_name = "ID", allow_negative_numbers = true)]
    ids: Vec<String>,
    #[command(flatten)]
    options: TrajectoryOptions,
}

impl Get {
    pub(crate) fn run(&self, as_json: bool) -> Result<(), Failure> {
        self.options
            .print(&self.dataset, as_json, |schema, id| Ok(TrackRequest::of_ids(parse_ids(&self.ids, schema, id)?, id)))
    }
}
