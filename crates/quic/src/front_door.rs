//! The front door (specs/qr1.md), QUIC's and TLS's part of it: how a client begins, how a server proves itself, and what the
//! client finds. Who is recognised, crate `reality` decides.
//!
//! - Client: [`client`] composes the hello of [`shares`] and [`parameters`] in two passes, [`session`] carries it through
//!   the handshake, and [`verifier`] looks at whom it met ([`Outcome`]).
//! - Server: [`certificate`] makes the certificate with the proof, [`identity`] what one connection is accepted with,
//!   and [`recognised`] what its hello left out.

mod brotli;
mod certificate;
mod client;
mod identity;
mod outcome;
mod parameters;
mod recognised;
mod server_hello;
mod session;
mod shares;
mod verifier;

/// Of TLS's exporter (QR1-17).
pub(crate) const EXPORTER_LABEL: &[u8] = b"EXPORTER-qr1";

pub(crate) use client::begin;
pub use client::{FrontDoorClient, TrustedRoots};
pub use identity::{CoverTls, FrontDoorIdentity};
pub(crate) use outcome::{Outcome, Verdict};
