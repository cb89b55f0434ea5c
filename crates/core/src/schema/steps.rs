//! Copies of rows in steps of a fixed size: a call to `memcpy` for a few bytes costs more than the copy.
//!
//! A row of at most [`MAX_STEPS`] steps is copied inline, by code that is compiled once for each number of steps.

/// Bytes of a step.
pub(crate) const STEP: usize = 16;

/// Steps of the widest row that is copied in steps.
pub(crate) const MAX_STEPS: usize = 8;

/// Evaluates `$narrow` for rows of `$bytes` bytes, with the constant `$steps`: the number of steps that copy a row.
/// Evaluates `$wide` for rows wider than [`MAX_STEPS`] steps.
macro_rules! by_steps {
    ($bytes:expr, $steps:ident => $narrow:expr, $wide:expr) => {
        $crate::schema::by_steps!($bytes, $steps => $narrow, $wide; 1, 2, 3, 4, 5, 6, 7, 8)
    };
    ($bytes:expr, $steps:ident => $narrow:expr, $wide:expr; $($number:literal),*) => {
        match usize::div_ceil($bytes, $crate::schema::STEP) {
            $($number => {
                const $steps: usize = $number;
                $narrow
            })*
            _ => $wide,
        }
    };
}
pub(crate) use by_steps;

/// Copies a row of at least one step. The last step may be shorter: it is copied from the row's end, so it overlaps the
/// one before.
#[inline]
pub(crate) fn copy_in_steps<const STEPS: usize>(slot: &mut [u8], row: &[u8]) {
    let (from, to) = (row.as_chunks::<STEP>().0, slot.as_chunks_mut::<STEP>().0);
    for (to, from) in to.iter_mut().zip(from).take(STEPS) {
        *to = *from;
    }
    if let (Some(to), Some(from)) = (slot.last_chunk_mut::<STEP>(), row.last_chunk::<STEP>()) {
        *to = *from;
    }
}
