//! Runs one reader of the package, and exchanges messages with it.

use std::io::{self, BufRead, BufReader, Read as _, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde::de::DeserializeOwned;

use super::messages::{Greeting, Outcome, Refusal, Request, Rows};
use crate::error::SourceError;

/// The environment variable that names the Python interpreter.
const INTERPRETER: &str = "TURBIDITE_PYTHON";

/// The release of this command. Readers of another one are refused.
const RELEASE: &str = env!("CARGO_PKG_VERSION");

/// Maximum length of an answer's line. An index of offsets for 10⁹ rows of text is below 1 MB.
const LONGEST_LINE_BYTES: u64 = 256 << 20;

/// A running reader. Dropping it ends the process.
#[derive(Debug)]
pub(super) struct ReaderProcess {
    interpreter: PathBuf,
    /// The source, for messages.
    source: PathBuf,
    child: Child,
    /// `None` once the process is to end.
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    /// Whether the reader has stated its release.
    has_greeted: bool,
    /// Whether the reader has answered a request.
    has_answered: bool,
}

/// Returns the interpreter: the stated one, the one beside this program, or the one of the path.
fn interpreter() -> PathBuf {
    if let Some(stated) = std::env::var_os(INTERPRETER).filter(|stated| !stated.is_empty()) {
        return stated.into();
    }
    let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join("python3")));
    beside.filter(|path| path.exists()).unwrap_or_else(|| "python3".into())
}

impl ReaderProcess {
    /// Starts a reader.
    pub(super) fn start(source: &Path) -> Result<Self, SourceError> {
        let interpreter = interpreter();
        let spawned = Command::new(&interpreter)
            .args(["-m", "turbidite.sources"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let no_reader = |why: String| {
            SourceError::Usage(format!(
                "{}: files of this kind are read by Turbidite's Python package, but '{}' cannot be started: {why}; \
                 set {INTERPRETER} to a Python that has the package",
                source.display(),
                interpreter.display()
            ))
        };
        let mut child = spawned.map_err(|error| no_reader(error.to_string()))?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(requests), Some(answers)) => Ok(Self {
                interpreter,
                source: source.to_owned(),
                child,
                requests: Some(requests),
                answers: BufReader::with_capacity(1 << 16, answers),
                has_greeted: false,
                has_answered: false,
            }),
            _ => Err(no_reader("it has no pipes".into())),
        }
    }

    /// Sends a request and returns the answer's line.
    pub(super) fn ask<T: DeserializeOwned>(&mut self, request: &Request<'_>) -> Result<T, SourceError> {
        let mut line = serde_json::to_vec(request).map_err(|error| self.unexpected(&error.to_string()))?;
        line.push(b'\n');
        let sent = self.requests.as_mut().map_or(Ok(()), |requests| requests.write_all(&line));
        if sent.is_err() {
            return Err(self.ended());
        }
        if !self.has_greeted {
            self.greet()?;
        }
        self.receive(&mut line)?;
        self.has_answered = true;
        // An inventory of 100,000 epochs is too large for a tree of JSON values.
        let Outcome { error } = serde_json::from_slice(&line).map_err(|error| self.unexpected(&error.to_string()))?;
        match error {
            Some(refusal) => Err(self.refused(refusal)),
            None => serde_json::from_slice(&line).map_err(|error| self.unexpected(&error.to_string())),
        }
    }

    /// Receives a line.
    fn receive(&mut self, line: &mut Vec<u8>) -> Result<(), SourceError> {
        line.clear();
        let received = (&mut self.answers).take(LONGEST_LINE_BYTES).read_until(b'\n', line);
        if received.is_err() || line.last() != Some(&b'\n') {
            return Err(self.ended());
        }
        Ok(())
    }

    /// Receives the greeting, and refuses a package of another release.
    fn greet(&mut self) -> Result<(), SourceError> {
        let mut line = Vec::new();
        self.receive(&mut line)?;
        self.has_greeted = true;
        // Packages without a greeting begin with the answer to the first request.
        let release = match serde_json::from_slice(&line) {
            Ok(Greeting { release }) if release == RELEASE => return Ok(()),
            Ok(Greeting { release }) => format!("release {release}"),
            Err(_) => "another release".to_owned(),
        };
        Err(SourceError::Usage(format!(
            "{}: files of this kind are read by Turbidite's Python package, but '{}' has {release} of it, and this command \
             is release {RELEASE}; install both from one release, or set {INTERPRETER} to a Python that has {RELEASE}",
            self.source.display(),
            self.interpreter.display()
        )))
    }

    /// Sends a request for a block, and fills `values` with its values, whose length the caller has set.
    pub(super) fn read_values(
        &mut self,
        request: &Request<'_>,
        rows: u64,
        values: &mut [u8],
    ) -> Result<(), SourceError> {
        let answer: Rows = self.ask(request)?;
        if answer.rows != rows {
            return Err(self.unexpected(&format!("{} rows instead of {rows}", answer.rows)));
        }
        self.answers.read_exact(values).map_err(|_: io::Error| self.ended())
    }

    fn refused(&self, Refusal { class, path, message }: Refusal) -> SourceError {
        let path = path.unwrap_or_else(|| self.source.clone());
        match class.as_str() {
            "usage" => SourceError::Usage(format!("{}: {message}", path.display())),
            _ => SourceError::Unfit { path, what: message },
        }
    }

    /// Returns the error for a reader that has ended without an answer.
    fn ended(&mut self) -> SourceError {
        self.requests = None;
        let how = self.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
        let reader = format!("'{} -m turbidite.sources' has ended ({how})", self.interpreter.display());
        if self.has_answered {
            let what = format!("{reader} while it read; its messages are above; check the file with other tools");
            return SourceError::Unfit { path: self.source.clone(), what };
        }
        SourceError::Usage(format!(
            "{}: files of this kind are read by Turbidite's Python package, but {reader}; install the package for this \
             Python, or set {INTERPRETER} to a Python that has it",
            self.source.display()
        ))
    }

    fn unexpected(&self, what: &str) -> SourceError {
        let what = format!(
            "unexpected answer of the Python package's reader: {what}; package and command may be of different releases"
        );
        SourceError::Unfit { path: self.source.clone(), what }
    }
}

impl Drop for ReaderProcess {
    /// Ends the reader by closing its standard input, so that it can remove its temporary files.
    fn drop(&mut self) {
        self.requests = None;
        // An answer that nobody reads would keep the reader waiting.
        drop(io::copy(&mut self.answers, &mut io::sink()));
        drop(self.child.wait());
    }
}
