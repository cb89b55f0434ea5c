//! `turbidite man`: prints manual pages, which are generated from the same description as `--help`.

use clap::{Args, Command};
use serde_json::json;

use super::answers::{say, say_json};
use crate::failure::{Failure, on_stdout};

/// Print the manual page of turbidite or of one of its commands
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:

  turbidite man | man -l -
  turbidite man ingest > ~/.local/share/man/man1/turbidite-ingest.1")]
pub(crate) struct Man {
    /// The command to print the page of, such as ingest
    command: Option<String>,
}

impl Man {
    /// Prints the page. `command` describes the whole command line.
    pub(crate) fn run(&self, mut command: Command, as_json: bool) -> Result<(), Failure> {
        // Building sets the full names of the commands, and their global options.
        command.build();
        let described = match &self.command {
            None => &command,
            Some(name) => command.find_subcommand(name).ok_or_else(|| {
                let known: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
                Failure::Usage(format!("there is no command '{name}'; the commands are {}", known.join(", ")))
            })?,
        };
        let mut page = Vec::new();
        clap_mangen::Man::new(described.clone()).render(&mut page).map_err(on_stdout)?;
        let page = String::from_utf8_lossy(&page);
        if as_json {
            return say_json(&json!({"command": described.get_name(), "page": page}));
        }
        say(page.trim_end())
    }
}
