//! The program from outside.

mod bad_input;
mod lifecycle;
mod metrics;
mod support;
mod users;
