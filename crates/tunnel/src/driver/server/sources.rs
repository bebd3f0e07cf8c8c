//! A server's descriptors that belong to no request.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::cover::CoverFlow;
use super::listeners::Listener;
use crate::driver::sources::Source;

pub(in crate::driver) enum ServerSource {
    /// A stranger's socket towards the cover.
    Flow(Box<CoverFlow>),
    /// A port whose connections lead to a client.
    Listener(Listener),
    /// The way back to the process whose sockets this one took over; it is readable when that one's shard has ended.
    Predecessor(OwnedFd),
}

impl Source for ServerSource {
    fn descriptor(&self) -> BorrowedFd<'_> {
        match self {
            Self::Flow(flow) => flow.socket.as_fd(),
            Self::Listener(listener) => listener.socket.as_fd(),
            Self::Predecessor(way) => way.as_fd(),
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Flow(_) => "cover",
            Self::Listener(_) => "client_listener",
            Self::Predecessor(_) => "predecessor",
        }
    }
}
