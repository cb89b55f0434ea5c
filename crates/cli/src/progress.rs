//! Progress for programs: lines of JSON on standard error. People see a bar, which their terminal draws.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use indicatif::ProgressBar;
use serde_json::json;

use crate::failure::complain;

/// Minimum interval between two lines.
const INTERVAL: Duration = Duration::from_millis(100);

/// Prints a line whenever the progress has changed, until it is finished or dropped.
pub(crate) struct ProgressLines {
    total: Box<dyn Fn() -> u64>,
    stop: Sender<()>,
    /// Returns what it has printed last.
    thread: Option<JoinHandle<(u64, u64)>>,
}

impl ProgressLines {
    /// Starts to print lines of what is done and of the total. A total of 0 is not known yet.
    pub(crate) fn start(
        done: impl Fn() -> u64 + Send + 'static,
        total: impl Fn() -> u64 + Clone + Send + 'static,
    ) -> Self {
        let (stop, stopped) = channel();
        let known = total.clone();
        let print = move || {
            let mut last = (0, 0);
            while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                let now = (done(), total());
                if now.1 > 0 && now != last {
                    print_progress(now.0, now.1);
                    last = now;
                }
            }
            last
        };
        // Without a thread, only the end is told.
        let thread = std::thread::Builder::new().name("progress".to_owned()).spawn(print).ok();
        Self { total: Box::new(known), stop, thread }
    }

    /// Starts to print the progress of a bar.
    pub(crate) fn of_bar(bar: &ProgressBar) -> Self {
        let (position, length) = (bar.clone(), bar.clone());
        Self::start(move || position.position(), move || length.length().unwrap_or(0))
    }

    /// Tells that everything is done.
    pub(crate) fn finish(mut self) {
        let last = self.stop();
        let total = (self.total)();
        if total > 0 && last != (total, total) {
            print_progress(total, total);
        }
    }

    /// Ends the thread. Returns what it has printed last.
    fn stop(&mut self) -> (u64, u64) {
        // Without a thread, nobody receives.
        let _ = self.stop.send(());
        // A panic of the thread has been reported.
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

impl Drop for ProgressLines {
    /// Ends the lines before an error is printed.
    fn drop(&mut self) {
        self.stop();
    }
}

fn print_progress(done: u64, total: u64) {
    complain(&json!({"progress": {"done": done, "total": total}}).to_string());
}
