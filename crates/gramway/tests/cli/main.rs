//! The program from outside.

mod admin;
mod bad_input;
mod lifecycle;
mod metrics;
mod support;
mod users;
