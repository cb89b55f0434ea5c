//! How a call waits when nothing moves: by yielding at first, since an answer of another rank is often microseconds away,
//! then by sleeping, since ranks may share processors.

use std::time::{Duration, Instant};

use crate::drivers::pool::TaskQueue;

/// Pauses that only yield the processor.
const YIELDS: u32 = 64;

/// The longest sleep; they grow to it.
const LONGEST_SLEEP: Duration = Duration::from_micros(200);

const SHORTEST_SLEEP: Duration = Duration::from_micros(10);

/// A wait in which nothing has moved so far.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    begun: Option<Instant>,
    pauses: u32,
    sleep: Duration,
}

impl Waiting {
    /// Pauses once, shorter when the background thread completes something more than the first `seen` tasks. Answers whether
    /// it did.
    pub(super) fn pause(&mut self, queue: &TaskQueue, seen: u64) -> bool {
        self.begun.get_or_insert_with(Instant::now);
        self.pauses = self.pauses.saturating_add(1);
        if self.pauses <= YIELDS {
            std::thread::yield_now();
        } else {
            self.sleep = (self.sleep * 2).clamp(SHORTEST_SLEEP, LONGEST_SLEEP);
            queue.wait(seen, self.sleep);
        }
        queue.completions() != seen
    }

    /// How long nothing has moved.
    pub(super) fn waited(&self) -> Duration {
        self.begun.map_or(Duration::ZERO, |begun| begun.elapsed())
    }
}
