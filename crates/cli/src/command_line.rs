//! Parses the command line, runs the selected command and reports its failure.

use std::io::Write;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};
use turbidite_source::panics;

use crate::commands;
use crate::failure::{Failure, complain};

/// Index simulation output as it is written, and query it.
#[derive(Debug, Parser)]
#[command(name = "turbidite", version, about, max_term_width = 100, disable_help_subcommand = true)]
#[command(after_help = "\
Exit codes: 0 success, 1 failure, 2 invalid request, 3 corrupt stored data.

  turbidite ingest dumps --out particles --key energy --derive 'energy=sqrt(1+ux*ux+uy*uy+uz*uz)-1'
  turbidite query particles --epoch 4000 --where 'energy >= 1.2 AND energy < 3' -o hot.parquet")]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
    /// Print results and errors as JSON
    #[arg(long, global = true, display_order = 900)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    Ingest(Box<commands::ingest::Ingest>),
    Query(commands::query::QueryCommand),
    Get(commands::get::Get),
    Compact(commands::compact::Compact),
    Index(commands::index::Index),
    Tracks(commands::tracks::TracksCommand),
    Aggregate(commands::aggregate::Aggregate),
    Stats(commands::stats::Stats),
    Hist(commands::hist::Hist),
    Quantiles(commands::quantiles::QuantilesCommand),
    Report(commands::report::Report),
    Verify(commands::verify::Verify),
    Inspect(commands::inspect::Inspect),
    Salvage(commands::salvage::Salvage),
    Simulate(Box<commands::simulate::Simulate>),
    Truncate(commands::truncate::Truncate),
    Completions(commands::completions::Completions),
    Man(commands::man::Man),
}

/// Runs the command given by this process's arguments.
pub(crate) fn main() -> ExitCode {
    let wants_json = std::env::args_os().any(|argument| argument == "--json");
    hook_panics(wants_json);
    let line = match CommandLine::try_parse() {
        Ok(line) => line,
        Err(error) => return refuse(&error, wants_json),
    };
    // Our own threads report panics as errors. A panic of the current thread is caught here, after the hook has
    // reported it.
    match std::panic::catch_unwind(|| run(&line)) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(failure)) => failure.report(line.json),
        Err(_) => ExitCode::from(1),
    }
}

fn run(line: &CommandLine) -> Result<(), Failure> {
    match &line.command {
        Command::Ingest(command) if command.follows() => commands::follow::run(command, line.json),
        Command::Ingest(command) => command.run(line.json),
        Command::Query(command) => command.run(line.json),
        Command::Get(command) => command.run(line.json),
        Command::Compact(command) => command.run(line.json),
        Command::Index(command) => command.run(line.json),
        Command::Tracks(command) => command.run(line.json),
        Command::Aggregate(command) => command.run(line.json),
        Command::Stats(command) => command.run(line.json),
        Command::Hist(command) => command.run(line.json),
        Command::Quantiles(command) => command.run(line.json),
        Command::Report(command) => command.run(line.json),
        Command::Verify(command) => command.run(line.json),
        Command::Inspect(command) => command.run(line.json),
        Command::Salvage(command) => command.run(line.json),
        Command::Simulate(command) => command.run(line.json),
        Command::Truncate(command) => command.run(line.json),
        Command::Completions(command) => command.run(CommandLine::command(), line.json),
        Command::Man(command) => command.run(CommandLine::command(), line.json),
    }
}

/// Prints help and version as results, and all parse errors as usage errors.
fn refuse(error: &clap::Error, as_json: bool) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        let shown = error.render();
        let styled = std::io::IsTerminal::is_terminal(&std::io::stdout());
        let text = if styled { shown.ansi().to_string() } else { shown.to_string() };
        let _ = std::io::stdout().write_all(text.as_bytes());
        return ExitCode::SUCCESS;
    }
    let text = error.render().to_string();
    let message = text.strip_prefix("error: ").unwrap_or(&text).trim_end();
    Failure::Usage(message.to_owned()).report(as_json)
}

/// Installs a hook that prints a panic as an error of one line, with the panic's location.
fn hook_panics(as_json: bool) {
    std::panic::set_hook(Box::new(move |panic| {
        if panics::is_caught() {
            return;
        }
        let what = panics::text(panic.payload());
        let place = panic.location().map(|place| format!(" at {}:{}", place.file(), place.line())).unwrap_or_default();
        let failure = Failure::Internal(format!("{what}{place}"));
        if as_json {
            let _ = failure.report(true);
        } else {
            complain(&format!("turbidite: {failure}"));
        }
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn every_command_and_every_option_is_described() {
        fn check(command: &clap::Command) {
            let name = command.get_name();
            assert!(command.get_about().is_some_and(|about| about.to_string().len() > 5), "{name}");
            for argument in command.get_arguments() {
                let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
                assert!(help.len() > 10 || argument.get_id() == "dataset", "{name} {}: '{help}'", argument.get_id());
            }
            command.get_subcommands().for_each(check);
        }
        check(&CommandLine::command());
    }

    #[test]
    fn every_help_fits_on_two_screens() {
        fn help(words: &[&str], flag: &str) -> String {
            let line = CommandLine::command().term_width(100);
            line.try_get_matches_from(words.iter().copied().chain([flag])).unwrap_err().to_string()
        }
        fn check<'a>(command: &'a clap::Command, mut words: Vec<&'a str>) {
            words.push(command.get_name());
            let shown = help(&words, "--help");
            assert_eq!(shown, help(&words, "-h"), "{words:?}");
            assert!(shown.contains("Usage:") && shown.lines().count() <= 100, "{words:?}: {shown}");
            command.get_subcommands().for_each(|command| check(command, words.clone()));
        }
        check(&CommandLine::command(), Vec::new());
    }
}
