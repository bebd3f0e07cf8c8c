//! Servers and clients of all contestants behind one face, and the load that clients make.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustix::net::SocketType;
use serde::{Deserialize, Serialize};

use super::cases::{Contestant, Load, NUMBER_BYTES};
use super::outcome::{check, failed};
use super::sample::Sample;
use super::service::{self, Echo};
use super::{overgrpc, overirpc, overtarpc, raw};
use crate::Error;

/// Where a server listens.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Address {
    /// In this process only.
    InProcess,
    /// At a Unix socket.
    Path(PathBuf),
    /// On the loopback device.
    Udp {
        address: SocketAddr,
        certificate: Vec<u8>,
    },
}

/// A server that runs on the current runtime, or on threads, until the process ends.
pub(super) struct Server {
    pub(super) address: Address,
    local: Option<irpc::Client<Echo>>,
}

impl Server {
    /// Starts the server of `contestant` for `load`; Unix sockets are made at `path`.
    pub(super) fn start(contestant: Contestant, load: Load, path: &Path) -> Result<Self, Error> {
        let mut local = None;
        let mut address = Address::Path(path.to_path_buf());
        match contestant {
            Contestant::InProcess => {
                local = Some(overirpc::in_process());
                address = Address::InProcess;
            }
            Contestant::Unix => overirpc::serve_unix(path, Duration::ZERO)?,
            Contestant::UnixSpin => overirpc::serve_unix(path, overirpc::SPIN)?,
            Contestant::Quic => {
                let (udp, certificate) = overirpc::serve_quic()?;
                address = Address::Udp {
                    address: udp,
                    certificate,
                };
            }
            Contestant::Tonic => overgrpc::serve(path)?,
            Contestant::Tarpc => overtarpc::serve(path)?,
            Contestant::Seqpacket => raw::serve(path, SocketType::SEQPACKET, load)?,
            Contestant::Stream => raw::serve(path, SocketType::STREAM, load)?,
        }
        Ok(Self { address, local })
    }

    /// As [`Clients::connect`], within the server's process.
    pub(super) async fn connect(&self, contestant: Contestant, load: Load) -> Result<Clients, Error> {
        match &self.local {
            Some(local) => Ok(Clients::Calling(vec![
                Client::Irpc(overirpc::Client::local(
                    local.clone()
                ));
                load.clients()
            ])),
            None => Clients::connect(contestant, load, &self.address).await,
        }
    }
}

/// One client that makes calls.
#[derive(Clone)]
pub(super) enum Client {
    Irpc(overirpc::Client),
    Tonic(overgrpc::Client),
    Tarpc(overtarpc::Client),
}

impl Client {
    async fn square(&self, number: u64) -> Result<u64, Error> {
        match self {
            Self::Irpc(client) => client.square(number).await,
            Self::Tonic(client) => client.square(number).await,
            Self::Tarpc(client) => client.square(number).await,
        }
    }

    async fn echo(&self, payload: Bytes) -> Result<Bytes, Error> {
        match self {
            Self::Irpc(client) => client.echo(payload).await,
            Self::Tonic(client) => client.echo(payload).await,
            Self::Tarpc(client) => client.echo(payload).await,
        }
    }

    async fn messages(&self, span: Duration) -> Result<u64, Error> {
        match self {
            Self::Irpc(client) => client.messages(span).await,
            Self::Tonic(client) => client.messages(span).await,
            Self::Tarpc(_) => Err(Error::Usage("tarpc has no streams".to_owned())),
        }
    }

    /// Calls one after the other until `end`, at least one.
    async fn calls(self, payload: Bytes, end: Instant) -> Result<Sample, Error> {
        let mut sample = Sample::default();
        let mut start = Instant::now();
        while start < end || sample.calls == 0 {
            if payload.len() == NUMBER_BYTES {
                let number = sample.calls;
                check(self.square(number).await? == service::square(number))?;
            } else {
                let answer = self.echo(payload.clone()).await?;
                // The whole of the first one; comparing all of them would be measured, too.
                let right = if sample.calls == 0 {
                    answer == payload
                } else {
                    answer.len() == payload.len() && answer.last() == payload.last()
                };
                check(right)?;
            }
            let done = Instant::now();
            sample.add(done - start);
            start = done;
        }
        Ok(sample)
    }
}

/// Clients that are connected, each on its own.
pub(super) enum Clients {
    Calling(Vec<Client>),
    Raw(Vec<raw::Socket>),
}

impl Clients {
    /// Connects as many clients as `load` needs.
    pub(super) async fn connect(
        contestant: Contestant,
        load: Load,
        address: &Address,
    ) -> Result<Self, Error> {
        let mut clients = Vec::with_capacity(load.clients());
        match address {
            Address::InProcess => {
                return Err(Error::Usage("the server is another process".to_owned()));
            }
            Address::Udp { address, certificate } => {
                let socket = overirpc::quic_clients(certificate)?;
                for _ in 0..load.clients() {
                    clients.push(Client::Irpc(overirpc::connect_quic(&socket, *address).await?));
                }
            }
            Address::Path(path) => {
                let kind = match contestant {
                    Contestant::Seqpacket => Some(SocketType::SEQPACKET),
                    Contestant::Stream => Some(SocketType::STREAM),
                    _ => None,
                };
                if let Some(kind) = kind {
                    let sockets = (0..load.clients()).map(|_| raw::Socket::connect(path, kind));
                    return Ok(Self::Raw(sockets.collect::<Result<_, _>>()?));
                }
                for _ in 0..load.clients() {
                    clients.push(match contestant {
                        Contestant::Tonic => Client::Tonic(overgrpc::Client::connect(path).await?),
                        Contestant::Tarpc => Client::Tarpc(overtarpc::Client::connect(path).await?),
                        Contestant::UnixSpin => {
                            Client::Irpc(overirpc::connect_unix(path, overirpc::SPIN).await?)
                        }
                        _ => Client::Irpc(overirpc::connect_unix(path, Duration::ZERO).await?),
                    });
                }
            }
        }
        Ok(Self::Calling(clients))
    }

    /// Puts `load` on the server for `span`.
    pub(super) async fn run(&self, load: Load, span: Duration) -> Result<Sample, Error> {
        let clients = match self {
            Self::Raw(sockets) => return raw::run(sockets, load, span),
            Self::Calling(clients) => clients,
        };
        let start = Instant::now();
        match load {
            Load::Messages => {
                let calls = clients[0].messages(span).await?;
                Ok(Sample {
                    calls,
                    elapsed: start.elapsed(),
                    ..Sample::default()
                })
            }
            Load::Calls {
                parallel,
                payload_bytes,
                ..
            } => {
                let payload: Bytes = (0..payload_bytes).map(|index| (index % 251) as u8).collect();
                if let ([client], 1) = (clients.as_slice(), parallel) {
                    // On the runtime's own thread rather than beside the server's tasks, as a program calls from main.
                    let sample = client.clone().calls(payload, start + span).await;
                    return Sample::sum([sample], start.elapsed());
                }
                let callers = clients
                    .iter()
                    .flat_map(|client| (0..parallel).map(move |_| client));
                let tasks: Vec<_> = callers
                    .map(|client| tokio::spawn(client.clone().calls(payload.clone(), start + span)))
                    .collect();
                let mut samples = Vec::with_capacity(tasks.len());
                for task in tasks {
                    samples.push(task.await.map_err(failed("finish a client"))?);
                }
                Sample::sum(samples, start.elapsed())
            }
        }
    }

    /// Datagrams sent and received so far, where there are any.
    pub(super) fn datagrams(&self) -> Option<u64> {
        let Self::Calling(clients) = self else { return None };
        clients
            .iter()
            .map(|client| match client {
                Client::Irpc(client) => client.datagrams(),
                Client::Tonic(_) | Client::Tarpc(_) => None,
            })
            .sum()
    }
}
