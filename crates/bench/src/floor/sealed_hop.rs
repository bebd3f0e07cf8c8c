//! One hop from thread to thread: copy, seal, mask the header, GSO send; GRO receive, unmask, open.
//!
//! The sender keeps a bounded number of packets under way, so that nothing is lost and the rate is the slower side's.
//! Costs per packet are the time inside each side's work, without waiting.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use aws_lc_rs::aead::quic::{AES_128 as HEADER_AES_128, HeaderProtectionKey};
use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use packet::{Ecn, TRAIN_SEGMENTS_MAX, UDP_PAYLOAD_MAX};
use packet_io::{DatagramSocket, Interest, Outgoing, Poller, ReceiveBatch, SocketOptions, UdpSocket};
use serde::Serialize;

use super::Effort;
use crate::error::During;
use crate::{Error, limits};

/// Payload bytes per packet.
const PAYLOAD_BYTES: usize = 1_150;

/// Bytes of header: flags, connection ID of 8, packet number of 4, frame type and length.
const HEADER_BYTES: usize = 16;

/// Where the header-protection sample begins, in bytes (RFC 9001 section 5.4.2: four after the packet number).
const SAMPLE_OFFSET: usize = 13;

/// Bytes of the AEAD tag.
const TAG_BYTES: usize = 16;

/// Bytes per packet on the wire.
const PACKET_BYTES: usize = HEADER_BYTES + PAYLOAD_BYTES + TAG_BYTES;

/// Packets under way at most: a few trains, less than the receive buffer.
const WINDOW: u64 = 1_024;

/// Packets that have not arrived after this are lost.
const PATIENCE: Duration = Duration::from_millis(200);

/// What a hop carried and cost.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Hop {
    /// Whether packets were sealed.
    pub(super) sealed: bool,
    /// Payload bytes per packet.
    pub(super) payload_bytes: usize,
    /// Packets that arrived and opened.
    pub(super) received: u64,
    /// Packets that did not.
    pub(super) lost: u64,
    /// How long, in seconds.
    pub(super) seconds: f64,
    /// Nanoseconds of work per packet sent.
    pub(super) send_ns: f64,
    /// Nanoseconds of work per packet received.
    pub(super) receive_ns: f64,
}

struct Keys {
    packet: LessSafeKey,
    header: HeaderProtectionKey,
}

impl Keys {
    fn new() -> Result<Self, Error> {
        let refused = |_| Error::Setup("aws-lc-rs refused a key".to_owned());
        let packet = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &[7; 16]).map_err(refused)?);
        let header = HeaderProtectionKey::new(&HEADER_AES_128, &[9; 16]).map_err(refused)?;
        Ok(Self { packet, header })
    }

    fn mask(&self, packet: &mut [u8]) -> bool {
        let sample = &packet[SAMPLE_OFFSET..SAMPLE_OFFSET + 16];
        let Ok(mask) = self.header.new_mask(sample) else {
            return false;
        };
        packet[0] ^= mask[0] & 0x1f;
        packet[9..13]
            .iter_mut()
            .zip(&mask[1..])
            .for_each(|(byte, mask)| *byte ^= mask);
        true
    }

    fn seal(&self, number: u64, packet: &mut [u8]) -> bool {
        let (header, rest) = packet.split_at_mut(SAMPLE_OFFSET);
        let (body, tag_place) = rest.split_at_mut(rest.len() - TAG_BYTES);
        let Ok(tag) = self
            .packet
            .seal_in_place_separate_tag(nonce(number), Aad::from(&*header), body)
        else {
            return false;
        };
        tag_place.copy_from_slice(tag.as_ref());
        self.mask(packet)
    }

    fn open(&self, number: u64, packet: &mut [u8]) -> bool {
        if !self.mask(packet) {
            return false;
        }
        let (header, rest) = packet.split_at_mut(SAMPLE_OFFSET);
        self.packet
            .open_in_place(nonce(number), Aad::from(&*header), rest)
            .is_ok()
    }
}

fn nonce(number: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}

/// Runs one hop.
///
/// # Errors
/// When sockets or keys can't be made.
pub(super) fn measure(effort: Effort, sealed: bool) -> Result<Hop, Error> {
    let options = SocketOptions {
        receive_buffer_bytes: limits::LOAD_BUFFER_BYTES,
        send_buffer_bytes: limits::LOAD_BUFFER_BYTES,
        ..SocketOptions::default()
    };
    let action = || "make the sockets of a hop".to_owned();
    let receiver = UdpSocket::bind(SocketAddr::from(([127, 0, 0, 1], 0)), &options).during(action)?;
    let address = receiver.local_addr().during(action)?;
    let sender = UdpSocket::connect(None, address, &options).during(action)?;
    let (arrived, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let receiving = scope.spawn(|| receive(receiver, sealed, &arrived, &stop));
        let sent = send(sender, sealed, effort.hop, &arrived);
        stop.store(true, Ordering::Relaxed);
        let received = receiving
            .join()
            .map_err(|_| Error::Setup("the receiving thread panicked".to_owned()))?;
        let ((sent, send_time, seconds), (received, receive_time)) = (sent?, received?);
        let each = |time: Duration, packets: u64| time.as_nanos() as f64 / packets.max(1) as f64;
        Ok(Hop {
            sealed,
            payload_bytes: PAYLOAD_BYTES,
            received,
            lost: sent.saturating_sub(received),
            seconds,
            send_ns: each(send_time, sent),
            receive_ns: each(receive_time, received),
        })
    })
}

fn send(
    mut socket: UdpSocket,
    sealed: bool,
    length: Duration,
    arrived: &AtomicU64,
) -> Result<(u64, Duration, f64), Error> {
    let keys = Keys::new()?;
    let payload = [0x5a; PAYLOAD_BYTES];
    let segments = TRAIN_SEGMENTS_MAX.min(UDP_PAYLOAD_MAX / PACKET_BYTES);
    let mut train = vec![0; segments * PACKET_BYTES];
    let (mut sent, mut busy, start) = (0, Duration::ZERO, Instant::now());
    while start.elapsed() < length {
        let Some(()) = wait_for_room(sent, arrived) else {
            break;
        };
        let begin = Instant::now();
        for (packet, number) in train.chunks_exact_mut(PACKET_BYTES).zip(sent..) {
            packet[..HEADER_BYTES].fill(0x40);
            packet[HEADER_BYTES..HEADER_BYTES + PAYLOAD_BYTES].copy_from_slice(&payload);
            if sealed {
                keys.seal(number, packet);
            }
        }
        let message = Outgoing {
            destination: None,
            source: None,
            ecn: Ecn::NotEct,
            segment_size: PACKET_BYTES,
            payload: &train,
        };
        sent += socket
            .send(&[message])
            .during(|| "send over a hop".to_owned())?
            .segments;
        busy += begin.elapsed();
    }
    Ok((sent, busy, start.elapsed().as_secs_f64()))
}

/// Waits until the window has room; `None` when packets were lost.
fn wait_for_room(sent: u64, arrived: &AtomicU64) -> Option<()> {
    let start = Instant::now();
    while sent - arrived.load(Ordering::Acquire).min(sent) > WINDOW {
        if start.elapsed() > PATIENCE {
            return None;
        }
        thread::yield_now();
    }
    Some(())
}

fn receive(
    mut socket: UdpSocket,
    sealed: bool,
    arrived: &AtomicU64,
    stop: &AtomicBool,
) -> Result<(u64, Duration), Error> {
    let keys = Keys::new()?;
    let mut poller = Poller::new().during(|| "make a poller".to_owned())?;
    let interest = Interest {
        readable: true,
        writable: false,
    };
    poller
        .add(&socket, 0, interest)
        .during(|| "watch a socket".to_owned())?;
    let mut batch = ReceiveBatch::new(limits::RECEIVE_SLOTS, limits::RECEIVE_SLOT_BYTES);
    let (mut received, mut busy, mut ready) = (0, Duration::ZERO, Vec::new());
    let mut number = 0;
    loop {
        let begin = Instant::now();
        let count = socket
            .receive(&mut batch)
            .during(|| "receive over a hop".to_owned())?;
        for index in 0..count {
            let (meta, mut data) = batch.take(index);
            for packet in data.chunks_mut(meta.segment_size.max(1)) {
                // Loopback keeps the order, so the place in the stream is the packet number.
                received += u64::from(!sealed || keys.open(number, packet));
                number += 1;
            }
        }
        if count > 0 {
            busy += begin.elapsed();
            arrived.store(number, Ordering::Release);
        } else if stop.load(Ordering::Relaxed) {
            return Ok((received, busy));
        } else {
            ready.clear();
            poller
                .wait(&mut ready, Some(Duration::from_millis(1)))
                .during(|| "wait for a hop".to_owned())?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sealed_opens_and_what_was_touched_does_not() {
        let keys = Keys::new().unwrap();
        let mut packet = vec![0x40; PACKET_BYTES];
        assert!(keys.seal(5, &mut packet));
        let mut touched = packet.clone();
        touched[100] ^= 1;
        assert!(!keys.open(5, &mut touched));
        assert!(!keys.open(6, &mut packet.clone()));
        assert!(keys.open(5, &mut packet));
        assert_eq!(
            packet[HEADER_BYTES..HEADER_BYTES + PAYLOAD_BYTES],
            [0x40; PAYLOAD_BYTES]
        );
    }

    #[test]
    fn a_hop_carries_packets_that_open() {
        let effort = Effort {
            sample: Duration::ZERO,
            hop: Duration::from_millis(50),
            runs: 1,
        };
        let hop = measure(effort, true).unwrap();
        assert!(
            hop.received > 0 && hop.send_ns > 0.0 && hop.receive_ns > 0.0,
            "{hop:?}"
        );
    }
}
