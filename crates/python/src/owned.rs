//! Values with threads and locks of the process that made them.

/// A value that a forked process must neither use nor drop: the fork does not have its threads, and any of its locks
/// may have been held by one of them.
#[derive(Debug)]
pub(crate) struct Owned<T> {
    value: Option<T>,
    process: u32,
}

impl<T> Owned<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: Some(value), process: std::process::id() }
    }

    /// Returns whether this process made the value.
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.process == std::process::id()
    }

    /// Returns the value, unless it was taken or belongs to another process.
    pub(crate) fn get(&self) -> Option<&T> {
        self.value.as_ref().filter(|_| self.is_of_this_process())
    }

    /// Takes the value out, unless it was taken or belongs to another process.
    pub(crate) fn take(&mut self) -> Option<T> {
        if self.is_of_this_process() { self.value.take() } else { None }
    }

    /// Puts a value of this process in.
    pub(crate) fn put(&mut self, value: T) {
        drop(std::mem::replace(self, Self::new(value)));
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if !self.is_of_this_process() {
            std::mem::forget(self.value.take());
        }
    }
}
