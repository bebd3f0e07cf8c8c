//! From an outbox to the socket: by the endpoint's thread, or by a call of the program while that sleeps.

use std::net::SocketAddr;
use std::time::Instant;

use packet_io::{DatagramSocket, Outgoing, SocketOptions, UdpSocket, payload_max};
use peer_proto::{Outbox, is_relayed};

use crate::limits::{CALLER_PAUSE, RELAYED_PAYLOAD_MAX, SOCKET_BUFFER_BYTES};

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
    /// When a call last had something to send.
    pub(crate) handed_at: Option<Instant>,
    /// Another call came soon after that one.
    pub(crate) is_followed: bool,
}

impl Caller {
    /// Whether a call may send that comes now: what is sent fast goes better in trains.
    pub(crate) fn may_send(&self, now: Instant) -> bool {
        self.sent_at.is_none_or(|at| at + CALLER_PAUSE <= now)
    }

    /// A call has something to send. Whether calls come one at a time: this one some time after the last one, and that
    /// one after the one before.
    pub(crate) fn comes_alone(&mut self, now: Instant) -> bool {
        let follows = self.handed_at.is_some_and(|at| now < at + CALLER_PAUSE);
        self.handed_at = Some(now);
        let was_followed = std::mem::replace(&mut self.is_followed, follows);
        !follows && !was_followed
    }
}

#[cfg(test)]
mod tests {
    //! Virtual time.

    use std::time::Duration;

    use super::*;

    #[test]
    fn a_call_comes_alone_where_neither_it_nor_the_last_one_followed_closely() {
        let address = "127.0.0.1:0".parse().unwrap();
        let mut caller = Caller {
            socket: UdpSocket::bind(address, &socket_options()).unwrap(),
            outbox: Outbox::default(),
            sent_at: None,
            handed_at: None,
            is_followed: false,
        };
        let begin = Instant::now();
        let mut comes_alone = |microseconds| caller.comes_alone(begin + Duration::from_micros(microseconds));
        assert!(comes_alone(0));
        assert!(comes_alone(1_000));
        // A burst, and the first of the next one.
        assert!(!comes_alone(1_010));
        assert!(!comes_alone(1_020));
        assert!(!comes_alone(3_000));
        assert!(!comes_alone(3_001));
        // They come one at a time again.
        assert!(!comes_alone(5_000));
        assert!(comes_alone(7_000));
    }
}
