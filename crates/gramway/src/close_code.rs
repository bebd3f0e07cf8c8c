//! The codes with which commands close connections between peers, for all commands: any of them may meet any other
//! one. 0 is none of them: a connection also closes with it where its last handle is dropped.

/// The connection is one too many at present.
pub(crate) const BUSY: u32 = 1;

/// Nothing is wanted any more of the connection, and its pipe is complete (`gramway peer`).
pub(crate) const DONE: u32 = 2;

/// The other end has not proved that it knows a code (FILE-37).
pub(crate) const UNPROVED: u32 = 3;

/// This end leaves.
pub(crate) const ENDED: u32 = 4;

/// What is sent is standard input, of which an earlier receiver has had a part (FILE-37).
pub(crate) const SPENT: u32 = 5;
