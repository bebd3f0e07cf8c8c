//! Looks at a web site as a client of ours would, before it becomes a cover and at each start of the server behind it:
//! QR1-27.
//!
//! - [`visit`]: one handshake with it, up to its end, seen packet by packet.
//! - [`version_probe`]: a datagram that every server answers at once, for the round trip and the versions.
//! - [`verdict`]: what several visits say together: whether it can be a cover, and what to imitate.
//!
//! A visit goes on as a browser's connection that is opened ahead and not used: it completes the handshake and closes.

mod keys;
mod messages;
mod observation;
mod retry;
mod stream;
mod tls;
pub mod verdict;
pub mod version_probe;
pub mod visit;

pub use messages::{CertificateMessage, ServerHello};
pub use observation::{End, Observation};
pub use tls::{Groups, Roots};
