//! All unsafe code of the workspace: the system calls that have no safe wrapper elsewhere.
//!
//! Addresses and control messages are read and written as bytes, so only the calls themselves are unsafe. They are
//! Linux's; the files beside this module call Linux through `rustix`.

pub(crate) mod addr;
pub(crate) mod bpf;
pub(crate) mod cmsg;
pub(crate) mod epoll;
pub(crate) mod mmsg;
pub(crate) mod options;
pub(crate) mod packet;
pub(crate) mod seqpacket;
pub(crate) mod tun;

pub use cmsg::fuzz as fuzz_control_messages;
