//! The host's network around a TUN: links, addresses, routes, the uplink, NAT, the kill switch, forwarding, DNS, and
//! undoing all changes.
//!
//! Everything acts in the network namespace of the calling thread, is synchronous and blocks only for the kernel's
//! answer. What the kernel removes by itself when the process ends (the TUN with its addresses and routes, the NAT
//! table) is simply done; everything else goes through [`Undo`], which records a change before it is made, so that
//! the process itself, a guardian child after a kill, or the next start can take it back. After a kill the guardian
//! also keeps the connections of NAT for the next server, for a while. The kill switch ([`kill_switch`]) alone is to
//! outlive its process, and is on no list.

mod changes;
mod default_route;
mod dhcp;
mod dns;
mod error;
mod helper;
mod holder;
pub mod kill_switch;
mod limits;
mod link;
mod mark;
mod monitor;
mod nat;
mod netlink;
mod network;
mod nftables;
mod parameter;
mod prefix;
mod privilege;
mod route;
mod transparent_proxy;
mod undo;

/// Parsers of what the kernel and the list of changes say, for fuzzing; not a stable interface.
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::helper::fuzz as helper_call;
    pub use crate::netlink::fuzz as netlink;
    pub use crate::undo::fuzz as undo_list;
}

pub use changes::{DeviceSettings, HostChanges, OpenedDevice, Refused};
pub use default_route::DefaultRoute;
pub use dns::{NameServers, NamesNotSet, NamesWay, present_name_servers};
pub use error::HostError;
pub use helper::{HELPER_SUBCOMMAND, Helper, HelperOwner, serve};
pub use link::InterfaceAddress;
pub use mark::OUTER_MARK;
pub use monitor::{Changes, Monitor};
pub use nat::{Nat, forwarding_blockers};
pub use network::Network;
pub use parameter::{ReversePathFilter, reverse_path_filter};
pub use prefix::{NotAPrefix, Prefix};
pub use privilege::{NotPrivileged, can_administer};
pub use route::{Route, Uplink};
pub use transparent_proxy::{TransparentProxy, TransparentSettings};
pub use undo::{GUARDIAN_SUBCOMMAND, GuardianProgram, Undo, guard, recover, runtime_directory};
