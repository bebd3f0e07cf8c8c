//! Certificates that servers show, and what they are good for.

pub use quic::{Certificates, is_certificate_for, names_of_certificate, public_key_pin};
