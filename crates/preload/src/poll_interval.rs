//! Computes the number of the program's collective calls between two questions. In a question, the ranks ask each other
//! which epochs are complete.
//!
//! A question is collective, but clocks differ between ranks. Ranks therefore count calls, and derive the number from
//! values that all ranks have agreed on. A question takes some 10 µs. A program with few collective calls can ask in
//! every call. A program that makes collective calls as fast as possible asks in one of 256. Programs such as LAMMPS
//! make many calls at their start and few later, and must not skip many of the later calls. Questions therefore have a
//! time allowance, and calls are skipped only once the allowance is used up.

use std::time::Duration;

/// Time between questions from which their cost is negligible.
const LONG: Duration = Duration::from_millis(20);

/// Share of the elapsed time that questions may take, as a divisor.
const SHARE: u32 = 100;

/// Initial and maximum time allowance for questions.
const ALLOWANCE: Duration = Duration::from_millis(50);

/// Maximum number of collective calls between two questions. A question consists of one or two collective calls itself.
const MAX_CALLS: u64 = 256;

#[derive(Debug)]
pub(crate) struct PollInterval {
    interval: u64,
    allowed: Duration,
}

impl PollInterval {
    pub(crate) fn new() -> Self {
        Self { interval: 1, allowed: ALLOWANCE }
    }

    /// Returns the number of calls until the next question. `elapsed` is the time since the last question, and
    /// `question` the duration of that question. Both are minima over all ranks.
    pub(crate) fn after(&mut self, elapsed: Duration, question: Duration) -> u64 {
        let earned = (self.allowed + elapsed / SHARE).min(ALLOWANCE);
        let can_afford = earned > question;
        self.allowed = earned.saturating_sub(question);
        self.interval = if elapsed >= LONG {
            let times = (elapsed.as_micros() / LONG.as_micros()).max(2) as u64;
            (self.interval / times).max(1)
        } else if can_afford {
            (self.interval / 2).max(1)
        } else {
            (self.interval * 2).min(MAX_CALLS)
        };
        self.interval
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICROSECOND: Duration = Duration::from_micros(1);

    /// Returns the number of questions and their share of the time, for a program that makes `calls` calls at intervals
    /// of `call`.
    fn ask(pace: &mut PollInterval, calls: u64, call: Duration, question: Duration) -> (u64, f64) {
        let (mut passed, mut questions, mut interval) = (0, 0, 1);
        while passed < calls {
            passed += interval;
            questions += 1;
            interval = pace.after(call * interval as u32, question);
        }
        let (asked, all) = (question * questions as u32, call * passed as u32);
        (questions, asked.as_secs_f64() / all.as_secs_f64())
    }

    #[test]
    fn calls_that_never_end_are_hardly_asked_in() {
        let (_, share) = ask(&mut PollInterval::new(), 20_000_000, 5 * MICROSECOND, 10 * MICROSECOND);
        assert!(share < 0.02, "{share}");
    }

    #[test]
    fn few_calls_are_all_asked_in_after_many() {
        let mut pace = PollInterval::new();
        // LAMMPS makes about as many calls before its first step.
        let (questions, _) = ask(&mut pace, 90, 100 * MICROSECOND, 20 * MICROSECOND);
        assert_eq!(questions, 90);
        ask(&mut pace, 1_000_000, 5 * MICROSECOND, 10 * MICROSECOND);
        let (questions, _) = ask(&mut pace, 1, Duration::from_secs(1), 10 * MICROSECOND);
        assert_eq!((questions, pace.interval), (1, 5));
        assert_eq!(pace.after(Duration::from_secs(1), 10 * MICROSECOND), 1);
    }

    #[test]
    fn questions_that_take_long_are_asked_at_least_as_often_as_calls_are_long() {
        let (questions, _) = ask(&mut PollInterval::new(), 1000, Duration::from_millis(25), Duration::from_millis(5));
        assert_eq!(questions, 1000);
    }
}
