//! How a call waits when nothing moves: by yielding at first, since an answer of another rank is often microseconds away,
//! then by sleeping, since ranks may share processors.

use std::time::Duration;

use crate::runtime::{Background, Host};

/// Pauses that only yield the processor.
const YIELDS: u32 = 64;

/// The longest sleep; they grow to it.
const LONGEST_SLEEP: Duration = Duration::from_micros(200);

const SHORTEST_SLEEP: Duration = Duration::from_micros(10);

/// A wait in which nothing has moved so far.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    begun: Option<Duration>,
    pauses: u32,
    sleep: Duration,
}

impl Waiting {
    /// Pauses once, shorter when more than `seen` pieces of the background's work are done. Answers whether that is so.
    pub(super) fn pause(&mut self, host: &dyn Host, background: &Background, seen: u64) -> bool {
        self.begun.get_or_insert_with(|| host.now());
        self.pauses = self.pauses.saturating_add(1);
        if self.pauses > YIELDS {
            self.sleep = (self.sleep * 2).clamp(SHORTEST_SLEEP, LONGEST_SLEEP);
        }
        host.pause(self.sleep, background, seen);
        background.completions() != seen
    }

    /// How long nothing has moved.
    pub(super) fn waited(&self, host: &dyn Host) -> Duration {
        self.begun.map_or(Duration::ZERO, |begun| host.now().saturating_sub(begun))
    }
}
