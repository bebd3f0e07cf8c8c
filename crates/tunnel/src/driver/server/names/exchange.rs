//! Asking the machine's name servers: one after the other, each for a while, until one has an answer.

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use super::message::{Question, is_refusal};
use crate::driver::start::random;
use crate::limits;

/// The answer for a client that asked by UDP; `None` where nobody has one in time.
pub(super) async fn ask_by_udp(question: &Question, servers: &[SocketAddr]) -> Option<Vec<u8>> {
    ask(servers, limits::RESOLUTION_RETRIES, |server| {
        exchange_udp(question, server)
    })
    .await
}

/// The same for one that asked by TCP; who answers nothing there is asked once.
pub(super) async fn ask_by_tcp(question: &Question, servers: &[SocketAddr]) -> Option<Vec<u8>> {
    ask(servers, 0, |server| exchange_tcp(question, server)).await
}

async fn ask<F>(servers: &[SocketAddr], retries: u32, exchange: impl Fn(SocketAddr) -> F) -> Option<Vec<u8>>
where
    F: Future<Output = io::Result<Vec<u8>>>,
{
    let mut refusal = None;
    let asking = async {
        for _ in 0..=retries {
            for server in servers {
                match timeout(limits::RESOLUTION_TRY_TIME, exchange(*server)).await {
                    Ok(Ok(answer)) if is_refusal(&answer) => refusal = Some(answer),
                    Ok(Ok(answer)) => return Some(answer),
                    Ok(Err(_)) | Err(_) => {}
                }
            }
            if refusal.is_some() {
                break;
            }
        }
        None
    };
    let answer = timeout(limits::RESOLUTION_TIME_MAX, asking).await;
    answer.ok().flatten().or(refusal)
}

fn number() -> io::Result<[u8; 2]> {
    let mut number = [0; 2];
    random(&mut number).map_err(io::Error::other)?;
    Ok(number)
}

async fn exchange_udp(question: &Question, server: SocketAddr) -> io::Result<Vec<u8>> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    let number = number()?;
    socket.send(&question.numbered(number)).await?;
    // A byte more shows that an answer is too long.
    let mut buffer = vec![0; limits::NAME_DATAGRAM_BYTES_MAX + 1];
    loop {
        let length = socket.recv(&mut buffer).await?;
        if let Some(answer) = question.answered(number, &buffer[..length]) {
            let is_whole = length <= limits::NAME_DATAGRAM_BYTES_MAX;
            return Ok(if is_whole { answer } else { question.truncated() });
        }
    }
}

async fn exchange_tcp(question: &Question, server: SocketAddr) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(server).await?;
    stream.set_nodelay(true)?;
    let number = number()?;
    write_message(&mut stream, &question.numbered(number)).await?;
    let answer = read_message(&mut stream).await?;
    let answer = question.answered(number, &answer);
    answer.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// A message behind its length (RFC 1035 section 4.2.2).
pub(super) async fn read_message(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut message = vec![0; usize::from(stream.read_u16().await?)];
    stream.read_exact(&mut message).await?;
    Ok(message)
}

pub(super) async fn write_message(stream: &mut TcpStream, message: &[u8]) -> io::Result<()> {
    let length = u16::try_from(message.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes(), message].concat()).await
}
