//! Capabilities: only those that later work needs stay, and no program that is run gets more than this process has.

use std::io;

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, capabilities, remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

use super::{Needs, OfRelay};

/// Whether the buffers that sockets are to have, in bytes, are larger than the system grants without CAP_NET_ADMIN.
pub(super) fn exceed_limits(receive_bytes: usize, send_bytes: usize) -> bool {
    let limit = |name: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/net/core/{name}")).ok()?;
        text.trim().parse::<usize>().ok()
    };
    let exceeds = |name, bytes: usize| limit(name).is_none_or(|limit| limit < bytes);
    exceeds("rmem_max", receive_bytes) || exceeds("wmem_max", send_bytes)
}

/// What changes the host's network; the second one binds a socket to another interface than before.
pub(super) const OF_HELPER: CapabilitySet = CapabilitySet::NET_ADMIN.union(CapabilitySet::NET_RAW);

/// What the tunnel itself keeps: with a TUN, its helper does the rest.
pub(super) fn of_tunnel(needs: &Needs) -> CapabilitySet {
    let mut kept = CapabilitySet::empty();
    kept.set(CapabilitySet::NET_BIND_SERVICE, needs.listens);
    kept.set(CapabilitySet::NET_RAW, needs.has_tcp || needs.has_tproxy);
    kept.set(CapabilitySet::NET_ADMIN, needs.exceeds_buffers && !needs.has_tun);
    kept
}

/// What a relay keeps: near the clients it takes a port with each connection, and looks for the first hop again when
/// the route changes; near the target it opens a UDP socket with each connection.
pub(super) fn of_relay(relay: OfRelay) -> CapabilitySet {
    let bytes = relay::limits::FLOW_BUFFER_BYTES;
    match relay {
        OfRelay::NearClients => CapabilitySet::NET_RAW,
        OfRelay::NearTarget if exceed_limits(bytes, bytes) => CapabilitySet::NET_ADMIN,
        OfRelay::NearTarget => CapabilitySet::empty(),
    }
}

/// Gives up all but these; the names of those that stay.
pub(super) fn keep(kept: CapabilitySet) -> io::Result<Vec<String>> {
    let mut sets = capabilities(None)?;
    if sets.effective.contains(CapabilitySet::SETPCAP) {
        for (_, one) in CapabilitySet::all().difference(kept).iter_names() {
            match remove_capability_from_bounding_set(one) {
                // The kernel does not know it.
                Ok(()) | Err(Errno::INVAL) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    sets.permitted &= kept;
    sets.effective &= kept;
    sets.inheritable &= kept;
    set_capabilities(None, sets)?;
    set_no_new_privs(true)?;
    let names = sets.effective.iter_names();
    Ok(names.map(|(name, _)| name.to_ascii_lowercase()).collect())
}
