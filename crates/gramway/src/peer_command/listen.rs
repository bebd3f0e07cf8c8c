//! `gramway peer listen`: who may connect, and the answers to pings and pipes.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use peer::{
    CarrierKind, Delivery, Endpoint, Peer, PeerId, PeerPath, ReceiveStream, Rendezvous, SecretKey,
    SendStream, blocking,
};
use serde_json::{Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::arguments::ListenArguments;
use super::connection::peer_id;
use super::console::{Console, Goodbyes};
use super::pipe::spawn;
use super::reports::{RELAY, Reports, path_fields};
use super::{ANSWER, Confinement, PING, PIPE, news, rendezvous};
use crate::close_code::{BUSY, ENDED};
use crate::exit::{Problem, sentence};
use crate::limits::{PEER_CONNECTIONS_MAX, PEER_GOODBYE_MAX, PEER_PING_BYTES_MAX};
use crate::sandbox::OfPeer;
use crate::startup;

/// What the threads of all connections share.
struct Listener {
    endpoint: Endpoint,
    /// Where no pipe has it.
    console: Mutex<Option<Console>>,
    /// A pipe has given it back, or a connection has ended.
    has_changed: Condvar,
    goodbyes: Goodbyes,
    connections: AtomicUsize,
    /// Why the program ends, where a pipe ended it.
    end: Mutex<Option<Result<(), Problem>>>,
    once: bool,
    reports: Reports,
}

/// A connection. It counts until both of its threads have ended.
struct Served {
    listener: Arc<Listener>,
    number: u64,
    peer: Peer,
    has_ended: AtomicBool,
}

/// Standard input and output while a pipe has them.
struct Turn<'a> {
    listener: &'a Listener,
    console: Option<Console>,
}

/// Runs the command until a signal, or the first pipe with `--once`, ends it.
pub(super) fn run(
    key: SecretKey,
    arguments: &ListenArguments,
    confinement: Confinement,
) -> Result<(), Problem> {
    let reports = Reports {
        is_json: arguments.json,
    };
    let endpoint = endpoint(key, arguments, confinement)?;
    let (console, goodbyes) = Console::new(reports);
    let listener = Arc::new(Listener {
        endpoint,
        console: Mutex::new(Some(console)),
        has_changed: Condvar::new(),
        goodbyes,
        connections: AtomicUsize::new(0),
        end: Mutex::new(None),
        once: arguments.once,
        reports,
    });
    watch_signals(&listener)?;
    let (id, local) = (listener.endpoint.id(), listener.endpoint.local_addr());
    reports.note(
        "listening",
        json!({ "address": local, "peer": id.to_string() }),
        &format!("listening at {local} as {id}"),
    );
    let (endpoint, has_rendezvous) = (
        listener.endpoint.clone(),
        arguments.rendezvous.rendezvous_file.is_some(),
    );
    spawn("news", move || news::follow(&endpoint, reports, has_rendezvous))?;
    let mut number = 0;
    while let Some(peer) = blocking::wait(listener.endpoint.accept()) {
        number += 1;
        listener.serve(number, peer);
    }
    let _ = blocking::wait_for(PEER_GOODBYE_MAX, listener.endpoint.ended());
    let end = listener.end.lock().unwrap_or_else(PoisonError::into_inner).take();
    end.unwrap_or(Ok(()))
}

fn endpoint(
    key: SecretKey,
    arguments: &ListenArguments,
    confinement: Confinement,
) -> Result<Endpoint, Problem> {
    let mut builder = Endpoint::builder(key);
    if !arguments.any {
        builder = builder.allow(allowed(arguments)?);
    }
    let rendezvous = rendezvous::of(&arguments.rendezvous)?;
    let has_tcp = rendezvous.as_ref().is_some_and(Rendezvous::may_look_like_tcp);
    if let Some(rendezvous) = rendezvous {
        builder = builder.rendezvous(rendezvous);
    }
    if announces(arguments) {
        builder = builder.announce_on_lan();
    }
    if maps_port(arguments) {
        builder = builder.map_port();
    }
    confinement.enter(OfPeer {
        listen: arguments.listen,
        has_tcp,
    });
    super::bind(builder, arguments.listen)
}

/// Whether this machine is to be found on the local network.
fn announces(arguments: &ListenArguments) -> bool {
    !arguments.no_lan && !is_for_this_machine(arguments)
}

/// Whether the routers are asked to let others in.
fn maps_port(arguments: &ListenArguments) -> bool {
    !arguments.no_port_mapping && !is_for_this_machine(arguments)
}

/// Whether no other machine is to connect.
fn is_for_this_machine(arguments: &ListenArguments) -> bool {
    arguments.listen.is_some_and(|address| address.ip().is_loopback())
}

fn allowed(arguments: &ListenArguments) -> Result<Vec<PeerId>, Problem> {
    let named = arguments.allow.iter().map(|text| peer_id(text));
    let mut peers: Vec<PeerId> = named.collect::<Result<_, _>>()?;
    if let Some(path) = &arguments.allow_file {
        let text = startup::read_bounded(path).map_err(|error| Problem::file("read", path, &error))?;
        peers.extend(of_file(path, &text)?);
    }
    Ok(peers)
}

/// The peers of a file: an ID a line, and comments after #.
fn of_file(path: &Path, text: &str) -> Result<Vec<PeerId>, Problem> {
    let lines = (1..).zip(text.lines()).filter_map(|(number, line)| {
        let id = line.split('#').next().unwrap_or_default().trim();
        (!id.is_empty()).then_some((number, id))
    });
    lines
        .map(|(number, id)| {
            let wrong = |error| Problem::configuration(format!("{}:{number}: {error}", path.display()));
            id.parse().map_err(wrong)
        })
        .collect()
}

/// SIGTERM and SIGINT end the program; peers are told.
fn watch_signals(listener: &Arc<Listener>) -> Result<(), Problem> {
    let cannot =
        |error: std::io::Error| Problem::bug(format!("cannot watch for signals: {}", sentence(&error)));
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(cannot)?;
    let listener = Arc::clone(listener);
    spawn("signals", move || {
        if signals.forever().next().is_some() {
            listener.endpoint.close(ENDED, "");
        }
    })
}

impl Listener {
    /// Has two threads answer a peer, which end with its connection.
    fn serve(self: &Arc<Self>, number: u64, peer: Peer) {
        if self.connections.load(Ordering::Relaxed) >= PEER_CONNECTIONS_MAX {
            return peer.close(BUSY, "too many connections");
        }
        self.connections.fetch_add(1, Ordering::Relaxed);
        let (id, path) = (peer.id(), peer.path());
        let (fields, place) = connected(id, path, self.endpoint.rendezvous_carrier());
        self.reports
            .note("connected", fields, &format!("{id}{place} has connected"));
        let served = Arc::new(Served {
            listener: Arc::clone(self),
            number,
            peer,
            has_ended: AtomicBool::new(false),
        });
        let (of_pings, of_pipes) = (Arc::clone(&served), Arc::clone(&served));
        let begun = spawn("pings", move || of_pings.answer_pings())
            .and_then(|()| spawn("pipes", move || of_pipes.take_pipes()));
        if let Err(problem) = begun {
            // Others are served: a thread that did begin ends with the connection.
            served.peer.close(BUSY, "no thread is left for the connection");
            let text = format!("{id} was told to come again: {problem}");
            self.reports.note("problem", json!({ "text": text }), &text);
        }
    }

    /// A pipe has ended, which ends the program.
    fn end(&self, end: Result<(), Problem>) {
        let mut ended = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        ended.get_or_insert(end);
        self.endpoint.close(ENDED, "");
    }
}

impl Served {
    /// Answers pings until the connection ends.
    fn answer_pings(&self) {
        while let Ok(received) = blocking::wait(self.peer.receive()) {
            let Some(rest) = received.body.strip_prefix(PING) else {
                continue;
            };
            if received.body.len() <= PEER_PING_BYTES_MAX {
                // One that finds no room is lost, as on the path.
                let answer = [ANSWER, rest].concat();
                let _ = self.peer.try_send(answer, Delivery::unordered().unreliable());
            }
        }
        let console = self.listener.console.lock();
        self.has_ended.store(true, Ordering::Relaxed);
        drop(console);
        self.listener.has_changed.notify_all();
        self.listener.goodbyes.gone(self.number);
    }

    /// Serves pipes until the connection ends, or the program does.
    fn take_pipes(&self) {
        let listener = &*self.listener;
        while let Ok((mut to_peer, mut from_peer)) = blocking::wait(self.peer.accept()) {
            if !is_pipe(&mut from_peer) {
                to_peer.reset(BUSY);
                continue;
            }
            // Where the program ends with this pipe, no other one has its turn before.
            let mut turn = self.take_turn();
            let served = match &mut turn {
                Some(turn) => turn.serve(self, to_peer, from_peer),
                // Another pipe has it, with which the program ends where that is the only one.
                None if listener.once => return,
                None => Ok(false),
            };
            match served {
                Ok(true) if listener.once => {
                    // It may not have written the answer yet, and goes once it has.
                    blocking::wait(self.peer.closed());
                    return listener.end(Ok(()));
                }
                Ok(false) if listener.once => {
                    return listener.end(Err(Problem::unavailable("the pipe broke")));
                }
                Ok(true) => {}
                Ok(false) => {
                    let id = self.peer.id();
                    let text = format!("a pipe of {id} broke");
                    let fields = json!({ "peer": id.to_string() });
                    listener.reports.note("pipe_broke", fields, &text);
                }
                Err(problem) => return listener.end(Err(problem)),
            }
        }
    }

    /// Waits for standard input and output; nothing where the connection ends first.
    fn take_turn(&self) -> Option<Turn<'_>> {
        let listener = &*self.listener;
        let mut console = listener.console.lock().unwrap_or_else(PoisonError::into_inner);
        while !self.has_ended.load(Ordering::Relaxed) {
            if let Some(console) = console.take() {
                let console = Some(console);
                return Some(Turn { listener, console });
            }
            let waited = listener.has_changed.wait(console);
            console = waited.unwrap_or_else(PoisonError::into_inner);
        }
        None
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.listener.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Turn<'_> {
    fn serve(&mut self, to: &Served, to_peer: SendStream, from_peer: ReceiveStream) -> Result<bool, Problem> {
        let console = self.console.as_mut().expect("it is given back at the end");
        console.serve(to.number, &to.peer, to_peer, from_peer)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let console = self.listener.console.lock();
        *console.unwrap_or_else(PoisonError::into_inner) = self.console.take();
        self.listener.has_changed.notify_all();
    }
}

/// What is told of a connection for programs, and of where the peer is for people; nothing of a path that has ended.
fn connected(id: PeerId, path: Option<PeerPath>, carrier: Option<CarrierKind>) -> (Value, String) {
    let nowhere = || json!({ "path": null, "address": null, "carrier": null });
    let mut fields = path.map_or_else(nowhere, |path| path_fields(path, carrier));
    fields["peer"] = id.to_string().into();
    fields["is_relayed"] = path.map(PeerPath::is_relayed).into();
    let place = match (path, &fields["address"]) {
        (Some(PeerPath::Relayed(_)), _) => format!(" at {RELAY}"),
        (_, Value::String(address)) => format!(" at {address}"),
        _ => String::new(),
    };
    (fields, place)
}

/// Whether the peer's stream begins as a pipe does.
fn is_pipe(from_peer: &mut ReceiveStream) -> bool {
    let first = blocking::wait(from_peer.read_chunk(1));
    first.is_ok_and(|first| first.as_deref() == Some(&[PIPE][..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_told_by_where_it_is_and_one_that_is_relayed_by_that_alone() {
        let id = SecretKey::from_bytes([1; 32]).id();
        let relayed = Some(PeerPath::Relayed("[100::7]:1".parse().unwrap()));
        let (fields, place) = connected(id, relayed, Some(CarrierKind::Udp));
        assert_eq!(place, " at the relay of the rendezvous");
        assert_eq!(
            (&fields["address"], &fields["is_relayed"]),
            (&Value::Null, &json!(true))
        );
        assert_eq!(fields["carrier"], "udp");
        let direct = Some(PeerPath::Direct("192.0.2.1:9".parse().unwrap()));
        let (fields, place) = connected(id, direct, None);
        assert_eq!(
            (place.as_str(), &fields["is_relayed"]),
            (" at 192.0.2.1:9", &json!(false))
        );
        let (fields, place) = connected(id, None, None);
        assert_eq!((place.as_str(), &fields["is_relayed"]), ("", &Value::Null));
    }

    #[test]
    fn a_file_of_peers_has_comments_and_tells_the_line_of_what_is_none() {
        let [one, other] = [1, 2].map(|seed| SecretKey::from_bytes([seed; 32]).id());
        let path = Path::new("peers");
        let text = format!("# friends\n{one}  # laptop\n\n{other}\n");
        assert_eq!(of_file(path, &text).unwrap(), [one, other]);
        let problem = of_file(path, &format!("{one}\nnobody\n")).unwrap_err();
        assert!(
            problem.to_string().starts_with("peers:2: a peer ID has 52"),
            "{problem}"
        );
        assert_eq!(problem.code() as u8, 78);
    }
}
