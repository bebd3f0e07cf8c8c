//! The codes with which commands close connections between peers, for all commands: any of them may meet any other
//! one. 0 is none of them: a connection also closes with it where its last handle is dropped.
//! 6 is a receiver's that has everything on its disk, 7 one's whose user has ended it: both are the library's own
//! (FILE-37).

use peer::code::{CROWDED, QUEUE_FULL};

/// The connection is one too many at present.
pub(crate) const BUSY: u64 = 1;

/// Nothing is wanted any more of the connection, and its pipe is complete (`gramway peer`).
pub(crate) const DONE: u64 = 2;

/// The other end has not proved that it knows a code (FILE-37).
pub(crate) const UNPROVED: u64 = 3;

/// This end leaves.
pub(crate) const ENDED: u64 = 4;

/// What is sent is standard input, of which an earlier receiver has had a part (FILE-37).
pub(crate) const SPENT: u64 = 5;

/// Whether a connection was closed because the other end has too much to do at present: the command says so, or the
/// endpoint does for it.
pub(crate) fn is_busy(code: u64) -> bool {
    [BUSY, QUEUE_FULL, CROWDED].contains(&code)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FILE-37: what is not said of a code must not be taken for it.
    #[test]
    fn an_endpoint_that_has_no_room_is_as_busy_as_a_command_that_says_so() {
        assert!([BUSY, QUEUE_FULL, CROWDED].into_iter().all(is_busy));
        assert!(![0, DONE, UNPROVED, ENDED, SPENT].into_iter().any(is_busy));
    }
}
