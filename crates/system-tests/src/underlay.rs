//! What a machine sends on its cable in clear, seen at the other end of the cable.
//!
//! A raw socket there sees every frame. What the machine needs to be on the cable at all (ARP, neighbour discovery,
//! reports of multicast listeners, DHCP) and the outer flow of the tunnel do not count.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use rustix::net::sockopt::{Timeout, set_socket_recv_buffer_size_force, set_socket_timeout};
use rustix::net::{
    AddressFamily, Protocol, RawProtocol, RecvFlags, SocketFlags, SocketType, recv, socket_with,
};
use testbed::namespace::Namespace;

use crate::limits::{CAPTURE_BUFFER_BYTES, CAPTURE_POLL, UDP_PAYLOAD_BUFFER};

/// All protocols, in network order as the kernel wants it (`ETH_P_ALL`).
const EVERY_PROTOCOL: u32 = 0x0003_u16.to_be() as u32;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const ARP: u16 = 0x0806;

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP_V6: u8 = 58;

/// Hop-by-hop options, which reports of multicast listeners carry (RFC 3810 section 5).
const HOP_BY_HOP: u8 = 0;

/// Where a packet goes, and by which protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flow {
    /// Protocol number of the IP header.
    pub protocol: u8,
    /// Destination; port 0 where the protocol has none.
    pub to: SocketAddr,
}

impl Flow {
    /// UDP to this address.
    #[must_use]
    pub fn udp(to: SocketAddr) -> Self {
        Self { protocol: UDP, to }
    }

    /// TCP to this address.
    #[must_use]
    pub fn tcp(to: SocketAddr) -> Self {
        Self { protocol: TCP, to }
    }
}

/// A capture that runs until it is dropped.
pub struct Underlay {
    seen: Arc<Mutex<Seen>>,
    is_stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Seen {
    /// Packets in clear.
    clear: BTreeMap<Flow, u64>,
    /// Packets of the tunnel.
    outer: u64,
}

impl Underlay {
    /// Captures at `observer` what a machine sends from this interface; UDP to `server` is the tunnel's.
    ///
    /// # Panics
    /// When there is no such interface, or raw sockets are refused.
    #[must_use]
    pub fn capture(observer: &Namespace, from: (&Namespace, &str), server: SocketAddr) -> Self {
        let (machine, interface) = from;
        let file = format!("/sys/class/net/{interface}/address");
        let address = machine.run("cat", [file]).unwrap();
        let octets = address.trim().split(':');
        let sender: Vec<u8> = octets
            .map(|octet| u8::from_str_radix(octet, 16).unwrap())
            .collect();
        let socket = observer.inside(|| {
            let protocol = RawProtocol::new(EVERY_PROTOCOL).expect("it is not zero");
            let flags = SocketFlags::CLOEXEC;
            let protocol = Some(Protocol::from_raw(protocol));
            socket_with(AddressFamily::PACKET, SocketType::RAW, flags, protocol).unwrap()
        });
        set_socket_timeout(&socket, Timeout::Recv, Some(CAPTURE_POLL)).unwrap();
        set_socket_recv_buffer_size_force(&socket, CAPTURE_BUFFER_BYTES).unwrap();
        let (seen, is_stopping) = (Arc::<Mutex<Seen>>::default(), Arc::<AtomicBool>::default());
        let (into, ends) = (Arc::clone(&seen), Arc::clone(&is_stopping));
        let thread = thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                read(&socket, &sender, server, &into);
            }
        });
        Self {
            seen,
            is_stopping,
            thread: Some(thread),
        }
    }

    /// What was sent in clear since the start, or since [`Self::forget`], and how many packets of each.
    #[must_use]
    pub fn in_clear(&self) -> BTreeMap<Flow, u64> {
        lock(&self.seen).clear.clone()
    }

    /// Packets of the tunnel since the start.
    #[must_use]
    pub fn outer(&self) -> u64 {
        lock(&self.seen).outer
    }

    /// Begins anew.
    pub fn forget(&self) {
        lock(&self.seen).clear.clear();
    }
}

impl Drop for Underlay {
    fn drop(&mut self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Where it panicked, it has said so.
            let _ = thread.join();
        }
    }
}

fn lock(seen: &Mutex<Seen>) -> std::sync::MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads one frame, or none within [`CAPTURE_POLL`].
fn read(socket: &OwnedFd, sender: &[u8], server: SocketAddr, seen: &Mutex<Seen>) {
    let mut frame = [0; UDP_PAYLOAD_BUFFER];
    let Ok((_, length)) = recv(socket, &mut frame[..], RecvFlags::empty()) else {
        return;
    };
    let frame = &frame[..length];
    // Frames of others, and this machine's own on the cable.
    if frame.get(6..12) != Some(sender) {
        return;
    }
    match judge(frame, server) {
        Judgement::Needed => {}
        Judgement::Outer => lock(seen).outer += 1,
        Judgement::Clear(flow) => *lock(seen).clear.entry(flow).or_default() += 1,
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Judgement {
    /// Without it there is no network.
    Needed,
    /// The tunnel's own.
    Outer,
    Clear(Flow),
}

/// A frame that cannot be read counts as one in clear, to nowhere.
fn judge(frame: &[u8], server: SocketAddr) -> Judgement {
    if frame.get(12..14) == Some(&ARP.to_be_bytes()) {
        return Judgement::Needed;
    }
    let Some((flow, first)) = parse(frame) else {
        let to = SocketAddr::from(([0; 4], 0));
        return Judgement::Clear(Flow { protocol: 0, to });
    };
    let is_dhcp = flow.protocol == UDP && matches!(flow.to.port(), 67 | 547);
    let is_discovery = flow.protocol == ICMP_V6 && matches!(first, 131..=136 | 143);
    // The kernel's answer where the server still sends to a client that was killed.
    let is_complaint = flow.protocol == ICMP && flow.to.ip() == server.ip();
    match flow {
        _ if is_dhcp || is_discovery || is_complaint => Judgement::Needed,
        _ if flow == Flow::udp(server) => Judgement::Outer,
        _ => Judgement::Clear(flow),
    }
}

/// The flow, and the first byte behind the IP header.
fn parse(frame: &[u8]) -> Option<(Flow, u8)> {
    let packet = frame.get(14..)?;
    let kind = u16::from_be_bytes(frame.get(12..14)?.try_into().ok()?);
    let (to, protocol, payload): (IpAddr, u8, &[u8]) = match kind {
        IPV4 => {
            let to: [u8; 4] = packet.get(16..20)?.try_into().ok()?;
            let header = usize::from(packet.first()? & 0x0f) * 4;
            (to.into(), *packet.get(9)?, packet.get(header..)?)
        }
        IPV6 => {
            let to: [u8; 16] = packet.get(24..40)?.try_into().ok()?;
            let (protocol, payload) = match *packet.get(6)? {
                HOP_BY_HOP => {
                    let length = 8 + usize::from(*packet.get(41)?) * 8;
                    (*packet.get(40)?, packet.get(40 + length..)?)
                }
                protocol => (protocol, packet.get(40..)?),
            };
            (to.into(), protocol, payload)
        }
        _ => return None,
    };
    let port = match protocol {
        TCP | UDP => u16::from_be_bytes(payload.get(2..4)?.try_into().ok()?),
        _ => 0,
    };
    let to = SocketAddr::new(to, port);
    Some((Flow { protocol, to }, *payload.first()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(protocol: u8, port: u16) -> Vec<u8> {
        let mut frame = vec![0; 14 + 20 + 8];
        frame[12..14].copy_from_slice(&IPV4.to_be_bytes());
        frame[14] = 0x45;
        frame[14 + 9] = protocol;
        frame[14 + 16..14 + 20].copy_from_slice(&[192, 0, 2, 1]);
        frame[14 + 22..14 + 24].copy_from_slice(&port.to_be_bytes());
        frame
    }

    #[test]
    fn only_what_the_cable_needs_and_the_tunnel_do_not_count() {
        let server = "192.0.2.1:4433".parse().unwrap();
        assert_eq!(judge(&v4(UDP, 4_433), server), Judgement::Outer);
        assert_eq!(judge(&v4(UDP, 67), server), Judgement::Needed);
        let to = "192.0.2.1:53".parse().unwrap();
        assert_eq!(judge(&v4(UDP, 53), server), Judgement::Clear(Flow::udp(to)));
        let to = "192.0.2.1:4433".parse().unwrap();
        assert_eq!(judge(&v4(TCP, 4_433), server), Judgement::Clear(Flow::tcp(to)));
        let mut arp = v4(UDP, 53);
        arp[12..14].copy_from_slice(&ARP.to_be_bytes());
        assert_eq!(judge(&arp, server), Judgement::Needed);
        for length in 0..v4(UDP, 53).len() {
            // What is cut off is told, and nothing panics.
            assert_ne!(judge(&v4(UDP, 53)[..length], server), Judgement::Outer);
        }
    }

    #[test]
    fn neighbour_discovery_is_found_behind_options_and_other_icmp_is_not_it() {
        let server = "192.0.2.1:4433".parse().unwrap();
        let icmp = |kind: u8, has_options: bool| {
            let mut frame = vec![0; 14 + 40];
            frame[12..14].copy_from_slice(&IPV6.to_be_bytes());
            frame[14 + 6] = if has_options { HOP_BY_HOP } else { ICMP_V6 };
            if has_options {
                frame.extend([ICMP_V6, 0, 0, 0, 0, 0, 0, 0]);
            }
            frame.extend([kind, 0, 0, 0]);
            judge(&frame, server)
        };
        assert_eq!(icmp(135, false), Judgement::Needed);
        assert_eq!(icmp(143, true), Judgement::Needed);
        let to = SocketAddr::from(([0; 16], 0));
        let echo = Flow {
            protocol: ICMP_V6,
            to,
        };
        assert_eq!(icmp(128, false), Judgement::Clear(echo));
    }
}
