//! Checks of paths and meetings between peers: what is taken, as it came or signed by the key, is what we would have
//! written.

/// A datagram.
pub fn run(data: &[u8]) {
    peer_proto::fuzzing::peer_check(data);
}

/// One check of each kind.
pub fn seeds() -> Vec<Vec<u8>> {
    peer_proto::fuzzing::peer_check_seeds()
}
