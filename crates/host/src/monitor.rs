//! Watches links, addresses and routes; reports many notifications as one change.

use std::os::fd::{AsFd, BorrowedFd};

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::{RouteAttribute, RouteMessage};
use netlink_packet_route::rule::RuleAttribute;

use super::error::{Explain, HostError};
use super::netlink::Socket;
use super::route::MADE_BY_US;
use crate::limits::MONITOR_READS_MAX;

/// Links, IPv4 addresses, routes and rules, IPv6 addresses, routes and rules (`RTMGRP_…`).
const GROUPS: u32 = 0x1 | 0x10 | 0x40 | 0x80 | 0x100 | 0x400 | 0x4_0000;

/// Listens to the kernel's news of the namespace it was opened in. Readable where there is some.
#[derive(Debug)]
pub struct Monitor {
    socket: Socket<RouteNetlinkMessage>,
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
    /// Rules or routes went that are marked as made by this program.
    pub made_by_us: bool,
}

impl Changes {
    const ALL: Self = Self {
        links: true,
        addresses: true,
        routes: true,
        made_by_us: true,
    };

    /// Whether there is anything new.
    #[must_use]
    pub fn any(&self) -> bool {
        self.links || self.addresses || self.routes || self.made_by_us
    }
}

impl Monitor {
    /// Opens it; it never blocks. Changes of the interface `ignoring`, the program's own TUN, are not reported, nor are
    /// new rules, and new routes of this program.
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
    /// more. Where news were lost or cannot be decoded, everything counts as changed; what comes behind is dropped
    /// unread, because a descriptor that stays readable would make the caller look again.
    pub fn drain(&mut self) -> Changes {
        let mut changes = Changes::default();
        let ignored = self.ignored;
        for _ in 0..MONITOR_READS_MAX {
            let heard = if changes == Changes::ALL {
                self.socket.skip()
            } else {
                self.socket.hear(|message| match message {
                    Some(message) => note(&mut changes, &message, ignored),
                    None => changes = Changes::ALL,
                })
            };
            match heard {
                Ok(true) => {}
                Ok(false) => break,
                // A second error in a row tells nothing new.
                Err(_) if changes == Changes::ALL => break,
                Err(_) => changes = Changes::ALL,
            }
        }
        changes
    }
}

fn note(changes: &mut Changes, message: &RouteNetlinkMessage, ignored: Option<u32>) {
    use RouteNetlinkMessage::{DelAddress, DelLink, DelRoute, DelRule, NewAddress, NewLink, NewRoute};
    let is_ours = |route: &RouteMessage| route.header.protocol == MADE_BY_US;
    if let DelRoute(route) = message {
        changes.made_by_us |= is_ours(route);
    }
    let (changed, index) = match message {
        NewRoute(route) if is_ours(route) => return,
        DelRule(rule) if rule.attributes.contains(&RuleAttribute::Protocol(MADE_BY_US)) => {
            (&mut changes.made_by_us, None)
        }
        NewLink(link) | DelLink(link) => (&mut changes.links, Some(link.header.index)),
        NewAddress(address) | DelAddress(address) => (&mut changes.addresses, Some(address.header.index)),
        NewRoute(route) | DelRoute(route) => (&mut changes.routes, interface(route)),
        _ => return,
    };
    if index.is_none() || index != ignored {
        *changed = true;
    }
}

/// The interface of a route, where it names one.
fn interface(route: &RouteMessage) -> Option<u32> {
    route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Oif(index) => Some(*index),
        _ => None,
    })
}

impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
