//! What only a server's engine does.

pub(super) mod ip_service;
pub(super) mod lease;
mod requests;
pub(super) mod wrong_tokens;
