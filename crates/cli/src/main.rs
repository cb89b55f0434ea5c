//! x
mod source;
fn main() {}
