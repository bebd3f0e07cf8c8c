//! Moves files between peers: [`send()`] at one end of a connection, [`receive()`] at the other.
//!
//! Files are cut in chunks that verify by themselves (`files-proto`, `specs/files.md` of the repository), which come by
//! QUIC streams or TCP connections, whichever is measured to be better, in any order. What a receiver has it keeps
//! through kills and crashes, and is not sent again. Nothing is written outside of the destination.
//!
//! Both functions wait on the calling thread and start threads of their own: [`Progress`] tells what they do, and ends
//! them.
//!
//! ```
//! use files::{Destination, Progress, ReceiveOptions, SendOptions, Source};
//! use peer::blocking::wait;
//! use peer::{Endpoint, SecretKey};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let (from, to) = (directory.path().join("from"), directory.path().join("to"));
//! # std::fs::create_dir(&to)?;
//! std::fs::write(&from, "what is sent")?;
//! let sender = Endpoint::bind(SecretKey::generate()?, "127.0.0.1:0".parse()?)?;
//! let receiver = Endpoint::bind(SecretKey::generate()?, "127.0.0.1:0".parse()?)?;
//! let to_sender = wait(receiver.connect(sender.id(), &[sender.local_addr()]))?;
//! let to_receiver = wait(sender.accept()).ok_or("the endpoint was closed")?;
//!
//! let sending = std::thread::spawn(move || {
//!     let sources = vec![Source::Path(from)];
//!     files::send(&to_receiver, &SendOptions { sources, ..SendOptions::default() }, &Progress::default())
//! });
//! let options = ReceiveOptions::new(Destination::Directory(to.clone()));
//! let report = files::receive(&to_sender, &options, &Progress::default())?;
//! assert_eq!((report.stored, report.bytes_sent), (1, 12));
//! assert_eq!(std::fs::read(to.join("from"))?, b"what is sent");
//! sending.join().expect("it does not panic")?;
//! # Ok(())
//! # }
//! ```

mod attributes;
mod beside;
mod cache;
mod carrier;
mod choice;
mod control;
mod destination;
mod error;
mod file_system_kinds;
mod filter;
pub mod limits;
mod naming;
mod options;
mod part;
mod pool;
mod processor;
mod progress;
mod rate_limit;
mod receive;
mod remembered;
mod room;
mod send;
mod source;
mod waits;
mod walk;

use quic::KeyIdentity;

pub use carrier::Carrier;
pub use error::TransferError;
pub use filter::check_patterns;
pub use options::{
    Answer, Compress, Conflict, Destination, OnConflict, ReceiveOptions, Report, SendOptions, Source,
    Transport,
};
pub use pool::ChunkMemory;
pub use progress::{DamagedAt, Event, FileInWork, How, LimitedBy, Progress, Snapshot, Would};
pub use rate_limit::RateLimit;
pub use receive::receive;
pub use send::{finds_something, is_stdin_spent, send};

/// A key for the TCP connections of one transfer.
fn session_key() -> Result<KeyIdentity, TransferError> {
    let mut seed = [0; 32];
    aws_lc_rs::rand::fill(&mut seed).map_err(|_| TransferError::System {
        what: "draw random bytes",
        error: std::io::ErrorKind::Other.into(),
    })?;
    Ok(KeyIdentity::from_seed(&seed))
}
