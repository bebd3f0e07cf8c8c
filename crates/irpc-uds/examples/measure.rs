//! A quick measurement of this transport on this machine: `cargo run --release -p irpc-uds --example measure`.
//!
//! Client and server are two processes, each with a current-thread runtime. Raw SEQPACKET ping-pong of the same run is
//! the floor of a sequential call. Arguments: `--spin MICROSECONDS`, `--datagram BYTES`, `--only ROW`, `--one-process`.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use irpc::channel::{mpsc, oneshot};
use irpc::rpc::RemoteService;
use irpc::{Client, WithChannels, rpc_requests};
use irpc_uds::{DATAGRAM_BYTES_DEFAULT, UdsConnector, UdsListener};
use serde::{Deserialize, Serialize};

#[rpc_requests(message = ComputeMessage)]
#[derive(Debug, Serialize, Deserialize)]
enum Compute {
    #[rpc(tx = oneshot::Sender<u64>)]
    #[wrap(Square)]
    Square(u64),
    #[rpc(rx = mpsc::Receiver<u64>, tx = mpsc::Sender<u64>)]
    #[wrap(Multiply)]
    Multiply(u64),
    #[rpc(rx = mpsc::Receiver<Blob>, tx = oneshot::Sender<u64>)]
    #[wrap(Sink)]
    Sink,
}

/// Bytes that are serialised as bytes, not one by one as serde does with a `Vec<u8>`.
#[derive(Clone, Debug)]
struct Blob(Vec<u8>);

impl Serialize for Blob {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl serde::de::Visitor<'_> for Bytes {
            type Value = Blob;

            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("bytes")
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Blob, E> {
                Ok(Blob(bytes.to_vec()))
            }
        }
        deserializer.deserialize_bytes(Bytes)
    }
}

#[derive(Clone)]
struct Settings {
    path: PathBuf,
    spin: Duration,
    datagram: u16,
}

async fn serve(settings: Settings) -> Result<(), Box<dyn Error>> {
    let endpoint = UdsListener::new(&settings.path)
        .spin(settings.spin)
        .datagram_bytes(settings.datagram)
        .bind()?;
    let (requests, mut inbox) = tokio::sync::mpsc::channel(256);
    tokio::spawn(endpoint.listen(Compute::remote_handler(requests.into())));
    while let Some(message) = inbox.recv().await {
        match message {
            ComputeMessage::Square(WithChannels { inner, tx, .. }) => {
                tx.send(inner.0.wrapping_mul(inner.0)).await.ok();
            }
            ComputeMessage::Multiply(WithChannels {
                inner, mut rx, tx, ..
            }) => {
                tokio::spawn(async move {
                    while let Ok(Some(value)) = rx.recv().await {
                        if tx.send(value.wrapping_mul(inner.0)).await.is_err() {
                            break;
                        }
                    }
                });
            }
            ComputeMessage::Sink(WithChannels { mut rx, tx, .. }) => {
                tokio::spawn(async move {
                    let mut bytes = 0;
                    while let Ok(Some(chunk)) = rx.recv().await {
                        bytes += chunk.0.len() as u64;
                    }
                    tx.send(bytes).await.ok();
                });
            }
        }
    }
    Ok(())
}

async fn sequential(client: &Client<Compute>, span: Duration) -> Result<f64, Box<dyn Error>> {
    let start = Instant::now();
    let mut calls = 0;
    while start.elapsed() < span {
        for _ in 0..16 {
            client.rpc(Square(calls)).await?;
            calls += 1;
        }
    }
    Ok(calls as f64 / start.elapsed().as_secs_f64())
}

async fn parallel(client: &Client<Compute>, width: usize, span: Duration) -> Result<f64, Box<dyn Error>> {
    let start = Instant::now();
    let tasks: Vec<_> = (0..width)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move {
                let mut calls = 0_u64;
                while start.elapsed() < span {
                    client.rpc(Square(calls)).await.expect("the server answers");
                    calls += 1;
                }
                calls
            })
        })
        .collect();
    let mut calls = 0;
    for task in tasks {
        calls += task.await?;
    }
    Ok(calls as f64 / start.elapsed().as_secs_f64())
}

async fn bidirectional(client: &Client<Compute>, span: Duration) -> Result<f64, Box<dyn Error>> {
    let (send, mut receive) = client.bidi_streaming(Multiply(3), 256, 256).await?;
    let start = Instant::now();
    let sender = tokio::spawn(async move {
        let mut sent = 0_u64;
        while start.elapsed() < span {
            for _ in 0..256 {
                send.send(sent).await.expect("the server reads");
                sent += 1;
            }
        }
    });
    let mut received = 0_u64;
    while let Some(value) = receive.recv().await? {
        assert_eq!(value, received * 3);
        received += 1;
    }
    sender.await?;
    Ok(received as f64 / start.elapsed().as_secs_f64())
}

async fn bulk(client: &Client<Compute>, span: Duration) -> Result<f64, Box<dyn Error>> {
    let (send, answer) = client.client_streaming(Sink, 4).await?;
    let start = Instant::now();
    let chunk = Blob(vec![1; 1 << 20]);
    while start.elapsed() < span {
        send.send(chunk.clone()).await?;
    }
    drop(send);
    Ok(answer.await? as f64 / start.elapsed().as_secs_f64() / 1e6)
}

/// Streams of plain QUIC, without irpc and its serialisation.
async fn raw_bulk(settings: &Settings, span: Duration) -> Result<f64, Box<dyn Error>> {
    let path = settings.path.with_extension("bulk");
    let _server = child("bulk-server", &path, settings)?;
    await_path(&path).await;
    let connection = connector(&path, settings).connect().await?;
    let mut stream = connection.open_uni().await?;
    let chunk = vec![1_u8; 1 << 20];
    let start = Instant::now();
    let mut sent = 0;
    while start.elapsed() < span {
        stream.write_all(&chunk).await?;
        sent += chunk.len();
    }
    stream.finish()?;
    stream.stopped().await?;
    let rate = sent as f64 / start.elapsed().as_secs_f64() / 1e6;
    drop(connection);
    Ok(rate)
}

async fn bulk_server(settings: Settings) -> Result<(), Box<dyn Error>> {
    let endpoint = UdsListener::new(&settings.path)
        .datagram_bytes(settings.datagram)
        .bind()?;
    let endpoint = endpoint.into_endpoint();
    let connection = endpoint.accept().await.ok_or("closed")?.await?;
    let mut stream = connection.accept_uni().await?;
    let mut buffer = vec![0; 1 << 20];
    while stream.read(&mut buffer).await?.is_some() {}
    drop(stream);
    connection.closed().await;
    Ok(())
}

fn connector(path: &Path, settings: &Settings) -> UdsConnector {
    UdsConnector::new(path)
        .spin(settings.spin)
        .datagram_bytes(settings.datagram)
}

fn raw_ping_pong(span: Duration, settings: &Settings) -> Result<f64, Box<dyn Error>> {
    use rustix::net::{RecvFlags, SendFlags};
    let path = settings.path.with_extension("raw");
    let _server = child("raw", &path, settings)?;
    while !path.exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let address = rustix::net::SocketAddrUnix::new(&path)?;
    let socket = rustix::net::socket(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::SEQPACKET,
        None,
    )?;
    rustix::net::connect(&socket, &address)?;
    let start = Instant::now();
    let mut rounds = 0_u64;
    let mut buffer = [0; 64];
    while start.elapsed() < span {
        for _ in 0..16 {
            rustix::net::send(&socket, &[0; 32], SendFlags::empty())?;
            rustix::net::recv(&socket, &mut buffer[..], RecvFlags::empty())?;
            rounds += 1;
        }
    }
    Ok(rounds as f64 / start.elapsed().as_secs_f64())
}

fn raw_server(path: &Path) -> Result<(), Box<dyn Error>> {
    use rustix::net::{RecvFlags, SendFlags};
    let socket = rustix::net::socket(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::SEQPACKET,
        None,
    )?;
    let temporary = path.with_extension("tmp");
    rustix::net::bind(&socket, &rustix::net::SocketAddrUnix::new(&temporary)?)?;
    rustix::net::listen(&socket, 1)?;
    std::fs::rename(temporary, path)?;
    let peer = rustix::net::accept(&socket)?;
    let mut buffer = [0; 64];
    loop {
        rustix::net::recv(&peer, &mut buffer[..], RecvFlags::empty())?;
        rustix::net::send(&peer, &[0; 32], SendFlags::empty())?;
    }
}

/// Another process of this program, killed when it is dropped.
struct Role(Child);

impl Drop for Role {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn child(role: &str, path: &Path, settings: &Settings) -> Result<Role, Box<dyn Error>> {
    let spin = settings.spin.as_micros().to_string();
    let child = Command::new(std::env::current_exe()?)
        .args([
            role,
            "--spin",
            &spin,
            "--datagram",
            &settings.datagram.to_string(),
            "--path",
        ])
        .arg(path)
        .stdin(Stdio::null())
        .spawn()?;
    Ok(Role(child))
}

async fn await_path(path: &Path) {
    while !path.exists() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Keeps this process on one processor: two that happen to share one need no wake-up across, which triples the floor.
fn pin(processor: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(processor);
    rustix::thread::sched_setaffinity(None, &set).ok();
}

fn argument(name: &str) -> Option<String> {
    std::env::args().skip_while(|argument| argument != name).nth(1)
}

fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let settings = Settings {
        path: argument("--path").map_or_else(|| directory.path().join("rpc"), PathBuf::from),
        spin: Duration::from_micros(argument("--spin").map_or(Ok(0), |micros| micros.parse())?),
        datagram: argument("--datagram").map_or(Ok(DATAGRAM_BYTES_DEFAULT), |bytes| bytes.parse())?,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    // Client and server have a processor each; a machine with one leaves them where they are.
    pin(usize::from(argument("--path").is_some()));
    match std::env::args().nth(1).as_deref() {
        Some("server") => return runtime.block_on(serve(settings)),
        Some("bulk-server") => return runtime.block_on(bulk_server(settings)),
        Some("raw") => return raw_server(&settings.path),
        _ => {}
    }
    let span = Duration::from_millis(argument("--ms").map_or(Ok(1_500), |ms| ms.parse())?);
    let only = argument("--only");
    let wanted = |row: &str| only.as_deref().is_none_or(|only| only == row);
    if wanted("raw") {
        println!(
            "raw SEQPACKET ping-pong     {:>12.0} /s",
            raw_ping_pong(span, &settings)?
        );
    }
    runtime.block_on(async {
        let one_process = std::env::args().any(|argument| argument == "--one-process");
        let _server = if one_process {
            tokio::spawn({
                let settings = settings.clone();
                async move { serve(settings).await.expect("it serves") }
            });
            None
        } else {
            Some(child("server", &settings.path, &settings)?)
        };
        await_path(&settings.path).await;
        let client: Client<Compute> = connector(&settings.path, &settings).client().await?;
        if wanted("sequential") {
            println!(
                "sequential                  {:>12.0} /s",
                sequential(&client, span).await?
            );
        }
        for width in [8, 32, 256] {
            if wanted(&format!("parallel-{width}")) {
                println!(
                    "parallel {width:<3}                {:>12.0} /s",
                    parallel(&client, width, span).await?
                );
            }
        }
        if wanted("bidi") {
            println!(
                "messages in one stream      {:>12.0} /s",
                bidirectional(&client, span).await?
            );
        }
        if wanted("bulk") {
            println!(
                "1 MiB messages              {:>12.0} MB/s",
                bulk(&client, span).await?
            );
        }
        if wanted("raw-bulk") {
            println!(
                "bytes in one QUIC stream    {:>12.0} MB/s",
                raw_bulk(&settings, span).await?
            );
        }
        Ok(())
    })
}
