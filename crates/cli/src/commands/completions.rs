//! `turbidite completions`: prints shell completion scripts.

use clap::{Args, Command};
use clap_complete::Shell;
use serde_json::json;

use super::answers::{say, say_json};
use crate::failure::Failure;

/// Print a shell completion script
#[derive(Debug, Args)]
#[command(after_help = "\
Where the shells look for scripts:

  bash: turbidite completions bash > ~/.local/share/bash-completion/completions/turbidite
  zsh:  turbidite completions zsh > DIRECTORY/_turbidite      (a directory of $fpath)
  fish: turbidite completions fish > ~/.config/fish/completions/turbidite.fish")]
pub(crate) struct Completions {
    /// The shell to complete in
    #[arg(value_enum)]
    shell: Shell,
}

impl Completions {
    /// Prints the script. `command` describes the whole command line.
    pub(crate) fn run(&self, mut command: Command, as_json: bool) -> Result<(), Failure> {
        let name = command.get_name().to_owned();
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command, name, &mut script);
        let script = String::from_utf8_lossy(&script);
        if as_json {
            return say_json(&json!({"shell": self.shell.to_string(), "script": script}));
        }
        say(script.trim_end())
    }
}
