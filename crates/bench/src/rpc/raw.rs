//! The floor: bytes over a Unix socket from blocking threads, without any protocol on top.
//!
//! A call is a payload there and a payload back. Parallel calls are that many payloads under way on one socket; messages
//! are payloads that one thread sends while another one receives. Each is one system call per payload and direction, or
//! one per 64 KiB where SOCK_SEQPACKET takes no more at once.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketType};

use super::cases::{Load, NUMBER_BYTES};
use super::outcome::check;
use super::sample::Sample;
use super::usage::sleeps_of_this_thread;
use crate::Error;
use crate::error::During;

/// Most bytes of one SEQPACKET message: half of what the usual socket buffer of 208 KiB takes, so that two fit.
const PACKET_BYTES: usize = 64 << 10;

/// What the sender of messages sends last, so that the receiver of the answers knows the end.
const LAST_MESSAGE: u64 = u64::MAX;

/// Clients that may wait to be accepted.
const BACKLOG: i32 = 256;

/// One end of a connected socket.
#[derive(Debug)]
pub(super) struct Socket {
    descriptor: OwnedFd,
    kind: SocketType,
}

fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            done => return Ok(done?),
        }
    }
}

impl Socket {
    /// Connects to [`serve`].
    pub(super) fn connect(path: &Path, kind: SocketType) -> Result<Self, Error> {
        let connect = || -> io::Result<OwnedFd> {
            let descriptor = rustix::net::socket(AddressFamily::UNIX, kind, None)?;
            let address = SocketAddrUnix::new(path)?;
            retry(|| rustix::net::connect(&descriptor, &address))?;
            Ok(descriptor)
        };
        let descriptor = connect().during(|| format!("connect to {}", path.display()))?;
        Ok(Self { descriptor, kind })
    }

    fn send(&self, payload: &[u8]) -> io::Result<()> {
        let piece = if self.kind == SocketType::SEQPACKET {
            PACKET_BYTES
        } else {
            usize::MAX
        };
        let mut rest = payload;
        while !rest.is_empty() {
            let next = &rest[..rest.len().min(piece)];
            let sent = retry(|| rustix::net::send(&self.descriptor, next, SendFlags::NOSIGNAL))?;
            rest = &rest[sent..];
        }
        Ok(())
    }

    /// Fills `payload`; `false` when the other end has closed.
    fn receive(&self, payload: &mut [u8]) -> io::Result<bool> {
        let mut filled = 0;
        while filled < payload.len() {
            let room = &mut payload[filled..];
            let (received, _) =
                retry(|| rustix::net::recv(&self.descriptor, &mut *room, RecvFlags::empty()))?;
            if received == 0 {
                return Ok(false);
            }
            filled += received;
        }
        Ok(true)
    }
}

/// Serves at `path`: sends every payload of `load` back. One thread per client.
pub(super) fn serve(path: &Path, kind: SocketType, load: Load) -> Result<(), Error> {
    let bind = || -> io::Result<OwnedFd> {
        let listener = rustix::net::socket(AddressFamily::UNIX, kind, None)?;
        rustix::net::bind(&listener, &SocketAddrUnix::new(path)?)?;
        rustix::net::listen(&listener, BACKLOG)?;
        Ok(listener)
    };
    let listener = bind().during(|| format!("listen at {}", path.display()))?;
    thread::spawn(move || {
        while let Ok(descriptor) = retry(|| rustix::net::accept(&listener)) {
            let socket = Socket { descriptor, kind };
            thread::spawn(move || {
                let mut payload = vec![0; load.payload_bytes()];
                while let Ok(true) = socket.receive(&mut payload) {
                    if socket.send(&payload).is_err() {
                        break;
                    }
                }
            });
        }
    });
    Ok(())
}

/// Puts `load` on `sockets` for `span`, one thread per socket.
pub(super) fn run(sockets: &[Socket], load: Load, span: Duration) -> Result<Sample, Error> {
    let start = Instant::now();
    let one = |socket| {
        let mut sample = match load {
            Load::Calls {
                parallel,
                payload_bytes,
                ..
            } => calls(socket, parallel, payload_bytes, start + span)?,
            Load::Messages => messages(socket, start + span)?,
        };
        sample.sleeps += sleeps_of_this_thread();
        Ok(sample)
    };
    let samples: Vec<Result<Sample, Error>> = thread::scope(|scope| {
        let threads: Vec<_> = sockets
            .iter()
            .map(|socket| scope.spawn(move || one(socket)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a client thread does not panic"))
            .collect()
    });
    Sample::sum(samples, start.elapsed())
}

fn calls(socket: &Socket, parallel: usize, bytes: usize, end: Instant) -> Result<Sample, Error> {
    let action = || "call without a protocol".to_owned();
    let mut payload = vec![0; bytes];
    let mut answer = vec![0; bytes];
    let mut starts = std::collections::VecDeque::with_capacity(parallel);
    let mut sample = Sample::default();
    let mut sent = 0_u64;
    loop {
        while starts.len() < parallel && Instant::now() < end || (sent == 0) {
            payload[..NUMBER_BYTES].copy_from_slice(&sent.to_be_bytes());
            starts.push_back(Instant::now());
            socket.send(&payload).during(action)?;
            sent += 1;
        }
        let Some(start) = starts.pop_front() else {
            return Ok(sample);
        };
        check(socket.receive(&mut answer).during(action)?)?;
        sample.add(start.elapsed());
        check(answer[..NUMBER_BYTES] == (sample.calls - 1).to_be_bytes())?;
    }
}

fn messages(socket: &Socket, end: Instant) -> Result<Sample, Error> {
    let action = || "send messages without a protocol".to_owned();
    thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let mut number = 0_u64;
            while Instant::now() < end {
                socket.send(&number.to_be_bytes())?;
                number += 1;
            }
            socket.send(&LAST_MESSAGE.to_be_bytes())?;
            io::Result::Ok(sleeps_of_this_thread())
        });
        let mut sample = Sample::default();
        let mut answer = [0; NUMBER_BYTES];
        loop {
            check(socket.receive(&mut answer).during(action)?)?;
            if u64::from_be_bytes(answer) == LAST_MESSAGE {
                break;
            }
            check(u64::from_be_bytes(answer) == sample.calls)?;
            sample.calls += 1;
        }
        let joined = sender.join().expect("the sender does not panic");
        sample.sleeps = joined.during(action)?;
        Ok(sample)
    })
}
