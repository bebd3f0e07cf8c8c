//! A running relay: its sockets, its threads, and what is asked of them.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fake_tcp_socket::{FakeTcpSocket, Key, Options, Profile};
use packet_io::{DatagramSocket, SocketOptions, UdpSocket, Waker};

use crate::client::Client;
use crate::counters::Counters;
use crate::limits::{ANSWER_WAIT, SHARED_BUFFER_BYTES, WORKERS_MAX};
use crate::server::Server;
use crate::worker::{News, Shared, Side, Worker};

/// What goes where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From UDP peers to a relay that takes connections.
    UdpToTcp,
    /// From connections to a UDP target.
    TcpToUdp,
}

/// A relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// What goes where.
    pub direction: Direction,
    /// Where it listens.
    pub listen: SocketAddr,
    /// Where it leads.
    pub to: SocketAddr,
    /// Threads, each with sockets of its own.
    pub workers: usize,
    /// How long a flow may carry nothing before it is forgotten.
    pub idle: Duration,
    /// Whom connections look like and talk to.
    pub profile: Profile,
    /// What both relays have in common: only who has it is let in, and datagrams are sealed.
    pub key: Option<Key>,
}

/// A relay whose sockets are open, and which has no thread yet: between the two a process can give up what it does not
/// need any more, for all threads alike.
pub struct Opened {
    listen: SocketAddr,
    warning: Option<String>,
    workers: Vec<Worker>,
}

/// See the module's text. Dropping it stops it.
pub struct Relay {
    listen: SocketAddr,
    warning: Option<String>,
    workers: Vec<Running>,
}

struct Running {
    waker: Waker,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Opened {
    /// Starts the workers. Each tells its news by `tell`, last of all that it has ended, for whatever reason.
    ///
    /// # Errors
    /// The system has no more threads.
    pub fn start(self, tell: impl Fn(News) + Clone + Send + 'static) -> io::Result<Relay> {
        let mut relay = Relay {
            listen: self.listen,
            warning: self.warning,
            workers: Vec::with_capacity(self.workers.len()),
        };
        for (number, worker) in self.workers.into_iter().enumerate() {
            let running = Running::start(worker, number, tell.clone())?;
            relay.workers.push(running);
        }
        Ok(relay)
    }
}

impl Relay {
    /// Opens all sockets.
    ///
    /// # Errors
    /// The address is taken, no way leads there, CAP_NET_RAW is missing, or the system has no more sockets.
    pub fn open(config: &Config) -> io::Result<Opened> {
        let workers = config.workers.clamp(1, WORKERS_MAX);
        let socket = SocketOptions {
            receive_buffer_bytes: SHARED_BUFFER_BYTES,
            send_buffer_bytes: SHARED_BUFFER_BYTES,
            receive_ecn: true,
            ..SocketOptions::default()
        };
        let options = Options {
            socket,
            profile: config.profile,
            key: config.key,
            idle: None,
        };
        let mut sides: Vec<Box<dyn Side>> = Vec::with_capacity(workers);
        let (listen, warning) = match config.direction {
            Direction::UdpToTcp => {
                let udp = UdpSocket::bind_group(config.listen, workers, &socket)?;
                let tcp = FakeTcpSocket::towards(config.to, workers, &options)?;
                let told = (udp[0].local_addr()?, udp[0].buffer_warning().or(tcp[0].warning()));
                for (udp, tcp) in udp.into_iter().zip(tcp) {
                    sides.push(Box::new(Client::new(udp, tcp, config.idle)));
                }
                told
            }
            Direction::TcpToUdp => {
                let tcp = FakeTcpSocket::listen(config.listen, workers, &options)?;
                let told = (tcp[0].local_addr(), tcp[0].warning());
                for tcp in tcp {
                    sides.push(Box::new(Server::new(tcp, config.to, config.idle)));
                }
                told
            }
        };
        let workers = sides.into_iter().map(Worker::new);
        Ok(Opened {
            listen,
            warning,
            workers: workers.collect::<io::Result<_>>()?,
        })
    }

    /// The address that was bound.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.listen
    }

    /// One sentence if a buffer is smaller than requested, with the command that allows more.
    #[must_use]
    pub fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    /// What all workers have done so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        for worker in &self.workers {
            sum += worker.shared.ask(|| worker.waker.wake(), ANSWER_WAIT);
        }
        sum
    }

    /// Ends all connections in order, and tells what was done.
    ///
    /// # Errors
    /// Why a worker ended before.
    pub fn stop(mut self) -> io::Result<Counters> {
        self.end()?;
        let mut sum = Counters::default();
        self.workers
            .iter()
            .for_each(|worker| sum += worker.shared.counters());
        Ok(sum)
    }

    fn end(&mut self) -> io::Result<()> {
        for worker in &self.workers {
            worker.shared.stop.store(true, Ordering::Relaxed);
            worker.waker.wake();
        }
        let mut result = Ok(());
        for worker in &mut self.workers {
            let Some(thread) = worker.thread.take() else {
                continue;
            };
            let panicked = |_| Err(io::Error::other("a worker of the relay panicked"));
            result = result.and(thread.join().unwrap_or_else(panicked));
        }
        result
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

impl Running {
    fn start(worker: Worker, number: usize, tell: impl Fn(News) + Send + 'static) -> io::Result<Self> {
        let (waker, shared) = (worker.waker.clone(), Arc::clone(&worker.shared));
        let thread = thread::Builder::new()
            .name(format!("relay-{number}"))
            .spawn(move || {
                let result = worker.run(&tell);
                tell(News::Ended);
                result
            })?;
        Ok(Self {
            waker,
            shared,
            thread: Some(thread),
        })
    }
}
