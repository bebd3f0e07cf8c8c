//! All end-to-end tests, one module per subject.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail their test")]

mod associations;
mod attackers;
mod browser;
mod carrier_moves;
mod configuration;
mod confinement;
mod cover;
mod dead_paths;
mod emulator;
mod forwards;
mod front_door;
mod host;
mod hostile;
mod house;
mod interop;
mod layer3;
mod long_paths;
mod many;
mod messages;
mod paths;
mod proxies;
mod refusals;
mod relay;
mod repair;
mod restarts;
mod scene;
mod services;
mod sizes;
mod streams;
mod stripes;
mod tcp_shape;
mod top;
mod unprivileged;
mod users;
