//! The client's and server's own lookups: what name servers answer becomes some addresses or none, in time, and with no
//! more questions than a chain of names allows. Network and clock are this file's.

use std::collections::VecDeque;
use std::future::{Future, ready};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use hickory_resolver::net::runtime::iocompat::AsyncIoTokioAsStd;
use hickory_resolver::net::runtime::{DnsUdpSocket, RuntimeProvider, TokioHandle, TokioTime};
use tokio::net::TcpStream;
use tunnel::limits::{ADDRESSES_PER_NAME, RESOLUTION_RETRIES, RESOLUTION_TIME_MAX};

use crate::input::Input;

/// Name servers in the file, and suffixes to search.
const FILE: &[u8] = b"nameserver 192.0.2.53\nnameserver 2001:db8::53\nsearch a.test b.test\n";
const SERVERS: usize = 2;
const NAMES: usize = 3;

/// Addresses of both versions are asked for.
const KINDS: usize = 2;

/// Names of one chain of aliases that hickory-resolver follows.
const CHAIN_MAX: usize = 8;

const QUESTIONS_MAX: usize = KINDS * NAMES * SERVERS * CHAIN_MAX * (1 + RESOLUTION_RETRIES as usize);

/// Bytes of a message's header (RFC 1035 section 4.1.1).
const HEADER_BYTES: usize = 12;

/// The port that found addresses get.
const PORT: u16 = 4433;

/// A byte that says what is read; then a file, or answers, each with a byte of kind and one of length.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let is_file = input.byte() & 1 == 1;
    let mut answers = VecDeque::new();
    let file = if is_file { input.0 } else { FILE };
    while !is_file && !input.is_empty() {
        let (kind, length) = (input.byte(), input.byte());
        answers.push_back((kind, input.take(usize::from(length)).to_vec()));
    }
    let network = Network {
        answers: Arc::new(Mutex::new(answers)),
        asked: Arc::default(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("the kernel gives a poller");
    let (found, time) = runtime.block_on(async {
        let start = tokio::time::Instant::now();
        let found = tunnel::fuzzing::look_up(network.clone(), file, "host", PORT).await;
        (found, start.elapsed())
    });
    assert!(time <= RESOLUTION_TIME_MAX, "it took {time:?}");
    if let Some(found) = found {
        assert!((1..=ADDRESSES_PER_NAME).contains(&found.len()));
        assert!(found.iter().all(|address| address.port() == PORT));
    }
    if !is_file {
        let asked = network.asked.load(Ordering::Relaxed);
        assert!(asked <= QUESTIONS_MAX, "{asked} questions");
    }
}

/// What becomes of a question, and the bytes of its answer.
type Answer = (u8, Vec<u8>);

/// Where every socket leads: to the next answer of the input.
#[derive(Clone)]
struct Network {
    answers: Arc<Mutex<VecDeque<Answer>>>,
    asked: Arc<AtomicUsize>,
}

/// A socket that has sent a question, or none yet.
struct Socket {
    network: Network,
    question: Mutex<Option<(Vec<u8>, SocketAddr)>>,
}

type Made<T> = Pin<Box<dyn Send + Future<Output = io::Result<T>>>>;

impl RuntimeProvider for Network {
    type Handle = TokioHandle;
    type Timer = TokioTime;
    type Udp = Socket;
    type Tcp = AsyncIoTokioAsStd<TcpStream>;

    fn create_handle(&self) -> TokioHandle {
        TokioHandle::default()
    }

    fn connect_tcp(&self, _: SocketAddr, _: Option<SocketAddr>, _: Option<Duration>) -> Made<Self::Tcp> {
        Box::pin(ready(Err(io::ErrorKind::ConnectionRefused.into())))
    }

    fn bind_udp(&self, _: SocketAddr, _: SocketAddr) -> Made<Socket> {
        Box::pin(ready(Ok(Socket {
            network: self.clone(),
            question: Mutex::default(),
        })))
    }
}

impl DnsUdpSocket for Socket {
    type Time = TokioTime;

    fn poll_recv_from(
        &self,
        _: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        let question = self.question.lock().expect("nobody panics with it");
        let mut answers = self.network.answers.lock().expect("nobody panics with it");
        match (question.as_ref(), answers.pop_front()) {
            (Some((question, server)), Some((kind, bytes))) => {
                let answer = answer(question, kind, &bytes);
                let length = answer.len().min(buffer.len());
                buffer[..length].copy_from_slice(&answer[..length]);
                Poll::Ready(Ok((length, *server)))
            }
            // Nobody answers any more: the clock goes on.
            _ => Poll::Pending,
        }
    }

    fn poll_send_to(
        &self,
        _: &mut Context<'_>,
        question: &[u8],
        server: SocketAddr,
    ) -> Poll<io::Result<usize>> {
        self.network.asked.fetch_add(1, Ordering::Relaxed);
        *self.question.lock().expect("nobody panics with it") = Some((question.to_vec(), server));
        Poll::Ready(Ok(question.len()))
    }
}

/// The bytes as they are, with the question's number, or behind a header of their own and the question itself.
fn answer(question: &[u8], kind: u8, bytes: &[u8]) -> Vec<u8> {
    let mut answer = bytes.to_vec();
    match kind % 4 {
        0 => {}
        1 => {
            let length = answer.len().min(2);
            answer[..length].copy_from_slice(&question[..length]);
        }
        _ if bytes.len() >= HEADER_BYTES => {
            // The question's name ends with an empty label, and its type and class follow.
            let name = question[HEADER_BYTES..].iter().position(|byte| *byte == 0);
            let end = HEADER_BYTES + name.map_or(0, |name| name + 5);
            let own = &question[HEADER_BYTES..end.min(question.len())];
            answer.splice(HEADER_BYTES..HEADER_BYTES, own.iter().copied());
            answer[..2].copy_from_slice(&question[..2]);
            answer[4..6].copy_from_slice(&[0, 1]);
        }
        _ => {}
    }
    answer
}

/// Addresses, aliases, an alias of itself, absence, refusal, truncation, and files.
pub fn seeds() -> Vec<Vec<u8>> {
    let message = |flags: [u8; 2], records: &[&[u8]]| {
        let header = [0, 0, flags[0], flags[1], 0, 1, 0, records.len() as u8, 0, 0, 0, 0];
        let bytes = [&header[..], &records.concat()].concat();
        [&[2, bytes.len() as u8][..], &bytes].concat()
    };
    let good = [0x81, 0x80];
    let v4 = b"\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\xc0\0\x02\x01";
    let v6 = b"\xc0\x0c\0\x1c\0\x01\0\0\0\x3c\0\x10\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01";
    let alias = b"\xc0\x0c\0\x05\0\x01\0\0\0\x3c\0\x08\x01x\x04test\0";
    let itself = b"\xc0\x0c\0\x05\0\x01\0\0\0\x3c\0\x02\xc0\x0c";
    let both = [message(good, &[v6]), message(good, &[v4])].concat();
    let answers = [
        both.clone(),
        [message(good, &[v4]), message(good, &[v6])].concat(),
        [message(good, &[alias]), message(good, &[alias, v4])].concat(),
        message(good, &[itself]).repeat(12),
        [message([0x81, 0x83], &[]), both.clone()].concat(),
        [message([0x81, 0x85], &[]), message([0x83, 0x80], &[]), both].concat(),
        message(good, &[v4.as_slice(); 12]),
        vec![1, 4, 0, 0, 0x81, 0x80, 0, 3, 1, 2, 3],
    ];
    let files: [&[u8]; 4] = [
        FILE,
        b"nameserver 192.0.2.1\noptions ndots:99999 timeout:0 attempts:0\nnameserver x\n",
        b"domain .\nsearch ..\n",
        b"\xff",
    ];
    let answers = answers.map(|answer| [vec![0], answer].concat());
    [&answers[..], &files.map(|file| [b"\x01", file].concat())].concat()
}
