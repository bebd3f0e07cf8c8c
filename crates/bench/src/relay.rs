//! One hop of the plaintext relay: the tunnel's work without QUIC and cryptography, as an upper bound for it.
//!
//! Each source gets its own upstream socket, as in the tunnel. Datagrams that arrive singly leave as trains; what
//! arrived coalesced leaves as it came. Two such processes in a row are what a row of the benchmark is compared with.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use packet::{Ecn, Train, TrainLimits};
use packet_io::{DatagramSocket, Interest, Outgoing, Poller, Ready, ReceiveBatch, SocketOptions, UdpSocket};
use serde::{Deserialize, Serialize};

use crate::error::During;
use crate::{Error, limits};

/// Token of the ingress socket; the upstream sockets follow.
const INGRESS: u64 = 0;

/// Receives in a row from one socket before the others get their turn.
const RECEIVES_PER_TURN: usize = 8;

/// From where to where.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RelayOptions {
    /// UDP and TCP address to listen on; port 0 takes a free one.
    pub(crate) listen: SocketAddr,
    /// Where everything goes.
    pub(crate) target: SocketAddr,
}

/// One UDP hop.
pub(crate) struct Relay {
    ingress: UdpSocket,
    address: SocketAddr,
    target: SocketAddr,
    poller: Poller,
    upstreams: Vec<Upstream>,
    by_source: HashMap<SocketAddr, usize>,
    batch: ReceiveBatch,
}

struct Upstream {
    socket: UdpSocket,
    source: SocketAddr,
    train: Train,
}

fn socket_options() -> SocketOptions {
    SocketOptions {
        receive_buffer_bytes: limits::LOAD_BUFFER_BYTES,
        send_buffer_bytes: limits::LOAD_BUFFER_BYTES,
        ..SocketOptions::default()
    }
}

impl Relay {
    /// Binds the ingress socket.
    ///
    /// # Errors
    /// When the address is taken.
    pub(crate) fn bind(options: &RelayOptions) -> Result<Self, Error> {
        let action = || format!("bind a UDP relay to {}", options.listen);
        let ingress = UdpSocket::bind(options.listen, &socket_options()).during(action)?;
        let address = ingress.local_addr().during(action)?;
        let poller = Poller::new().during(action)?;
        poller
            .add(
                &ingress,
                INGRESS,
                Interest {
                    readable: true,
                    writable: false,
                },
            )
            .during(action)?;
        Ok(Self {
            ingress,
            address,
            target: options.target,
            poller,
            upstreams: Vec::new(),
            by_source: HashMap::new(),
            batch: ReceiveBatch::new(limits::RELAY_SLOTS, limits::RECEIVE_SLOT_BYTES),
        })
    }

    /// The address that was bound.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Relays until `stop` is set.
    ///
    /// # Errors
    /// When a socket breaks.
    pub(crate) fn run(mut self, stop: &AtomicBool) -> Result<(), Error> {
        let mut ready: Vec<Ready> = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            ready.clear();
            let action = || format!("relay {} to {}", self.address, self.target);
            self.poller
                .wait(&mut ready, Some(limits::STOP_CHECK))
                .during(action)?;
            for event in &ready {
                let turn = match event.token.checked_sub(1) {
                    None => self.forward(),
                    Some(index) => self.backward(index as usize),
                };
                turn.during(|| format!("relay {} to {}", self.address, self.target))?;
            }
        }
        Ok(())
    }

    fn forward(&mut self) -> io::Result<()> {
        for _ in 0..RECEIVES_PER_TURN {
            let count = self.ingress.receive(&mut self.batch)?;
            if count == 0 {
                break;
            }
            for index in 0..count {
                let source = self.batch.get(index).meta.source;
                let Some(upstream) = self.upstream(source)? else {
                    continue;
                };
                let received = self.batch.get(index);
                let upstream = &mut self.upstreams[upstream];
                for datagram in received.segments() {
                    upstream.push(datagram)?;
                }
            }
            for upstream in &mut self.upstreams {
                upstream.flush()?;
            }
        }
        Ok(())
    }

    fn backward(&mut self, index: usize) -> io::Result<()> {
        let Some(upstream) = self.upstreams.get_mut(index) else {
            return Ok(());
        };
        for _ in 0..RECEIVES_PER_TURN {
            let count = match upstream.socket.receive(&mut self.batch) {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => 0,
                other => other?,
            };
            if count == 0 {
                break;
            }
            let answers: Vec<Outgoing<'_>> = (0..count)
                .map(|index| {
                    let received = self.batch.get(index);
                    let segment_size = received.meta.segment_size;
                    outgoing(Some(upstream.source), segment_size, received.payload)
                })
                .collect();
            self.ingress.send(&answers)?;
        }
        Ok(())
    }

    /// The index of the socket for `source`, or `None` where the table is full.
    fn upstream(&mut self, source: SocketAddr) -> io::Result<Option<usize>> {
        if let Some(index) = self.by_source.get(&source) {
            return Ok(Some(*index));
        }
        let index = self.upstreams.len();
        if index >= limits::RELAY_SOURCES_MAX {
            return Ok(None);
        }
        let socket = UdpSocket::connect(None, self.target, &socket_options())?;
        self.poller.add(
            &socket,
            index as u64 + 1,
            Interest {
                readable: true,
                writable: false,
            },
        )?;
        self.upstreams.push(Upstream {
            socket,
            source,
            train: Train::default(),
        });
        self.by_source.insert(source, index);
        Ok(Some(index))
    }
}

fn outgoing(destination: Option<SocketAddr>, segment_size: usize, payload: &[u8]) -> Outgoing<'_> {
    Outgoing {
        destination,
        source: None,
        ecn: Ecn::NotEct,
        segment_size,
        payload,
    }
}

impl Upstream {
    fn push(&mut self, datagram: &[u8]) -> io::Result<()> {
        if self.train.push(datagram, TrainLimits::default()).is_err() {
            self.flush()?;
            let pushed = self.train.push(datagram, TrainLimits::default());
            debug_assert!(pushed.is_ok(), "an empty train takes any datagram");
        }
        Ok(())
    }

    /// Sends the train. What does not fit the send buffer is lost, as on any router.
    fn flush(&mut self) -> io::Result<()> {
        if self.train.is_empty() {
            return Ok(());
        }
        let message = outgoing(None, self.train.segment_size(), self.train.bytes());
        let result = self.socket.send(&[message]);
        self.train.clear();
        match result {
            Err(error) if error.kind() != io::ErrorKind::ConnectionRefused => Err(error),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn datagrams_pass_both_hops_and_answers_come_back_to_their_source() {
        let target = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let second = Relay::bind(&RelayOptions {
            listen,
            target: target.local_addr().unwrap(),
        })
        .unwrap();
        let first = Relay::bind(&RelayOptions {
            listen,
            target: second.address(),
        })
        .unwrap();
        let (entrance, stop) = (first.address(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let stop_at_end = StopOnDrop(&stop);
            scope.spawn(|| first.run(&stop).unwrap());
            scope.spawn(|| second.run(&stop).unwrap());
            target.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            let mut buffer = [0; 2_048];
            for client in 0..3_u8 {
                let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
                socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
                for size in [1_200, 1_200, 7] {
                    socket.send_to(&vec![client; size], entrance).unwrap();
                    let (length, source) = target.recv_from(&mut buffer).unwrap();
                    assert_eq!((length, buffer[0]), (size, client));
                    target.send_to(&[client + 10], source).unwrap();
                    let (length, source) = socket.recv_from(&mut buffer).unwrap();
                    assert_eq!((length, buffer[0], source), (1, client + 10, entrance));
                }
            }
            drop(stop_at_end);
        });
    }

    struct StopOnDrop<'a>(&'a AtomicBool);

    impl Drop for StopOnDrop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}
