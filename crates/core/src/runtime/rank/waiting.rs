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

/// The time after a large append in which a rank still receives records.
///
/// Ranks usually append together. The first to finish would leave the others without credit until its next call, which
/// may come after a long computation. The time ends when no message has moved for a quarter of the append's duration,
/// and after four times that duration at the latest.
#[derive(Debug)]
pub(super) struct Linger {
    idle: Duration,
    end: Duration,
    last_moved: Duration,
}

impl Linger {
    /// Begins the time after an append from `begun` to `now`.
    pub(super) fn new(begun: Duration, now: Duration) -> Self {
        let duration = now.saturating_sub(begun);
        Self { idle: duration / 4, end: now.saturating_add(duration * 4), last_moved: now }
    }

    /// Returns whether to exchange messages once more. `moved` states whether the last exchange moved a message.
    pub(super) fn goes_on(&mut self, now: Duration, moved: bool) -> bool {
        if moved {
            self.last_moved = now;
        }
        now < self.end && now.saturating_sub(self.last_moved) < self.idle
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_lingers_while_messages_move_but_not_for_ever() {
        let at = Duration::from_millis;
        // An append of 40 ms, until 100 ms.
        let linger = || Linger::new(at(60), at(100));
        assert!(linger().goes_on(at(109), false));
        assert!(!linger().goes_on(at(110), false), "nobody sends");
        let mut busy = linger();
        assert!((0..16).all(|turn| busy.goes_on(at(100 + 9 * turn), true)));
        assert!(busy.goes_on(at(244), false) && !busy.goes_on(at(245), false), "ten ms after the last message");
        let mut endless = linger();
        assert!((100..260).all(|now| endless.goes_on(at(now), true)));
        assert!(!endless.goes_on(at(260), true), "four times the append");
        assert!(!Linger::new(at(5), at(5)).goes_on(at(5), true), "an append that took no time");
    }
}
