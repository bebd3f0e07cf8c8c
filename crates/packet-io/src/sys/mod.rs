//! All unsafe code of the workspace: the system calls that have no safe wrapper elsewhere.
//!
//! Addresses and control messages are read and written as bytes, so only the calls themselves are unsafe. Another
//! platform needs its own version of this module and nothing else.

pub(crate) mod addr;
pub(crate) mod cmsg;
pub(crate) mod epoll;
pub(crate) mod mmsg;
pub(crate) mod options;
pub(crate) mod seqpacket;
pub(crate) mod tun;
