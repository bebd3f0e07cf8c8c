//! What `gramway peer`, `send`, `receive` and `share` give up once their key and other files are read, before their
//! first socket and thread. `gramway peer` writes nothing from then on; the others read and write what they are told
//! to.

use std::net::SocketAddr;
use std::path::PathBuf;

use peer::limits::SOCKET_BUFFER_BYTES;
use rustix::thread::CapabilitySet;

use super::calls::Calls;
use super::{confine, files, privileges};
use crate::output;

/// The first port that everybody may listen on.
const PORT_FOR_ALL_MIN: u16 = 1_024;

/// What root may do with files of others: it may be why its user can read or make them.
const OF_FILES: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID);

/// What an end goes on needing of the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OfPeer {
    /// Where it is to listen.
    pub(crate) listen: Option<SocketAddr>,
    /// It may reach a rendezvous in TCP's shape.
    pub(crate) has_tcp: bool,
}

impl OfPeer {
    fn capabilities(self) -> CapabilitySet {
        let mut kept = CapabilitySet::empty();
        let is_low = |address: SocketAddr| (1..PORT_FOR_ALL_MIN).contains(&address.port());
        kept.set(CapabilitySet::NET_BIND_SERVICE, self.listen.is_some_and(is_low));
        let exceeds_buffers = privileges::exceed_limits(SOCKET_BUFFER_BYTES, SOCKET_BUFFER_BYTES);
        kept.set(CapabilitySet::NET_ADMIN, exceeds_buffers);
        kept.set(CapabilitySet::NET_RAW, self.has_tcp);
        kept
    }
}

/// Confines `gramway peer`, and tells what does not hold.
pub(crate) fn confine_peer(needs: OfPeer) {
    let calls = match needs.has_tcp {
        true => Calls::PacketSockets,
        false => Calls::Program,
    };
    tell(&confine(needs.capabilities(), files::of_peer(), calls).1);
}

/// Confines a transfer of files to reading and writing these, and tells what does not hold. It runs nothing.
pub(crate) fn confine_transfer(needs: OfPeer, reads: Vec<PathBuf>, writes: Vec<PathBuf>) {
    let calls = Calls::Files {
        has_packets: needs.has_tcp,
    };
    let kept = needs.capabilities() | OF_FILES;
    tell(&confine(kept, files::of_transfer(reads, writes), calls).1);
}

fn tell(told: &[String]) {
    for text in told {
        output::note(&format!("warning: the sandbox does not hold for {text}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_listens_at_a_low_port_keeps_the_right_to() {
        let keeps = |listen: Option<&str>| {
            let listen = listen.map(|text| text.parse().unwrap());
            let needs = OfPeer {
                listen,
                ..OfPeer::default()
            };
            let kept = needs.capabilities();
            assert!(!kept.contains(CapabilitySet::NET_RAW));
            kept.contains(CapabilitySet::NET_BIND_SERVICE)
        };
        assert!(keeps(Some("[::]:443")));
        for other in [None, Some("[::]:0"), Some("192.0.2.1:1024")] {
            assert!(!keeps(other), "{other:?}");
        }
    }
}
