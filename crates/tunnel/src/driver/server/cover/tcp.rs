//! TCP of the cover: connections to the server's address are passed on to it, byte by byte, because a host with HTTP/3
//! alone is odd.
//!
//! One thread does all of it. Connections are bounded, for each network and for all. The end of one direction is passed
//! on, and so is a reset; a cover that cannot be reached resets. What has moved nothing for long is reset.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::{sleep, sleep_until, timeout};

use super::address::CoverAddress;
use crate::driver::server::guests::Guests;
use crate::limits;
use crate::snapshot::CoverTcpCounters;

/// The thread. Dropping this ends it and resets its connections.
pub(super) struct CoverTcp {
    shared: Arc<Shared>,
    /// Its end is the thread's.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What its tasks share.
struct Shared {
    cover: Arc<CoverAddress>,
    places: Guests,
    idle: Duration,
    counters: Mutex<CoverTcpCounters>,
}

impl CoverTcp {
    /// Listens at each of `ports` of the address `ip` and passes connections on to the port of the cover beside it. A
    /// port that cannot be had is left out, and told.
    ///
    /// # Errors
    /// The kernel gives no thread, or no poller to it.
    pub(super) fn start(
        cover: Arc<CoverAddress>,
        ip: IpAddr,
        ports: &[(u16, u16)],
        idle: Duration,
    ) -> io::Result<(Self, Vec<SocketAddr>, Vec<String>)> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (mut listeners, mut warnings) = (Vec::new(), Vec::new());
        for (own, of_cover) in ports {
            let _entered = runtime.enter();
            match listen(SocketAddr::new(ip, *own)) {
                Ok(listener) => listeners.push((listener, *of_cover)),
                Err(error) => warnings.push(format!(
                    "TCP port {own} cannot be had: {error}; connections to it do not reach the cover, which looks odd; \
                     --no-cover-tcp leaves TCP alone"
                )),
            }
        }
        let bound = listeners
            .iter()
            .filter_map(|(listener, _)| listener.local_addr().ok());
        let bound = bound.collect();
        let shared = Arc::new(Shared {
            cover,
            places: Guests::new(limits::COVER_STREAMS_MAX, limits::COVER_STREAMS_PER_PREFIX),
            idle,
            counters: Mutex::default(),
        });
        let (stop, stopped) = oneshot::channel();
        let tasks = Arc::clone(&shared);
        let thread = thread::Builder::new().name("cover".to_owned()).spawn(move || {
            runtime.block_on(async move {
                for (listener, port) in listeners {
                    tokio::spawn(serve(Arc::clone(&tasks), listener, port));
                }
                // The sender's end is as good as its word.
                let _ = stopped.await;
            });
        })?;
        let splice = Self {
            shared,
            stop: Some(stop),
            thread: Some(thread),
        };
        Ok((splice, bound, warnings))
    }

    /// For `status`.
    pub(super) fn counters(&self) -> CoverTcpCounters {
        let mut counters = *self.shared.counters();
        counters.open = self.shared.places.count() as u64;
        counters
    }
}

impl Drop for CoverTcp {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A task that panicked has said so.
            let _ = thread.join();
        }
    }
}

/// A listener of both IP versions where the address is every one of IPv6.
fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    // Connections of an earlier process do not keep the port.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(limits::COVER_STREAMS_WAITING)?;
    TcpListener::from_std(socket.into())
}

async fn serve(shared: Arc<Shared>, listener: TcpListener, port: u16) {
    loop {
        match listener.accept().await {
            Ok((client, remote)) => {
                let shared = Arc::clone(&shared);
                tokio::spawn(async move { shared.pass_on(client, remote, port).await });
            }
            // No descriptor, or a connection that has ended already.
            Err(_) => sleep(limits::ACCEPT_PAUSE).await,
        }
    }
}

impl Shared {
    fn counters(&self) -> MutexGuard<'_, CoverTcpCounters> {
        // Each use leaves it whole.
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One connection, until both directions have ended.
    async fn pass_on(&self, client: TcpStream, remote: SocketAddr, port: u16) {
        let Some(_place) = self.places.admit(quic::customer_prefix(remote.ip())) else {
            self.counters().over_limit += 1;
            return reset(&client);
        };
        self.counters().total += 1;
        let Some(cover) = self.connect(port).await else {
            self.counters().failed += 1;
            return reset(&client);
        };
        // Whoever sends decides what waits for more.
        let _ = (client.set_nodelay(true), cover.set_nodelay(true));
        if splice(client, cover, self).await.is_err() {
            self.counters().reset += 1;
        }
    }

    /// The first of the cover's addresses that answers.
    async fn connect(&self, port: u16) -> Option<TcpStream> {
        for address in self.cover.all() {
            let address = SocketAddr::new(address.ip(), port);
            if let Ok(Ok(stream)) = timeout(limits::COVER_CONNECT_TIMEOUT, TcpStream::connect(address)).await
            {
                return Some(stream);
            }
        }
        None
    }
}

/// Closing the connection tells the peer of a failure (RFC 9293 section 3.10.5).
fn reset(stream: &TcpStream) {
    // Without it, the peer sees an end instead.
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
}

/// Passes on both directions. An error of either connection, or none moving anything for long, resets both.
async fn splice(mut client: TcpStream, mut cover: TcpStream, shared: &Shared) -> io::Result<()> {
    let activity = Activity::new();
    let ended = {
        let (mut client_reader, mut client_writer) = client.split();
        let (mut cover_reader, mut cover_writer) = cover.split();
        let count_up = |bytes| shared.counters().bytes_to_cover += bytes;
        let count_down = |bytes| shared.counters().bytes_from_cover += bytes;
        let up = pass(&mut client_reader, &mut cover_writer, &activity, count_up);
        let down = pass(&mut cover_reader, &mut client_writer, &activity, count_down);
        tokio::select! {
            ended = async { tokio::try_join!(up, down) } => ended.map(|_| ()),
            () = activity.has_rested(shared.idle) => Err(io::ErrorKind::TimedOut.into()),
        }
    };
    if ended.is_err() {
        reset(&client);
        reset(&cover);
    }
    ended
}

/// One direction, its end included.
async fn pass(
    reader: &mut (impl AsyncRead + Unpin),
    writer: &mut (impl AsyncWrite + Unpin),
    activity: &Activity,
    count: impl Fn(u64),
) -> io::Result<()> {
    let mut buffer = vec![0; limits::COVER_STREAM_BUFFER_BYTES];
    loop {
        let length = reader.read(&mut buffer).await?;
        activity.note();
        if length == 0 {
            return writer.shutdown().await;
        }
        writer.write_all(&buffer[..length]).await?;
        activity.note();
        count(length as u64);
    }
}

/// When something last moved.
struct Activity {
    start: Instant,
    /// Milliseconds after the start.
    last: AtomicU64,
}

impl Activity {
    fn new() -> Self {
        Self {
            start: Instant::now(),
            last: AtomicU64::new(0),
        }
    }

    fn note(&self) {
        let milliseconds = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(milliseconds, Ordering::Relaxed);
    }

    /// Returns once nothing has moved for so long.
    async fn has_rested(&self, idle: Duration) {
        loop {
            let due = self.start + Duration::from_millis(self.last.load(Ordering::Relaxed)) + idle;
            if due <= Instant::now() {
                return;
            }
            sleep_until(due.into()).await;
        }
    }
}

#[cfg(test)]
mod tests;
