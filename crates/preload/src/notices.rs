//! Prints messages on standard error. Each message is printed once, by one rank, in one write.

use std::io;
use std::path::Path;

use crate::config::{DatasetPlan, Format};
use crate::spool::{Leftover, Spooled};

/// Prints a message on standard error.
pub(crate) fn complain(what: &str) {
    complain_in_lines(&[what.to_owned()]);
}

/// Prints several messages, one per line, without lines of other ranks between them.
pub(crate) fn complain_in_lines(lines: &[String]) {
    use std::io::Write;
    let text: String = lines.iter().map(|line| format!("turbidite: {line}\n")).collect();
    // An error of standard error cannot be reported anywhere.
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Reports that a file stays in the spool because it could not be moved to its original path.
pub(crate) fn complain_of_place(spool: &Spooled, error: &io::Error) {
    complain(&format!(
        "cannot move {} out of the spool: {error}; the complete file is {}: copy it before the job loses this node, or run \
         'turbidite salvage --spool {} --put-in-place' on this node",
        spool.path().display(),
        spool.place().display(),
        spool.root().display(),
    ));
}

/// Returns whether this process is rank 0 according to its launcher's environment variables. For use without MPI.
pub(crate) fn is_first_of_launch() -> bool {
    const RANKS: [&str; 5] = ["PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID"];
    let rank = RANKS.iter().find_map(|name| std::env::var(name).ok());
    rank.is_none_or(|rank| rank.trim() == "0")
}

/// Returns a path relative to the folder in which the program was started.
pub(crate) fn display(path: &Path) -> String {
    let here = std::env::current_dir().ok();
    let shown = here.and_then(|here| path.strip_prefix(here).ok().map(Path::to_owned));
    shown.filter(|path| !path.as_os_str().is_empty()).unwrap_or_else(|| path.to_owned()).display().to_string()
}

/// Returns a number with its thousands grouped.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns a number with its noun: "1 epoch", "2 epochs".
pub(crate) fn count(number: u64, what: &str) -> String {
    format!("{} {what}{}", grouped(number), if number == 1 { "" } else { "s" })
}

/// Returns the end of a message, with the command that indexes the files later. `example` is one of the files.
pub(crate) fn ingest_command(plan: &DatasetPlan, example: Option<&Path>) -> String {
    let (names, description, how) = match plan.format {
        // `turbidite ingest` finds VPIC's step folders itself.
        Format::Vpic => (2, species(example).map(|name| format!("--species {}", quoted(&name))), String::new()),
        Format::Records if !plan.pattern.names_records() => {
            let config = plan.config.display();
            let how = format!(", with the files and fields of {config} in a layout file (turbidite ingest --help),");
            (plan.pattern.names(), Some("--layout LAYOUT.toml".to_owned()), how)
        }
        Format::Records | Format::Lammps => return String::new(),
    };
    let folder = example.and_then(|path| path.ancestors().nth(names));
    let folder = folder.map_or_else(|| "FOLDER".to_owned(), |folder| quoted(&folder.display().to_string()));
    let mut command = vec![format!("turbidite ingest {folder}")];
    command.extend(description);
    let (out, key) = (plan.out.display().to_string(), plan.schema.cluster_key().to_string());
    command.push(format!("--out {} --key {}", quoted(&out), quoted(&key)));
    command.extend(plan.derivation_texts.iter().map(|text| format!("--derive {}", quoted(text))));
    command.extend(plan.indexes.iter().map(|index| format!("--index {}", quoted(&index.to_string()))));
    command.extend(plan.dropped.iter().map(|name| format!("--drop {}", quoted(name))));
    format!("; index them later{how} with: {} --if-exists skip", command.join(" "))
}

/// Returns the species of a VPIC dump, from its name.
fn species(example: Option<&Path>) -> Option<String> {
    let name = example?.file_name()?.to_str()?;
    name.split_once('.').map(|(species, _)| species.to_owned())
}

/// Returns a word quoted for a shell.
fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+=:,@%".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// Returns the message about files that a killed run left in a spool.
pub(crate) fn of_leftover(leftover: &Leftover, root: &Path, plans: &[&DatasetPlan]) -> String {
    let who = leftover.owner.as_ref().map_or_else(
        || "a killed run".to_owned(),
        |owner| format!("a killed run (process {} on {}, {})", owner.process, owner.host, owner.config.display()),
    );
    let first = leftover.paths.first();
    let of = |plan: &&&DatasetPlan| first.is_some_and(|path| plan.pattern.matches(&path.to_string_lossy()).is_some());
    let later = plans.iter().find(of).map(|plan| ingest_command(plan, first.map(|path| path.as_path())));
    format!(
        "{who} left {} of {:.1} MB in the spool, {}: {}{}; move them to their original paths with: turbidite salvage \
         --spool {} --put-in-place{}",
        count(leftover.paths.len() as u64, "file"),
        leftover.bytes as f64 / 1e6,
        leftover.folder.display(),
        first.map(|path| path.display().to_string()).unwrap_or_default(),
        if leftover.paths.len() > 1 { ", …" } else { "" },
        quoted(&root.display().to_string()),
        later.unwrap_or_default(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        let grouped = [0, 12, 123, 1234, 7_340_032].map(grouped);
        assert_eq!(grouped, ["0", "12", "123", "1,234", "7,340,032"]);
        assert_eq!((count(1, "epoch"), count(2, "epoch")), ("1 epoch".to_owned(), "2 epochs".to_owned()));
    }

    #[test]
    fn words_are_quoted_for_the_shell() {
        assert_eq!(quoted("/a/b_c.tbd"), "/a/b_c.tbd");
        assert_eq!(quoted("energy = sqrt(x)"), "'energy = sqrt(x)'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
