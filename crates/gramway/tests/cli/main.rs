//! The program from outside.

mod admin;
mod bad_input;
mod configuration;
mod lifecycle;
mod metrics;
mod support;
mod users;
