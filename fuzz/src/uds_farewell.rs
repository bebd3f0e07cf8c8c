//! Packets that irpc-uds looks into to close a connection whose peer is gone: whatever the last datagram was, what is
//! written to continue or to answer it can be read again, and addresses the same connection.

/// One datagram.
pub fn run(data: &[u8]) {
    irpc_uds::fuzzing::farewell(data);
}

/// RFC 9000 section 17: the first bytes of packets with four bytes of packet number.
const INITIAL: u8 = 0xc3;
const HANDSHAKE: u8 = 0xe3;
const SHORT: u8 = 0x43;

fn long(first: u8, destination: &[u8], source: &[u8], payload: usize) -> Vec<u8> {
    let mut packet = vec![first, b'u', b'd', b's', 1];
    for id in [destination, source] {
        packet.push(id.len() as u8);
        packet.extend(id);
    }
    if first == INITIAL {
        packet.push(0);
    }
    packet.extend((0x4000 | (4 + payload) as u16).to_be_bytes());
    packet.extend([0, 0, 0xff, 0xff]);
    packet.extend(vec![1; payload]);
    packet
}

/// Each kind of packet, several in one datagram, padding, and a refusal.
pub fn seeds() -> Vec<Vec<u8>> {
    let initial = long(INITIAL, b"8 bytes.", b"the peer", 40);
    let handshake = long(HANDSHAKE, b"8 bytes.", b"the peer", 20);
    let short = [&[SHORT][..], b"8 bytes.", &[0xff; 4], &[1; 30]].concat();
    vec![
        [&initial[..], &handshake, &short].concat(),
        [&initial[..], &[0; 300]].concat(),
        long(INITIAL, &[7; 20], &[], 1_100),
        long(HANDSHAKE, &[], &[9; 20], 63),
        [&initial[..], &handshake[..handshake.len() - 1]].concat(),
        initial,
        handshake,
        short,
        [&[0][..], "uid 7 is not allowed \u{e4}".as_bytes()].concat(),
        vec![0; 64],
    ]
}
