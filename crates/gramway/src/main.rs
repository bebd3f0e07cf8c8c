//! The `gramway` program.
fn main() {}
