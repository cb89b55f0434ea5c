//! Memory that queries reuse: columns of batches (`recycle`), and the scratch memory of threads (`scratch`), which
//! includes that of merges (`merge_order`).

pub(super) mod merge_order;
pub(super) mod recycle;
pub(super) mod scratch;
