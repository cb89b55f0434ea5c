//! The hand-off between ranks and background threads: the core's code, compiled with Shuttle's locks, condition
//! variables and threads. Stand-ins replace the rest: tasks are numbers, and a rank is a model of the code in
//! `runtime/local` and `runtime/rank` around the hand-off.

#![allow(dead_code, reason = "the core uses the rest")]

mod runtime;
mod shuffle;

/// Replaces the core's `format`.
mod format {
    #[derive(Debug)]
    pub(crate) struct EncodeBuffers;

    impl EncodeBuffers {
        pub(crate) fn new() -> Self {
            Self
        }
    }
}

/// Replaces the core's `writer`.
mod writer {
    /// Replaces the factory of parts. Executing a task returns the task's number.
    #[derive(Debug)]
    pub(crate) struct PartFactory;

    /// A task of a rank, with its number.
    #[derive(Debug)]
    pub(crate) struct Task(pub(crate) u32);

    #[derive(Debug)]
    pub(crate) struct Completion(pub(crate) u32);

    impl PartFactory {
        pub(crate) fn execute(&self, task: Task, _: &mut crate::format::EncodeBuffers) -> Completion {
            // Another thread may run while this thread writes a part.
            shuttle::thread::yield_now();
            Completion(task.0)
        }
    }
}
