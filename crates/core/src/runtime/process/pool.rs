//! Background threads that run the writers' tasks and notify waiting threads of completed tasks.

use std::collections::VecDeque;
use std::time::Duration;

use crate::format::EncodeBuffers;
use crate::runtime::process::sync::{Arc, Builder, Condvar, JoinHandle, Mutex, MutexGuard, PoisonError};
use crate::writer::{PartFactory, Task};

#[derive(Debug, Default)]
struct State {
    /// Queued tasks, at most one per rank: a writer has at most one unfinished task.
    tasks: VecDeque<(u32, Arc<PartFactory>, Task)>,
    /// Ranks whose tasks are running.
    running: Vec<u32>,
    completions: u64,
    stopping: bool,
}

/// The queue of tasks between writers and background threads.
#[derive(Debug, Default)]
pub(in crate::runtime) struct TaskQueue {
    state: Mutex<State>,
    work: Condvar,
    done: Condvar,
}

impl TaskQueue {
    /// Locks the queue, even if the lock is poisoned: a panicking task leaves the queue consistent.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::runtime) fn submit(&self, rank: u32, factory: Arc<PartFactory>, task: Task) {
        self.lock().tasks.push_back((rank, factory, task));
        self.work.notify_one();
    }

    /// Returns the number of completed tasks, for [`TaskQueue::wait`].
    pub(in crate::runtime) fn completions(&self) -> u64 {
        self.lock().completions
    }

    /// Blocks until more than `seen` tasks are completed, for at most `limit`.
    pub(in crate::runtime) fn wait(&self, seen: u64, limit: Duration) {
        let state = self.lock();
        if state.completions == seen {
            drop(self.done.wait_timeout(state, limit));
        }
    }

    /// Notifies waiting threads that a task of `rank` was completed.
    pub(in crate::runtime) fn ring(&self, rank: u32) {
        let mut state = self.lock();
        state.completions += 1;
        // Another thread may already run the rank's next task.
        if let Some(place) = state.running.iter().position(|running| *running == rank) {
            state.running.swap_remove(place);
        }
        self.done.notify_all();
    }

    /// Drops the queued tasks of `rank` and waits for its running task.
    pub(in crate::runtime) fn forget(&self, rank: u32) {
        let mut state = self.lock();
        loop {
            // The end of a task may submit another task.
            state.tasks.retain(|(of, ..)| *of != rank);
            if !state.running.contains(&rank) {
                return;
            }
            state = self.done.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(in crate::runtime) fn is_waiting(&self) -> bool {
        !self.lock().tasks.is_empty()
    }

    /// Removes and returns a queued task, for a caller that runs it on its own thread.
    pub(in crate::runtime) fn try_next(&self) -> Option<(u32, Arc<PartFactory>, Task)> {
        self.lock().tasks.pop_front()
    }

    fn next(&self) -> Option<(u32, Arc<PartFactory>, Task)> {
        let mut state = self.lock();
        loop {
            if let Some(task) = state.tasks.pop_front() {
                state.running.push(task.0);
                return Some(task);
            }
            if state.stopping {
                return None;
            }
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A guard for a running task. Dropping it ends the task, even after a panic.
struct Turn<'a> {
    queue: &'a TaskQueue,
    rank: u32,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.queue.ring(self.rank);
    }
}

/// The background threads. Dropping the pool finishes the queued tasks and joins the threads.
#[derive(Debug)]
pub(in crate::runtime) struct Pool {
    queue: Arc<TaskQueue>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    /// Starts `threads` threads. `complete` passes each task's result to its rank.
    pub(in crate::runtime) fn start(
        queue: Arc<TaskQueue>,
        threads: usize,
        complete: impl Fn(u32, crate::writer::Completion) + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        let complete = Arc::new(complete);
        // The threads of an earlier pool have ended.
        queue.lock().stopping = false;
        let mut pool = Self { queue, threads: Vec::new() };
        for number in 0..threads {
            let (queue, complete) = (Arc::clone(&pool.queue), Arc::clone(&complete));
            let name = format!("turbidite-write-{number}");
            pool.threads.push(Builder::new().name(name).spawn(move || {
                let mut buffers = EncodeBuffers::new();
                while let Some((rank, factory, task)) = queue.next() {
                    let _turn = Turn { queue: &queue, rank };
                    complete(rank, factory.execute(task, &mut buffers));
                }
            })?);
        }
        Ok(pool)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.queue.lock().stopping = true;
        self.queue.work.notify_all();
        for thread in self.threads.drain(..) {
            // Tasks and their completions are caught; a panic elsewhere cannot be handled here.
            drop(thread.join());
        }
    }
}
