//! How tightly operators bind, in Python's order. Operators between two operands are left-associative, but for `**`.

pub(super) const OR: u8 = 1;
pub(super) const AND: u8 = 2;
pub(super) const NOT: u8 = 3;
/// Comparisons, BETWEEN and IN.
pub(super) const COMPARISON: u8 = 4;
/// `|`
pub(super) const BITS_OR: u8 = 5;
/// `&`
pub(super) const BITS_AND: u8 = 6;
/// `<< >>`
pub(super) const SHIFT: u8 = 7;
/// `+ -`
pub(super) const SUM: u8 = 8;
/// `* / // %`
pub(super) const PRODUCT: u8 = 9;
/// Signs and `~`, which precede their operand.
pub(super) const SIGN: u8 = 10;
/// `**`, whose right operand may have a sign.
pub(super) const POWER: u8 = 11;
/// Names, calls, numbers without a sign, and parentheses.
pub(super) const ATOM: u8 = 12;
