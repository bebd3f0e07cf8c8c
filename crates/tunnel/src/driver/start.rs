//! From the parts of each shard to running threads: everything that can fail is tried before they begin.

use std::io;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use packet_io::{Poller, Waker};
use quic::EndpointParameters;
use tunnel_proto::{Budget, Engine, ServerShard};

use super::io::Io;
use super::neighbours::Neighbours;
use super::resolver::{NameService, NameSources, Resolver};
use super::role::Role;
use super::sources::Sources;
use super::{CoreYield, Delivery, InnerTurns, PollToken, Shard, aead, inner_batch};
use crate::config::CommonConfig;
use crate::handle::{Command, Controller, Failure, Handle, Line, Notice};
use crate::limits;
use crate::notices::{self, NoticeReceiver, NoticeSender};

pub(super) fn endpoint_parameters(
    common: &CommonConfig,
    reset_key: [u8; 64],
    shard: quic::Shard,
) -> Result<EndpointParameters, Failure> {
    let mut seed = [0; 32];
    random(&mut seed)?;
    Ok(EndpointParameters {
        udp_payload_max: common.max_udp_payload,
        profile: common.profile,
        aead: aead::fastest(),
        reset_key,
        id_length: quic::IdLength::default(),
        is_covered: false,
        shard,
        generation: quic::Generation::default(),
        seed,
    })
}

/// A number that spreads flows otherwise in every process.
pub(super) fn seed() -> Result<u64, Failure> {
    let mut bytes = [0; 8];
    random(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}

/// For numbers that nobody may foresee.
pub(super) fn secret_seed() -> Result<[u8; 32], Failure> {
    let mut bytes = [0; 32];
    random(&mut bytes)?;
    Ok(bytes)
}

pub(super) fn quic_shard(index: usize, count: usize) -> quic::Shard {
    const _: () = assert!(limits::SHARDS_MAX <= u8::MAX as usize);
    quic::Shard {
        index: index as u8,
        count: count as u8,
    }
}

pub(super) fn random(bytes: &mut [u8]) -> Result<(), Failure> {
    aws_lc_rs::rand::fill(bytes)
        .map_err(|_| Failure::Unavailable("the system provides no random numbers".to_owned()))
}

pub(super) fn unavailable(error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::PermissionDenied => Failure::Permission(error.to_string()),
        _ => Failure::Unavailable(error.to_string()),
    }
}

/// The same for an address to listen at; `other` is the flag that names another one.
pub(super) fn cannot_listen(error: &io::Error, at: SocketAddr, other: &str) -> Failure {
    if error.kind() != io::ErrorKind::PermissionDenied {
        return unavailable(error);
    }
    let text = error.to_string();
    let text = text
        .split_once(" (os error")
        .map_or(text.as_str(), |(text, _)| text);
    Failure::Permission(format!(
        "{text}: for port {} use sudo, a systemd service with AmbientCapabilities=CAP_NET_BIND_SERVICE, or {other}",
        at.port()
    ))
}

/// Shards that have all they need but their threads.
pub(super) struct Group<R: Role> {
    pub(super) shards: Vec<Shard<R>>,
    controller: Controller,
    notice_sender: NoticeSender,
    notices: NoticeReceiver,
}

/// Makes one shard of each part, and what is between them; names come from `names`.
pub(super) fn assemble<R: Role>(
    parts: Vec<(Engine<R::Proto>, R)>,
    common: &CommonConfig,
    names: NameSources,
    now: Instant,
) -> Result<Group<R>, Failure> {
    let count = parts.len();
    let (notice_sender, notices) = notices::channel();
    let (lines, ends) = ends(count, names, &notice_sender)?;
    let wakers: Vec<_> = lines.iter().map(|line| line.waker.clone()).collect();
    let neighbours = Neighbours::new(&wakers);
    let sessions = Budget::divided(tunnel_proto::limits::UDP_SESSIONS_MAX, count);
    let tcp = Budget::divided(limits::TCP_CONNECTIONS_MAX, count);
    let budgets = sessions.into_iter().zip(tcp);
    let mut shards = Vec::with_capacity(count);
    for (((part, end), neighbours), (sessions, tcp_budget)) in
        parts.into_iter().zip(ends).zip(neighbours).zip(budgets)
    {
        let ((engine, role), (poller, resolver, commands)) = (part, end);
        let quic::Shard { index, count } = quic_shard(neighbours.own(), count);
        shards.push(Shard {
            engine: engine.sharded(ServerShard { index, count }, sessions),
            role,
            io: Io::new(
                common.clone(),
                poller,
                resolver,
                notice_sender.clone(),
                tcp_budget,
                now,
            ),
            sources: Sources::new(limits::SOURCES_MAX),
            ready: Vec::new(),
            commands,
            neighbours,
            inner_batch: inner_batch(),
            delivery: Delivery::default(),
            core_yield: CoreYield::default(),
            inner: Vec::new(),
            inner_turns: InnerTurns::default(),
            more_to_send: false,
            drain: None,
            failure: None,
            stopping: false,
        });
    }
    Ok(Group {
        shards,
        controller: Controller::new(lines),
        notice_sender,
        notices,
    })
}

/// What a shard listens to besides sockets.
type End = (Poller, Resolver, mpsc::Receiver<Command>);

/// The ways to shards that are not there yet, and their ends.
fn ends(count: usize, names: NameSources, notices: &NoticeSender) -> Result<(Vec<Line>, Vec<End>), Failure> {
    let mut lines = Vec::with_capacity(count);
    let mut ends = Vec::with_capacity(count);
    let names = NameService::start(names, notices.clone()).map_err(|error| unavailable(&error))?;
    for _ in 0..count {
        let poller = Poller::new().map_err(|error| unavailable(&error))?;
        let waker = Waker::new(&poller, PollToken::Waker.encode()).map_err(|error| unavailable(&error))?;
        let resolver = names.resolver(&waker);
        let (sender, commands) = mpsc::channel();
        lines.push(Line {
            commands: sender,
            waker,
        });
        ends.push((poller, resolver, commands));
    }
    Ok((lines, ends))
}

impl<R: Role> Group<R> {
    /// Tells the program before any shard does.
    pub(super) fn notify(&self, notice: Notice) {
        self.notice_sender.send(notice);
    }

    /// Starts the threads. A shard that fails or panics takes the others with it.
    pub(super) fn spawn(self) -> Result<Handle, Failure> {
        let mut handle = Handle {
            controller: self.controller,
            notices: self.notices,
            threads: Vec::with_capacity(self.shards.len()),
            kill_switch: None,
        };
        for shard in self.shards {
            let others = StopOthers(handle.controller());
            // What has been started ends when the handle is dropped.
            let thread = thread::Builder::new()
                .name(format!("shard-{}", shard.neighbours.own()))
                .spawn(move || {
                    let others = others;
                    let ended = shard.run();
                    if ended.is_ok() {
                        others.leave();
                    }
                    ended
                })
                .map_err(|error| unavailable(&error))?;
            handle.threads.push(thread);
        }
        Ok(handle)
    }
}

/// Stops all shards when it is dropped.
struct StopOthers(Controller);

impl StopOthers {
    /// The others may go on.
    fn leave(self) {
        std::mem::forget(self);
    }
}

impl Drop for StopOthers {
    fn drop(&mut self) {
        self.0.stop();
    }
}
