//! Code that several tests share.

pub(crate) mod files;
pub(crate) mod indexed;
pub(crate) mod places;
pub(crate) mod plasma;
pub(crate) mod sweeps;
pub(crate) mod virtual_ranks;
pub(crate) mod wrapped;
