//! The program from outside.

mod bad_input;
mod lifecycle;
mod support;
