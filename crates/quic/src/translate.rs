//! Converts values between quinn-proto's types and the types of the public API.

use quinn_proto::{ConnectionStats, Dir, VarInt};

use crate::counters::Counters;
use crate::error::{CloseReason, ConnectError, StreamError};
use crate::limits::CLOSE_REASON_CHARACTERS_MAX;
use crate::stream::{Direction, StreamId};
use crate::transmit::OutgoingTrain;

pub(crate) fn stream(stream: quinn_proto::StreamId) -> StreamId {
    StreamId(stream.into())
}

pub(crate) fn core_stream(stream: StreamId) -> quinn_proto::StreamId {
    VarInt::from_u64(stream.0)
        .expect("every stream ID was made from one of the core's")
        .into()
}

pub(crate) fn direction(direction: Dir) -> Direction {
    match direction {
        Dir::Bi => Direction::Bidirectional,
        Dir::Uni => Direction::Unidirectional,
    }
}

pub(crate) fn core_direction(direction: Direction) -> Dir {
    match direction {
        Direction::Bidirectional => Dir::Bi,
        Direction::Unidirectional => Dir::Uni,
    }
}

pub(crate) fn connect_error(error: quinn_proto::ConnectError) -> ConnectError {
    use quinn_proto::ConnectError as Core;
    match error {
        Core::InvalidServerName(name) => ConnectError::ServerName(name),
        Core::InvalidRemoteAddress(address) => ConnectError::RemoteAddress(address),
        Core::CidsExhausted => ConnectError::TooManyConnections,
        Core::EndpointStopping | Core::NoDefaultClientConfig | Core::UnsupportedVersion => {
            unreachable!("the configuration is ours, and the endpoint never stops: {error}")
        }
    }
}

pub(crate) fn close_reason(error: &quinn_proto::ConnectionError) -> CloseReason {
    use quinn_proto::ConnectionError as Core;
    match error {
        Core::TimedOut => CloseReason::TimedOut,
        Core::Reset => CloseReason::Reset,
        Core::LocallyClosed => CloseReason::LocallyClosed,
        Core::ApplicationClosed(close) => CloseReason::ApplicationClosed {
            code: close.error_code.into_inner(),
            reason: peers_words(&String::from_utf8_lossy(&close.reason)),
        },
        Core::ConnectionClosed(close) => CloseReason::Aborted {
            code: close.error_code.into(),
            description: peers_words(&close.to_string()),
        },
        Core::VersionMismatch | Core::TransportError(_) | Core::CidsExhausted => {
            CloseReason::Protocol(error.to_string())
        }
    }
}

/// What a peer says of the end of a connection, for logs and terminals. It may be hostile, and before the handshake
/// anybody on the path can say it (RFC 9001 section 5.2): characters that change how the text around them is shown are
/// replaced, and a long text is cut.
fn peers_words(text: &str) -> String {
    let reorders =
        |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let shown = |c: char| {
        if c.is_control() || reorders(c) {
            char::REPLACEMENT_CHARACTER
        } else {
            c
        }
    };
    text.chars()
        .take(CLOSE_REASON_CHARACTERS_MAX)
        .map(shown)
        .collect()
}

/// What a write gave; a blocked one took nothing.
pub(crate) fn written(result: Result<usize, quinn_proto::WriteError>) -> Result<usize, StreamError> {
    use quinn_proto::WriteError as Core;
    match result {
        Ok(written) => Ok(written),
        Err(Core::Blocked) => Ok(0),
        Err(Core::Stopped(code)) => Err(StreamError::Reset(code.into_inner())),
        Err(Core::ClosedStream) => Err(StreamError::Closed),
    }
}

/// The first `transmit.size` bytes of `bytes` as a train; its mark of ECN is kept where the profile uses them.
pub(crate) fn train(transmit: &quinn_proto::Transmit, uses_ecn: bool, mut bytes: Vec<u8>) -> OutgoingTrain {
    bytes.truncate(transmit.size);
    OutgoingTrain {
        destination: transmit.destination,
        source: transmit.src_ip,
        ecn: match transmit.ecn {
            Some(codepoint) if uses_ecn => packet::Ecn::from_bits(codepoint as u8),
            _ => packet::Ecn::NotEct,
        },
        segment_size: transmit.segment_size.unwrap_or(transmit.size),
        bytes,
    }
}

pub(crate) fn counters(stats: &ConnectionStats, trains_sent: u64, window_cuts: u64) -> Counters {
    Counters {
        packets_sent: stats.udp_tx.datagrams,
        packets_received: stats.udp_rx.datagrams,
        bytes_sent: stats.udp_tx.bytes,
        bytes_received: stats.udp_rx.bytes,
        datagrams_sent: stats.frame_tx.datagram,
        datagrams_received: stats.frame_rx.datagram,
        acks_sent: stats.frame_tx.acks,
        acks_received: stats.frame_rx.acks,
        stream_frames_sent: stats.frame_tx.stream,
        stream_frames_received: stats.frame_rx.stream,
        packets_lost: stats.path.lost_packets,
        window_cuts,
        lost_mtu_probes: stats.path.lost_plpmtud_probes,
        black_holes: stats.path.black_holes_detected,
        trains_sent,
        train_segments_sent: stats.udp_tx.datagrams,
    }
}
