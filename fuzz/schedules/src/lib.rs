//! The hand-off between ranks and background threads, as it stands in the core, with Shuttle's locks, conditions and
//! threads. What it hands over is put in its place: tasks are numbers, and a rank is a model of what `runtime/local`
//! and `runtime/rank` do around it.

#![allow(dead_code, reason = "the core uses the rest")]

mod runtime;
mod shuffle;

/// Stand-in for the core's `format`.
mod format {
    #[derive(Debug)]
    pub(crate) struct EncodeBuffers;

    impl EncodeBuffers {
        pub(crate) fn new() -> Self {
            Self
        }
    }
}

/// Stand-in for the core's `writer`.
mod writer {
    /// Says which task was executed last on each rank, so that the order shows.
    #[derive(Debug)]
    pub(crate) struct PartFactory;

    /// The number of a task of a rank.
    #[derive(Debug)]
    pub(crate) struct Task(pub(crate) u32);

    #[derive(Debug)]
    pub(crate) struct Completion(pub(crate) u32);

    impl PartFactory {
        pub(crate) fn execute(&self, task: Task, _: &mut crate::format::EncodeBuffers) -> Completion {
            // Another thread may run while a part is written.
            shuttle::thread::yield_now();
            Completion(task.0)
        }
    }
}
