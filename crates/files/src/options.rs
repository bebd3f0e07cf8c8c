//! What a caller may choose.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::pool::ChunkMemory;
use crate::rate_limit::RateLimit;

/// What to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A file, or a directory and what is in it.
    Path(PathBuf),
    /// The program's standard input, as a file of this name.
    Stdin {
        /// At the receiver.
        name: String,
    },
}

/// Whether bytes are compressed on the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compress {
    /// Where it helps: what does not shrink is left as it is.
    #[default]
    Auto,
    /// Never.
    No,
}

/// What may carry chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// Whichever is measured to be better.
    #[default]
    Auto,
    /// QUIC only.
    Quic,
    /// TCP as soon as there are connections.
    Tcp,
}

/// Of a sender.
#[derive(Clone, Debug, Default)]
pub struct SendOptions {
    /// What to send.
    pub sources: Vec<Source>,
    /// Patterns of paths; without any, everything.
    pub include: Vec<String>,
    /// Patterns of paths that are left out all the same.
    pub exclude: Vec<String>,
    /// Compression.
    pub compress: Compress,
    /// Streams, or TCP connections; chosen by the carrier where there is no number.
    pub streams: Option<usize>,
    /// Files that are read at once at most; without a number, as many as there are carriers. Small files travel
    /// together, and count as none.
    pub parallel_files: Option<usize>,
    /// Bytes a second at most: of all transfers together that have a clone of it.
    pub limit: Option<RateLimit>,
    /// The memory for chunks, which all transfers share that have a clone of it.
    pub memory: ChunkMemory,
    /// Whether extended attributes of users are sent.
    pub xattrs: bool,
    /// Whether receivers have their keys for one transfer alone, as those who come by a code: what is remembered of a
    /// network is not remembered of them.
    pub has_passing_peers: bool,
    /// A directory for what makes a later transfer begin sooner.
    pub state: Option<PathBuf>,
    /// What may carry chunks.
    pub transport: Transport,
}

/// Where to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Into this directory, which is there.
    Directory(PathBuf),
    /// The bytes of the one file, in order, to the program's standard output.
    Stdout,
}

/// What becomes of a file that is in the place of one that is offered, and differs.
#[derive(Clone, Default)]
pub enum OnConflict {
    /// It stays, and the other is not sent.
    Skip,
    /// The new one gets another name.
    #[default]
    Rename,
    /// It is replaced.
    Overwrite,
    /// It is replaced where it is older.
    Newer,
    /// Somebody decides; nothing else is planned meanwhile.
    Ask(Arc<dyn Fn(&Conflict) -> Answer + Send + Sync>),
}

impl fmt::Debug for OnConflict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Skip => "Skip",
            Self::Rename => "Rename",
            Self::Overwrite => "Overwrite",
            Self::Newer => "Newer",
            Self::Ask(_) => "Ask",
        })
    }
}

/// A file that is there, and another one that is offered for its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Below the destination.
    pub path: String,
    /// Whether a file or a link is there, which may be overwritten: nothing else ever is.
    pub is_replaceable: bool,
    /// Bytes of the one that is there.
    pub size: u64,
    /// When it was modified, in nanoseconds since 1970.
    pub modified_ns: i64,
    /// Bytes of the one that is offered.
    pub offered_size: u64,
    /// When that one was modified.
    pub offered_modified_ns: i64,
}

/// What somebody decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// As [`OnConflict::Skip`].
    Skip,
    /// As [`OnConflict::Rename`].
    Rename,
    /// As [`OnConflict::Overwrite`].
    Overwrite,
}

/// Of a receiver.
#[derive(Clone, Debug)]
pub struct ReceiveOptions {
    /// Where to.
    pub to: Destination,
    /// What becomes of other files in the places.
    pub on_conflict: OnConflict,
    /// Patterns of paths that are wanted; without any, everything.
    pub only: Vec<String>,
    /// Whether files of the same size and time are compared by their hashes all the same.
    pub checksum: bool,
    /// Whether extended attributes of users are taken over.
    pub xattrs: bool,
    /// Whether links are made that lead out of the destination.
    pub links_all: bool,
    /// Only tells what would be sent ([`crate::Event::Offered`]); nothing is written.
    pub dry_run: bool,
    /// Only tells what is offered, whatever is there.
    pub list: bool,
    /// What may carry chunks.
    pub transport: Transport,
    /// Files that come at once at most; without a number, as the sender sends them. Small files travel together, and
    /// count as none.
    pub parallel_files: Option<usize>,
}

impl ReceiveOptions {
    /// With everything as usual.
    #[must_use]
    pub fn new(to: Destination) -> Self {
        Self {
            to,
            on_conflict: OnConflict::default(),
            only: Vec::new(),
            checksum: false,
            xattrs: false,
            links_all: false,
            dry_run: false,
            list: false,
            transport: Transport::default(),
            parallel_files: None,
        }
    }
}

/// What became of a transfer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Files, directories and links that are complete.
    pub stored: u64,
    /// Those that were there, or that somebody wants left out.
    pub skipped: u64,
    /// Those that failed, at either end: what the sender cannot read and therefore does not offer, and names and links
    /// that the receiver refuses, are among them.
    pub failed: u64,
    /// Whether the receiver only looked at what was offered: then nothing was transferred, whatever is counted.
    pub is_look: bool,
    /// Whether the receiver passes on what comes: another transfer does not go on where this one ended.
    pub is_passed_on: bool,
    /// Bytes of files that came over the network, before compression.
    pub bytes_sent: u64,
    /// Bytes of files that were there already.
    pub bytes_there: u64,
    /// Bytes of files at this end that were read and hashed: what is sent, and what had to be known or compared.
    pub bytes_hashed: u64,
    /// Chunks and whole small files that came over the network.
    pub chunks_sent: u64,
    /// What failed or was left out (path, reason).
    pub problems: Vec<(String, String)>,
    /// Why the carrier that was used last was chosen.
    pub carrier_reason: Option<String>,
}
