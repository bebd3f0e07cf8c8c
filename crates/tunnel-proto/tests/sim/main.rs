//! The tunnel's engine at both ends of a simulated network, in virtual time.
//!
//! `GRAMWAY_SIM_SEED=N` runs one seed alone.

mod access;
mod drain;
mod early;
mod faults;
mod front_door;
mod guests;
mod hostile;
mod ip;
mod ip_checksums;
mod ip_foreign;
mod ip_hostile;
mod ip_hostile_server;
mod ip_sessions;
mod keys;
mod lifetime;
mod listening;
mod path;
mod queues;
mod relay;
mod rendezvous;
mod repair;
mod services;
mod sizes;
mod storm;
mod stripes;
mod support;
mod tcp;
mod users;
