//! SYNs of machines that do not exist: each begins a handshake that nobody will complete.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use packet::checksum;
use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto, sendto, socket};
use testbed::namespace::Namespace;

/// They come from this network, which is for benchmarks (RFC 2544) and has 2^17 addresses.
const SOURCES: u32 = u32::from_be_bytes([198, 18, 0, 0]);
const SOURCES_COUNT: u32 = 1 << 17;

/// How often some are sent.
const INTERVAL: Duration = Duration::from_millis(5);

/// A flood under way.
pub(crate) struct SynFlood {
    ends: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    start: Instant,
    thread: Option<JoinHandle<()>>,
}

impl SynFlood {
    /// Sends so many a second from `machine` to `target`, which gets each from another address.
    pub(crate) fn start(machine: &Namespace, target: SocketAddrV4, per_second: u64) -> Self {
        let (ends, sent) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let raw =
            machine.inside(|| socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::RAW)).unwrap());
        let (stop, count, start) = (Arc::clone(&ends), Arc::clone(&sent), Instant::now());
        let thread = std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let due = (start.elapsed().as_secs_f64() * per_second as f64) as u64;
                for number in count.load(Ordering::Relaxed)..due {
                    // What is lost here is lost as on the way.
                    let _ = sendto(&raw, &syn(number as u32, target), SendFlags::empty(), &target);
                }
                count.store(due, Ordering::Relaxed);
                std::thread::sleep(INTERVAL);
            }
        });
        Self {
            ends,
            sent,
            start,
            thread: Some(thread),
        }
    }

    /// How many a second were sent so far.
    pub(crate) fn rate(&self) -> f64 {
        self.sent.load(Ordering::Relaxed) as f64 / self.start.elapsed().as_secs_f64()
    }
}

impl Drop for SynFlood {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Its panic was printed.
            let _ = thread.join();
        }
    }
}

/// A packet of 44 bytes: a SYN with an MSS.
fn syn(number: u32, target: SocketAddrV4) -> [u8; 44] {
    let source = Ipv4Addr::from_bits(SOURCES + number.wrapping_mul(2_654_435_761) % SOURCES_COUNT);
    let mut packet = [0; 44];
    packet[..4].copy_from_slice(&[0x45, 0, 0, 44]);
    packet[8..10].copy_from_slice(&[64, 6]);
    packet[12..16].copy_from_slice(&source.octets());
    packet[16..20].copy_from_slice(&target.ip().octets());
    let header = checksum::sum(&packet[..20]);
    packet[10..12].copy_from_slice(&(!header).to_be_bytes());
    let port = 1_024 + (number % 60_000) as u16;
    packet[20..22].copy_from_slice(&port.to_be_bytes());
    packet[22..24].copy_from_slice(&target.port().to_be_bytes());
    packet[24..28].copy_from_slice(&number.to_be_bytes());
    packet[32..36].copy_from_slice(&[0x60, 2, 0xfa, 0xf0]);
    packet[40..44].copy_from_slice(&[2, 4, 5, 180]);
    // What a partial checksum stands for: addresses, protocol and length.
    let pseudo = checksum::pseudo_header(source.into(), (*target.ip()).into(), 6, 24);
    packet[36..38].copy_from_slice(&pseudo.to_be_bytes());
    checksum::complete(&mut packet).expect("it is a whole packet");
    packet
}

#[test]
fn a_syn_of_the_flood_is_one_of_tcp() {
    let target = SocketAddrV4::new([10, 78, 0, 1].into(), 443);
    let (one, other) = (syn(1, target), syn(2, target));
    assert!(checksum::verify(&one) && checksum::verify(&other));
    assert_eq!(checksum::sum(&one[..20]), 0xffff);
    assert_ne!(one[12..16], other[12..16]);
}
