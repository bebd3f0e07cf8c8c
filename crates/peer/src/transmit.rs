//! From an outbox to the socket: by the endpoint's thread, or by a call of the program while that sleeps.

use std::net::SocketAddr;
use std::time::Instant;

use packet_io::{DatagramSocket, Outgoing, SocketOptions, UdpSocket, payload_max};
use peer_proto::{Outbox, is_relayed};

use crate::limits::{RELAYED_PAYLOAD_MAX, SOCKET_BUFFER_BYTES};

/// How an endpoint's socket is set up.
pub(crate) fn socket_options() -> SocketOptions {
    SocketOptions {
        receive_buffer_bytes: SOCKET_BUFFER_BYTES,
        send_buffer_bytes: SOCKET_BUFFER_BYTES,
        dont_fragment: true,
        receive_ecn: true,
        ..SocketOptions::default()
    }
}

/// Largest UDP payload that the interface towards a peer carries, or its relay without cutting it, in bytes.
pub(crate) fn udp_payload_to(remote: SocketAddr) -> u16 {
    if is_relayed(remote) {
        RELAYED_PAYLOAD_MAX
    } else {
        payload_max(remote, None)
    }
}

/// Sends what is in the outbox; whether the socket took no more, so that some is left.
pub(crate) fn transmit(socket: &mut UdpSocket, outbox: &mut Outbox) -> bool {
    let messages: Vec<Outgoing<'_>> = outbox
        .trains()
        .iter()
        .map(|train| Outgoing {
            destination: Some(train.destination),
            source: train.source,
            ecn: train.ecn,
            segment_size: train.segment_size,
            payload: &train.bytes,
        })
        .collect();
    if messages.is_empty() {
        return false;
    }
    let outcome = socket.send(&messages).unwrap_or_default();
    drop(messages);
    outbox.release(outcome.messages);
    outbox.advance(outcome.partial_segments);
    if !outcome.blocked {
        // Whatever is left then can never be sent.
        outbox.release(usize::MAX);
    }
    outcome.blocked
}

/// What a call of the program sends with: the endpoint's socket, by a descriptor of its own.
pub(crate) struct Caller {
    pub(crate) socket: UdpSocket,
    pub(crate) outbox: Outbox,
    /// When a call last sent.
    pub(crate) sent_at: Option<Instant>,
}
