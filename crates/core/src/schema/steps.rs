//! Row copies in steps of a fixed size, since a call of `memcpy` for a few bytes costs more than the copy.
//!
//! Rows of at most [`MAX_STEPS`] steps are copied inline, by code that is compiled separately for each number of steps.

/// Size of a step, in bytes.
pub(crate) const STEP: usize = 16;

/// Number of steps of the widest row that is copied in steps.
pub(crate) const MAX_STEPS: usize = 8;

/// Evaluates `$narrow` for rows of `$bytes` bytes, with the number of steps per row in the constant `$steps`. Evaluates
/// `$wide` for rows wider than [`MAX_STEPS`] steps.
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

/// Copies a row of at least one step. The last step ends at the row's end, and overlaps the previous step if the width
/// is not a multiple of [`STEP`].
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
