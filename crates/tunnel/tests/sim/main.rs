//! The tunnel's engine at both ends of a simulated network, in virtual time.
//!
//! `GRAMWAY_SIM_SEED=N` runs one seed alone.

mod faults;
mod support;
