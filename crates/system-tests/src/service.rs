//! What tunnels lead to: UDP echoes and TCP services on threads, inside a namespace, gone when dropped.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use testbed::limits::POLL_INTERVAL;
use testbed::namespace::Namespace;
use testbed::wait::wait_for;

use crate::limits::{PROGRAM_LIMIT, UDP_PAYLOAD_BUFFER};

/// A running service.
pub struct Service {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Service {
    /// Answers every UDP datagram with itself.
    ///
    /// # Panics
    /// When the address cannot be bound.
    #[must_use]
    pub fn udp_echo(namespace: &Namespace, address: &str) -> Self {
        Self::udp(namespace, address, |socket, datagram, source| {
            // Whoever asked asks again, as UDP does.
            let _ = socket.send_to(datagram, source);
        })
    }

    /// Gives every UDP datagram to the handler, with the socket to answer by and its source.
    ///
    /// # Panics
    /// When the address cannot be bound.
    #[must_use]
    pub fn udp(
        namespace: &Namespace,
        address: &str,
        handler: impl Fn(&UdpSocket, &[u8], SocketAddr) + Send + 'static,
    ) -> Self {
        let address = parse(address);
        let socket = bind(namespace, address, UdpSocket::bind);
        let timed = socket.set_read_timeout(Some(POLL_INTERVAL));
        timed.expect("a timeout above zero is taken");
        Self::run(move |stop| {
            let mut buffer = vec![0; UDP_PAYLOAD_BUFFER];
            while !stop.load(Ordering::Relaxed) {
                if let Ok((length, source)) = socket.recv_from(&mut buffer) {
                    handler(&socket, &buffer[..length], source);
                }
            }
        })
    }

    /// Runs the handler on a thread of its own for every TCP connection. Its reads and writes wait 30 s at most.
    ///
    /// # Panics
    /// When the address cannot be bound.
    #[must_use]
    pub fn tcp(
        namespace: &Namespace,
        address: &str,
        handler: impl Fn(TcpStream) + Send + Sync + 'static,
    ) -> Self {
        let address = parse(address);
        let listener = bind(namespace, address, TcpListener::bind);
        let set = listener.set_nonblocking(true);
        set.expect("a listener can be non-blocking");
        let handler = Arc::new(handler);
        Self::run(move |stop| {
            while !stop.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((stream, _)) => {
                        let handler = Arc::clone(&handler);
                        std::thread::spawn(move || handler(patient(stream)));
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(POLL_INTERVAL),
                    Err(_) => {}
                }
            }
        })
    }

    /// Answers every TCP connection with what it sends, and ends when it ends.
    ///
    /// # Panics
    /// When the address cannot be bound.
    #[must_use]
    pub fn tcp_echo(namespace: &Namespace, address: &str) -> Self {
        Self::tcp(namespace, address, |stream| {
            // A connection that fails shows at its other end.
            let _ = io::copy(&mut &stream, &mut &stream);
        })
    }

    fn run(body: impl FnOnce(&AtomicBool) + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = Some(std::thread::spawn(move || body(&told)));
        Self { stop, thread }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Its panic, if any, was printed.
            let _ = thread.join();
        }
    }
}

/// A process that another test starts at this moment holds all sockets until it is another program, also one that was
/// closed at this address a moment ago: that is waited for.
fn bind<T: Send>(
    namespace: &Namespace,
    address: SocketAddr,
    open: impl Fn(SocketAddr) -> io::Result<T> + Sync,
) -> T {
    let bound = wait_for("the address to be free", PROGRAM_LIMIT, || {
        let bound = namespace.inside(|| open(address));
        let is_taken = |error: &io::Error| error.kind() == ErrorKind::AddrInUse;
        Some(bound).filter(|bound| !bound.as_ref().is_err_and(is_taken))
    });
    bound.unwrap_or_else(|error| panic!("{address} cannot be bound: {error}"))
}

/// Opens a TCP connection from inside; its reads and writes wait 30 s at most.
///
/// # Panics
/// When nobody listens.
#[must_use]
pub fn connect(namespace: &Namespace, address: &str) -> TcpStream {
    try_connect(namespace, address).unwrap_or_else(|error| panic!("{address} cannot be reached: {error}"))
}

/// The same where the other end may close it at once.
///
/// # Errors
/// What the kernel says: nobody listens, or it was reset before it was seen to be open.
pub fn try_connect(namespace: &Namespace, address: &str) -> io::Result<TcpStream> {
    let address = parse(address);
    namespace
        .inside(|| TcpStream::connect_timeout(&address, PROGRAM_LIMIT))
        .map(patient)
}

fn patient(stream: TcpStream) -> TcpStream {
    let limit: Option<Duration> = Some(PROGRAM_LIMIT);
    let limited = stream
        .set_nonblocking(false)
        .and_then(|()| stream.set_read_timeout(limit))
        .and_then(|()| stream.set_write_timeout(limit));
    limited.expect("a connected socket takes timeouts");
    stream
}

fn parse(address: &str) -> SocketAddr {
    address
        .parse()
        .unwrap_or_else(|error| panic!("{address} is no address: {error}"))
}
