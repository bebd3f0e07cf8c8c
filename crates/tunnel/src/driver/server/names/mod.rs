//! A name server for clients, at the server's own address in each pool: it passes questions on, as they are, to the
//! name servers of this machine, over UDP and TCP.
//!
//! One thread does all of it. Its sockets belong to the TUN device, so that no other machine reaches them, and packets
//! come there with leased sources only. Open questions and connections are bounded, for each client and for all; a
//! question has a socket of its own, so that its port and its number are as hard to guess as the kernel makes them.

mod exchange;
mod message;
mod streams;

pub use message::fuzz;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use tokio::net::{TcpListener, TcpSocket, UdpSocket};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tunnel_proto::{Prefix, own_address};

use super::guests::{Guest, Guests};
use crate::config::{OfferedDns, ServerTun};
use crate::driver::resolver::{NameSources, SystemNameServers};
use crate::handle::{Failure, Notice};
use crate::limits;
use crate::snapshot::NameServerCounters;
use message::Question;

/// The thread. Dropping this ends it.
pub(super) struct NameServer {
    shared: Arc<Shared>,
    addresses: Vec<IpAddr>,
    /// Its end is the thread's.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What the tasks of the thread share with whoever reads the counters.
struct Shared {
    counters: Mutex<NameServerCounters>,
    /// Whom the machine asks.
    system: Mutex<SystemNameServers>,
    pools: Vec<Prefix>,
    questions: Guests,
    streams: Guests,
}

/// The sockets of one address.
struct Sockets {
    udp: UdpSocket,
    tcp: TcpListener,
}

/// The name servers for clients of `device`; where it is one of our own, it runs. What is wrong is told.
///
/// # Errors
/// The kernel gives no thread.
pub(super) fn offer(
    config: &ServerTun,
    device: &str,
    notices: &mut Vec<Notice>,
) -> Result<(Option<NameServer>, Vec<IpAddr>), Failure> {
    match &config.dns {
        OfferedDns::None => Ok((None, Vec::new())),
        OfferedDns::These(servers) => Ok((None, servers.clone())),
        OfferedDns::Own => {
            let own: Vec<IpAddr> = config.pools.iter().filter_map(own_address).collect();
            let sources = NameSources::without(own.clone());
            let (server, warnings) = NameServer::start(device, &own, &config.pools, sources)
                .map_err(|error| Failure::Unavailable(format!("no thread for names: {error}")))?;
            notices.extend(warnings.into_iter().map(|text| Notice::Warning { text }));
            let offered = server.addresses().to_vec();
            Ok((Some(server), offered))
        }
    }
}

impl NameServer {
    /// Listens at `addresses` of the interface `device`, for clients of `pools`. An address that cannot be had is left
    /// out, and told.
    ///
    /// # Errors
    /// The kernel gives no thread, or no poller to it.
    fn start(
        device: &str,
        addresses: &[IpAddr],
        pools: &[Prefix],
        sources: NameSources,
    ) -> io::Result<(Self, Vec<String>)> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (mut bound, mut warnings) = (Vec::new(), Vec::new());
        for address in addresses {
            match bind(&runtime, device, SocketAddr::new(*address, limits::NAME_SERVER_PORT)) {
                Ok(sockets) => bound.push((*address, sockets)),
                Err(error) => warnings.push(format!(
                    "clients are offered no name server at {address}, where port 53 cannot be had: {error}; --dns ADDR \
                     offers another, --no-dns none"
                )),
            }
        }
        let shared = Arc::new(Shared {
            counters: Mutex::default(),
            system: Mutex::new(SystemNameServers::new(sources, Instant::now())),
            pools: pools.to_vec(),
            questions: Guests::new(limits::NAME_QUESTIONS_MAX, limits::NAME_QUESTIONS_PER_CLIENT),
            streams: Guests::new(limits::NAME_STREAMS_MAX, limits::NAME_STREAMS_PER_CLIENT),
        });
        let addresses = bound.iter().map(|(address, _)| *address).collect();
        let (stop, stopped) = oneshot::channel();
        let tasks = Arc::clone(&shared);
        let thread = thread::Builder::new().name("names".to_owned()).spawn(move || {
            runtime.block_on(async move {
                for (_, sockets) in bound {
                    tokio::spawn(serve_udp(Arc::clone(&tasks), sockets.udp));
                    tokio::spawn(streams::serve(Arc::clone(&tasks), sockets.tcp));
                }
                // The sender's end is as good as its word.
                let _ = stopped.await;
            });
        })?;
        let server = Self {
            shared,
            addresses,
            stop: Some(stop),
            thread: Some(thread),
        };
        Ok((server, warnings))
    }

    /// Where it listens.
    fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// For `status`.
    pub(super) fn counters(&self) -> NameServerCounters {
        let mut counters = *self.shared.counters();
        counters.waiting = self.shared.questions.count() as u64;
        counters.streams = self.shared.streams.count() as u64;
        counters
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A task that panicked has said so.
            let _ = thread.join();
        }
    }
}

fn bind(runtime: &Runtime, device: &str, address: SocketAddr) -> io::Result<Sockets> {
    let _entered = runtime.enter();
    let udp = std::net::UdpSocket::bind(address)?;
    udp.set_nonblocking(true)?;
    let udp = UdpSocket::from_std(udp)?;
    udp.bind_device(Some(device.as_bytes()))?;
    let tcp = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    // Connections of an earlier process do not keep the port.
    tcp.set_reuseaddr(true)?;
    tcp.bind_device(Some(device.as_bytes()))?;
    tcp.bind(address)?;
    let tcp = tcp.listen(limits::NAME_STREAMS_WAITING)?;
    Ok(Sockets { udp, tcp })
}

impl Shared {
    fn counters(&self) -> MutexGuard<'_, NameServerCounters> {
        // Each use leaves it whole.
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Name servers to ask, in their order.
    fn upstreams(&self) -> Vec<SocketAddr> {
        let mut system = self.system.lock().unwrap_or_else(PoisonError::into_inner);
        system.servers(Instant::now())
    }

    /// Takes a question of this client, within the bounds; what is not taken is counted.
    fn admit(&self, client: IpAddr, message: &[u8]) -> Option<(Question, Guest<'_>)> {
        let mut counters = self.counters();
        counters.questions += 1;
        let question = Question::parse(message).filter(|_| self.is_client(client));
        let Some(question) = question else {
            counters.malformed += 1;
            return None;
        };
        let guest = self.questions.admit(client);
        if guest.is_none() {
            counters.over_limit += 1;
        }
        Some((question, guest?))
    }

    /// The kernel lets programs of this machine in, too.
    fn is_client(&self, address: IpAddr) -> bool {
        let is_of = |pool: &Prefix| pool.contains(address) && own_address(pool) != Some(address);
        self.pools.iter().any(is_of)
    }

    /// A question that was admitted has its answer, or gets the one that none can be had.
    fn settle(&self, question: &Question, answer: Option<Vec<u8>>) -> Vec<u8> {
        let mut counters = self.counters();
        if answer.is_some() {
            counters.answered += 1;
        } else {
            counters.unanswered += 1;
        }
        answer.unwrap_or_else(|| question.failure())
    }
}

async fn serve_udp(shared: Arc<Shared>, socket: UdpSocket) {
    let socket = Arc::new(socket);
    let mut buffer = vec![0; limits::NAME_DATAGRAM_BYTES_MAX];
    loop {
        let (length, client) = match socket.recv_from(&mut buffer).await {
            Ok(received) => received,
            Err(_) => {
                // Errors of earlier answers, or a device that is gone: the process ends with it.
                tokio::time::sleep(limits::NAME_SOCKET_PAUSE).await;
                continue;
            }
        };
        let (shared, socket) = (Arc::clone(&shared), Arc::clone(&socket));
        let message = buffer[..length].to_vec();
        tokio::spawn(async move {
            let Some((question, _guest)) = shared.admit(client.ip(), &message) else {
                return;
            };
            let answer = exchange::ask_by_udp(&question, &shared.upstreams()).await;
            let answer = shared.settle(&question, answer);
            // Whoever hears nothing asks again.
            let _ = socket.send_to(&answer, client).await;
        });
    }
}
