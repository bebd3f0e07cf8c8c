//! Watches links, addresses and routes; reports many notifications as one change.

use std::os::fd::{AsFd, BorrowedFd};

use super::error::{Explain, HostError};
use super::link::{NEW_ADDRESS, NEW_LINK};
use super::netlink::{Message, Socket, number};
use super::route::{NEW_ROUTE, ROUTE_HEADER_BYTES, ROUTE_INTERFACE};
use crate::limits::MONITOR_READS_MAX;

/// Links, IPv4 addresses and routes, IPv6 addresses and routes (`RTMGRP_…`).
const GROUPS: u32 = 0x1 | 0x10 | 0x40 | 0x100 | 0x400;

/// News come in pairs of kinds, new and deleted, that differ in the lowest bit.
const KIND_MASK: u16 = !1;

/// Listens to the kernel's news of the namespace it was opened in. Readable where there is some.
#[derive(Debug)]
pub struct Monitor {
    socket: Socket,
    ignored: Option<u32>,
}

/// What may have changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Interfaces came, went, or went up or down.
    pub links: bool,
    /// Addresses came or went.
    pub addresses: bool,
    /// Routes came or went.
    pub routes: bool,
}

impl Changes {
    const ALL: Self = Self {
        links: true,
        addresses: true,
        routes: true,
    };

    /// Whether there is anything new.
    #[must_use]
    pub fn any(&self) -> bool {
        self.links || self.addresses || self.routes
    }
}

impl Monitor {
    /// Opens it; it never blocks. Changes of the interface `ignoring`, the program's own TUN, are not reported.
    ///
    /// # Errors
    /// The system has no more sockets.
    pub fn open(ignoring: Option<u32>) -> Result<Self, HostError> {
        let socket =
            Socket::listener(GROUPS).explain(|| "watch changes of the network (netlink)".to_owned())?;
        Ok(Self {
            socket,
            ignored: ignoring,
        })
    }

    /// Reads the news that are there, a bounded number of them at once: while the descriptor stays readable there are
    /// more. Where news were lost, everything counts as changed.
    pub fn drain(&mut self) -> Changes {
        let mut changes = Changes::default();
        let ignored = self.ignored;
        for _ in 0..MONITOR_READS_MAX {
            let heard = self.socket.hear(|message| {
                if interface(&message).is_none_or(|index| Some(index) != ignored) {
                    note(&mut changes, message.kind);
                }
            });
            match heard {
                Ok(true) => {}
                Ok(false) => break,
                Err(_) => changes = Changes::ALL,
            }
        }
        changes
    }
}

fn note(changes: &mut Changes, kind: u16) {
    match kind & KIND_MASK {
        NEW_LINK => changes.links = true,
        NEW_ADDRESS => changes.addresses = true,
        NEW_ROUTE => changes.routes = true,
        _ => {}
    }
}

/// The interface that a message is about, where it names one.
fn interface(message: &Message<'_>) -> Option<u32> {
    match message.kind & KIND_MASK {
        // Both headers have it at the same place.
        NEW_LINK | NEW_ADDRESS => number(message.payload.get(4..8)),
        NEW_ROUTE => message
            .attributes(ROUTE_HEADER_BYTES)
            .find_number(ROUTE_INTERFACE),
        _ => None,
    }
}

impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
