//! A bounded thread pool for the tasks of one query.
//!
//! Tasks are submitted as closures, and their results are collected through [`Ticket`]s in any order. Two properties
//! keep small queries fast and large ones bounded:
//! - If no thread has started a task, the caller that waits for it runs the task itself. A pool without threads
//!   therefore evaluates tasks lazily.
//! - The pool starts threads only once the submitted work is worth the cost of starting them ([`SPAWN_BYTES`]).
//!
//! The queue is unbounded. The caller bounds memory by the number of tasks that it has submitted and not yet collected.
//! Dropping the pool discards tasks that have not started, and waits for running tasks.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::query::memory::recycle::Recycler;
use crate::query::memory::scratch::Scratch;

/// Submitted bytes at which the pool starts threads. Starting, waking and joining a thread costs about as much as
/// reading and checking 200 KiB to 1 MiB on one core, and far more when other programs keep the cores busy.
const SPAWN_BYTES: u64 = 2 << 20;

type Work<T> = Box<dyn FnOnce(&mut Scratch) -> T + Send>;

enum State<T> {
    Waiting(Work<T>),
    Running,
    /// Running, and a thread waits for the result.
    Awaited,
    Done(std::thread::Result<T>),
    Taken,
}

struct Slot<T> {
    state: Mutex<State<T>>,
    done: Condvar,
}

/// A queued task of any result type.
trait Runnable: Send + Sync {
    /// Runs the task unless it was already started. Returns whether it ran.
    fn run(&self, scratch: &mut Scratch) -> bool;
    fn is_waiting(&self) -> bool;
}

/// Locks a mutex, even if another thread panicked. Every critical section of this module leaves the data consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T: Send> Runnable for Slot<T> {
    fn run(&self, scratch: &mut Scratch) -> bool {
        let work = {
            let mut state = lock(&self.state);
            match std::mem::replace(&mut *state, State::Running) {
                State::Waiting(work) => work,
                other => {
                    *state = other;
                    return false;
                }
            }
        };
        let outcome = catch_unwind(AssertUnwindSafe(|| work(scratch)));
        // A notification is a system call, which most tasks do not need.
        if let State::Awaited = std::mem::replace(&mut *lock(&self.state), State::Done(outcome)) {
            self.done.notify_all();
        }
        true
    }

    fn is_waiting(&self) -> bool {
        matches!(*lock(&self.state), State::Waiting(_))
    }
}

/// A handle to the result of a submitted task.
pub(in crate::query) struct Ticket<T> {
    slot: Arc<Slot<T>>,
}

impl<T> Ticket<T> {
    /// Returns whether the result is ready.
    pub(in crate::query) fn is_done(&self) -> bool {
        matches!(*lock(&self.slot.state), State::Done(_))
    }
}

struct Queue {
    work: VecDeque<Arc<dyn Runnable>>,
    closed: bool,
}

struct Shared {
    queue: Mutex<Queue>,
    arrived: Condvar,
    /// Lends scratch memory to the threads.
    recycler: Arc<Recycler>,
}

/// The thread pool of one query.
pub(in crate::query) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    most_threads: usize,
    /// Cost of all tasks ever submitted.
    cost_bytes: u64,
    scratch: Scratch,
}

impl Pool {
    /// Creates a pool of at most `threads` threads, including the caller's.
    pub(in crate::query) fn new(threads: usize, recycler: &Arc<Recycler>) -> Self {
        let queue = Queue { work: VecDeque::new(), closed: false };
        let recycler = recycler.clone();
        let scratch = recycler.scratch();
        Self {
            shared: Arc::new(Shared { queue: Mutex::new(queue), arrived: Condvar::new(), recycler }),
            threads: Vec::new(),
            most_threads: threads.saturating_sub(1),
            cost_bytes: 0,
            scratch,
        }
    }

    /// Returns whether the pool has threads besides the caller.
    pub(in crate::query) fn has_threads(&self) -> bool {
        !self.threads.is_empty()
    }

    /// Submits a task that reads about `cost_bytes` bytes.
    pub(in crate::query) fn submit<T, F>(&mut self, cost_bytes: u64, work: F) -> Ticket<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Scratch) -> T + Send + 'static,
    {
        let state = Mutex::new(State::Waiting(Box::new(work) as Work<T>));
        let slot = Arc::new(Slot { state, done: Condvar::new() });
        if self.most_threads > 0 {
            self.cost_bytes = self.cost_bytes.saturating_add(cost_bytes);
            let mut queue = lock(&self.shared.queue);
            queue.work.push_back(slot.clone());
            let worth_a_thread = self.cost_bytes > SPAWN_BYTES && queue.work.len() > 1;
            drop(queue);
            if worth_a_thread && self.threads.len() < self.most_threads {
                self.start_thread();
            }
            if !self.threads.is_empty() {
                self.shared.arrived.notify_one();
            }
        }
        Ticket { slot }
    }

    /// Returns the result of a submitted task. Runs the task in this thread if no thread has started it. While another
    /// thread runs the task, the caller runs other tasks. Threads also start with the oldest task, so a caller that
    /// only waited would leave one core idle.
    pub(in crate::query) fn wait<T: Send>(&mut self, ticket: Ticket<T>) -> T {
        if ticket.slot.run(&mut self.scratch) && self.most_threads > 0 {
            let mut queue = lock(&self.shared.queue);
            queue.work.retain(|work| work.is_waiting());
        }
        while !ticket.is_done() {
            let other = lock(&self.shared.queue).work.pop_front();
            match other {
                Some(work) => work.run(&mut self.scratch),
                None => break,
            };
        }
        let mut state = lock(&ticket.slot.state);
        loop {
            match std::mem::replace(&mut *state, State::Taken) {
                State::Done(Ok(result)) => return result,
                State::Done(Err(panic)) => {
                    drop(state);
                    resume_unwind(panic);
                }
                State::Running => *state = State::Awaited,
                other => *state = other,
            }
            state = ticket.slot.done.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Starts a thread. If this fails, the pool continues with its existing threads.
    fn start_thread(&mut self) {
        let shared = self.shared.clone();
        let started = std::thread::Builder::new().name("turbidite-read".to_owned()).spawn(move || serve(&shared));
        match started {
            Ok(thread) => self.threads.push(thread),
            Err(_) => self.most_threads = self.threads.len(),
        }
    }
}

/// Runs tasks until the pool is dropped.
fn serve(shared: &Shared) {
    let mut scratch = shared.recycler.scratch();
    loop {
        let work = {
            let mut queue = lock(&shared.queue);
            loop {
                if queue.closed {
                    drop(queue);
                    shared.recycler.give_scratch(scratch);
                    return;
                }
                if let Some(work) = queue.work.pop_front() {
                    break work;
                }
                queue = shared.arrived.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
        };
        work.run(&mut scratch);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        {
            let mut queue = lock(&self.shared.queue);
            queue.closed = true;
            queue.work.clear();
        }
        if !self.threads.is_empty() {
            self.shared.arrived.notify_all();
        }
        for thread in self.threads.drain(..) {
            // The panic of a task is caught, and passed to the caller that waits for the task. The thread itself does
            // not panic.
            let _ = thread.join();
        }
        self.shared.recycler.give_scratch(std::mem::take(&mut self.scratch));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn results_are_collected_in_any_order_with_any_number_of_threads() {
        for threads in [1, 2, 5] {
            let mut pool = Pool::new(threads, &Arc::default());
            let mut tickets: Vec<_> =
                (0..100u64).map(|number| pool.submit(SPAWN_BYTES, move |_| number * number)).collect();
            assert!(pool.threads.len() < threads.max(2));
            let last = tickets.pop().unwrap();
            assert_eq!(pool.wait(last), 99 * 99);
            for (number, ticket) in tickets.into_iter().enumerate() {
                assert_eq!(pool.wait(ticket), (number * number) as u64);
            }
        }
    }

    #[test]
    fn small_work_starts_no_thread() {
        let mut pool = Pool::new(8, &Arc::default());
        let tickets: Vec<_> = (0..10).map(|number| pool.submit(100, move |_| number)).collect();
        assert_eq!(tickets.into_iter().map(|ticket| pool.wait(ticket)).sum::<i32>(), 45);
        assert!(pool.threads.is_empty());
        let queue = lock(&pool.shared.queue);
        assert_eq!(queue.work.len(), 0, "what the caller did himself has left the queue");
    }

    #[test]
    fn work_that_adds_up_starts_threads_however_little_is_queued() {
        let mut pool = Pool::new(2, &Arc::default());
        for _ in 0..3 {
            let pair = [(); 2].map(|()| pool.submit(SPAWN_BYTES / 5, |_| ()));
            assert!(pool.threads.is_empty());
            pair.into_iter().for_each(|ticket| pool.wait(ticket));
            pool.cost_bytes -= SPAWN_BYTES / 5;
        }
        let pair = [(); 3].map(|()| pool.submit(SPAWN_BYTES, |_| ()));
        assert_eq!(pool.threads.len(), 1);
        pair.into_iter().for_each(|ticket| pool.wait(ticket));
    }

    #[test]
    fn whoever_waits_does_other_work_meanwhile() {
        let mut pool = Pool::new(2, &Arc::default());
        let caller = std::thread::current().id();
        let (began, has_begun) = std::sync::mpsc::channel();
        let (done, is_done) = std::sync::mpsc::channel();
        // The task returns only after the caller has run the second task.
        let first = pool.submit(2 * SPAWN_BYTES, move |_| {
            began.send(()).unwrap();
            is_done.recv_timeout(std::time::Duration::from_secs(30)).is_ok()
        });
        let idle = pool.submit(SPAWN_BYTES, |_| ());
        has_begun.recv().unwrap();
        let second = pool.submit(0, move |_| {
            done.send(()).unwrap();
            std::thread::current().id()
        });
        assert!(pool.wait(first), "the second was done while the first was waited for");
        assert_eq!(pool.wait(second), caller);
        pool.wait(idle);
    }

    #[test]
    fn dropping_discards_what_has_not_begun() {
        let done = Arc::new(AtomicUsize::new(0));
        let mut pool = Pool::new(1, &Arc::default());
        for _ in 0..10 {
            let done = done.clone();
            drop(pool.submit(SPAWN_BYTES, move |_| done.fetch_add(1, Ordering::SeqCst)));
        }
        drop(pool);
        assert_eq!(done.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn a_panic_reaches_the_one_who_waits() {
        let mut pool = Pool::new(3, &Arc::default());
        let tickets: Vec<_> = (0..8).map(|_| pool.submit(SPAWN_BYTES, |_| panic!("of old age"))).collect();
        for ticket in tickets {
            let ticket: Ticket<()> = ticket;
            assert!(catch_unwind(AssertUnwindSafe(|| pool.wait(ticket))).is_err());
        }
    }
}
