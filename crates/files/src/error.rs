//! Why a transfer ended before its end.

use std::io;
use std::path::PathBuf;

use files_proto::manifest::ManifestError;
use files_proto::message::{HelloError, MessageError};
use files_proto::offers::AnswerError;

/// Why a whole transfer ended early; what the receiver has stays, and is not sent again by a later one. What is wrong
/// with single files is no such error: [`crate::Report::problems`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// [`crate::Progress::cancel`] was called.
    #[error("the transfer was cancelled; begin it again to go on where it ended")]
    Cancelled,
    /// The connection ended; another transfer goes on where this one ended, but to standard output.
    #[error("the connection to the other end was lost ({0})")]
    Lost(String),
    /// To a sender: the receiver's user has ended its transfer; another one goes on where this one ended, but to
    /// standard output.
    #[error("the receiver was interrupted; begin the transfer again to go on where it ended")]
    Interrupted,
    /// To a sender: the receiver has everything, and the connection ended before it said that its disk has it, too.
    #[error(
        "everything has arrived, but the connection to the receiver was lost ({0}) before it said that its disk has it; look there, or begin the transfer again to be told"
    )]
    Unconfirmed(String),
    /// The other end ended the transfer.
    #[error("the other end ended the transfer: {0}")]
    Aborted(String),
    /// The other end does not speak the protocol.
    #[error(transparent)]
    Protocol(#[from] MessageError),
    /// The other end breaks the protocol.
    #[error("the other end breaks the file protocol: {0}")]
    Broken(String),
    /// The ends do not fit each other.
    #[error(transparent)]
    Greeting(#[from] HelloError),
    /// The other end offers what no sender does.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The other end answers what no receiver does.
    #[error(transparent)]
    Answer(#[from] AnswerError),
    /// The destination cannot be used.
    #[error("cannot write to {path}: {error}")]
    Destination {
        /// Which.
        path: PathBuf,
        /// The system's words.
        error: io::Error,
    },
    /// The system refuses something that a transfer needs.
    #[error("cannot {what}: {error}")]
    System {
        /// What.
        what: &'static str,
        /// The system's words.
        error: io::Error,
    },
    /// Standard input is to be sent, and another transfer of the process has begun to send it.
    #[error(
        "standard input can be read once, and an earlier receiver has had a part of it; run both commands again"
    )]
    InputSpent,
    /// To a receiver: its patterns have nothing of what is offered. The sender waits for another transfer.
    #[error("nothing that is offered matches {0}")]
    NothingChosen(String),
    /// To a receiver: more is offered than one file, which is what goes to standard output, and nothing has gone there.
    /// The sender waits for another transfer.
    #[error("more than one file is offered, and one goes to standard output")]
    SeveralChosen,
    /// A pattern cannot be read.
    #[error("{0}")]
    Pattern(String),
}
