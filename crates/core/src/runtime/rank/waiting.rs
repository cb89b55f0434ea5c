//! Waiting without progress. Calls yield at first, since another rank's reply often takes only microseconds. They sleep
//! later, since ranks may share processors.

use std::time::Duration;

use crate::runtime::{Background, Host};

/// Number of pauses that only yield the processor.
const YIELDS: u32 = 64;

/// Maximum duration of a sleep. Sleeps become longer up to this limit.
const MAX_SLEEP: Duration = Duration::from_micros(200);

const SHORTEST_SLEEP: Duration = Duration::from_micros(10);

/// A wait without any progress.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    begun: Option<Duration>,
    pauses: u32,
    sleep: Duration,
}

impl Waiting {
    /// Pauses once. The pause ends early when more than `seen` background tasks are completed. Returns whether they
    /// are.
    pub(super) fn pause(&mut self, host: &dyn Host, background: &Background, seen: u64) -> bool {
        self.begun.get_or_insert_with(|| host.now());
        self.pauses = self.pauses.saturating_add(1);
        if self.pauses > YIELDS {
            self.sleep = (self.sleep * 2).clamp(SHORTEST_SLEEP, MAX_SLEEP);
        }
        host.pause(self.sleep, background, seen);
        background.completions() != seen
    }

    /// Returns the time without progress.
    pub(super) fn waited(&self, host: &dyn Host) -> Duration {
        self.begun.map_or(Duration::ZERO, |begun| host.now().saturating_sub(begun))
    }
}
