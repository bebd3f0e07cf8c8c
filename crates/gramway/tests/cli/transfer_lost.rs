//! A receiver whose line to the sender falls silent: it connects again, and counts and tells what all connections
//! brought.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use files::{Progress, RateLimit, SendOptions, Source, Transport};
use peer::blocking::wait;
use peer::{Endpoint, PeerId, SecretKey};

use crate::support::{LIMIT, Place, Program, UNAVAILABLE};
use crate::transfer::{id, receiving};

const BYTES: usize = 12 << 20;

/// Carries the datagrams between a sender and a receiver, or none.
struct Line {
    address: SocketAddr,
    is_up: Arc<AtomicBool>,
}

impl Line {
    fn to(sender: SocketAddr) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
        let address = socket.local_addr().expect("it has one");
        let is_up = Arc::new(AtomicBool::new(false));
        let of_thread = Arc::clone(&is_up);
        // It ends with the process.
        thread::spawn(move || {
            let mut receiver = None;
            let mut bytes = vec![0; 65_536];
            while let Ok((length, from)) = socket.recv_from(&mut bytes) {
                let to = match from == sender {
                    true => receiver,
                    false => {
                        receiver = Some(from);
                        Some(sender)
                    }
                };
                if let Some(to) = to.filter(|_| of_thread.load(Ordering::SeqCst)) {
                    let _ = socket.send_to(&bytes[..length], to);
                }
            }
        });
        Self { address, is_up }
    }

    fn carries(&self, carries: bool) {
        self.is_up.store(carries, Ordering::SeqCst);
    }
}

/// A sender of `noise` at the end of a line that carries nothing yet, and what a receiver calls it.
fn sender(place: &Place) -> (Line, String) {
    let noise: Vec<u8> = (0..BYTES as u64)
        .map(|number| (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u8)
        .collect();
    fs::write(place.path("noise"), noise).expect("it is written");
    let receiver: PeerId = id(place, "receiver").parse().expect("it is an ID");
    let key = SecretKey::generate().expect("the system gives random bytes");
    let endpoint = Endpoint::builder(key)
        .allow([receiver])
        // A lost connection is found soon.
        .idle_timeout(Duration::from_secs(2))
        .bind("127.0.0.1:0".parse().expect("it is an address"))
        .expect("a port is free");
    let line = Line::to(endpoint.local_addr());
    let at = format!("{}@{}", endpoint.id(), line.address);
    let options = SendOptions {
        sources: vec![Source::Path(place.path("noise"))],
        limit: Some(RateLimit::new(4 << 20)),
        transport: Transport::Quic,
        ..SendOptions::default()
    };
    thread::spawn(move || {
        while let Some(peer) = wait(endpoint.accept()) {
            let options = options.clone();
            thread::spawn(move || files::send(&peer, &options, &Progress::default()));
        }
    });
    (line, at)
}

fn start(place: &Place, at: &str, arguments: &[&str]) -> Child {
    let arguments = [&receiving(at), arguments].concat();
    place.command(&arguments).spawn().expect("it starts")
}

/// Until some chunks have come, of which each has a record of 40 bytes.
fn wait_for_some(place: &Place) {
    let journal = place.path("to/.noise.gramway-state");
    let deadline = Instant::now() + LIMIT;
    while fs::metadata(&journal).map_or(0, |found| found.len()) < 250 {
        assert!(Instant::now() < deadline, "nothing comes");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn the_end_counts_what_all_connections_brought_since_the_sender_was_met() {
    let place = Place::new();
    let (line, at) = sender(&place);
    let receiver = Program::watch_stdout(start(&place, &at, &["--json", "--timeout", "60"]));
    receiver.wait_for(r#""event":"waiting""#);
    let met = Instant::now();
    line.carries(true);
    wait_for_some(&place);
    line.carries(false);
    receiver.wait_for(r#""event":"lost""#);
    line.carries(true);
    let end = receiver.wait_for(r#""event":"end""#);
    let end: serde_json::Value = serde_json::from_str(&end).expect("it is JSON");
    assert_eq!(receiver.end(), Some(0));
    assert_eq!(end["bytes_sent"].as_u64(), Some(BYTES as u64), "{end}");
    assert_eq!(end["bytes_there"].as_u64(), Some(0), "{end}");
    assert_eq!(end["stored"].as_u64(), Some(1), "{end}");
    let seconds = end["seconds"].as_f64().expect("it is a number");
    assert!(seconds <= met.elapsed().as_secs_f64(), "{end}");
}

#[test]
fn whoever_has_lost_a_sender_for_good_is_told_how_to_go_on() {
    let place = Place::new();
    let (line, at) = sender(&place);
    line.carries(true);
    let receiver = Program::watch(start(&place, &at, &["--timeout", "3"]));
    wait_for_some(&place);
    line.carries(false);
    let told = receiver.wait_for("the sender was not reached within 3 s");
    assert!(
        told.contains("What has come is kept: run the same command again"),
        "{told}"
    );
    assert_eq!(receiver.end(), Some(UNAVAILABLE));
}
