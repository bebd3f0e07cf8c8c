//! The program from outside.

mod admin;
mod bad_input;
mod certificate;
mod configuration;
mod hook;
mod lifecycle;
mod metrics;
mod peer;
mod reload;
mod support;
mod terminal;
mod transfer;
mod transfer_ends;
mod transfer_lost;
mod users;
