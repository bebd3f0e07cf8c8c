//! The connection to the rendezvous finds and keeps a carrier that carries it (specs/path.md): attempts by a socket
//! beside the endpoint's own begin once that is open, and a connection that is up moves to the other carrier where its
//! own is silent, and back to UDP, which shows the rendezvous where peers can reach this endpoint.
//!
//! At a server with a cover an attempt leaves from another port where the endpoint's may be known to the cover: the
//! server may have led packets of an earlier connection there, or a hello that it had met, and it goes on doing so with
//! all that comes from that port (specs/qr1.md, QR1-13). Once the connection is up it moves to the endpoint's socket:
//! packets with the ID of a living connection are the server's wherever they come from (QR1-20).

use std::net::SocketAddr;
use std::time::Instant;

use packet::CarrierKind;
use packet_io::unix_seconds;
use tunnel_proto::limits::{CARRIER_WATCH_INTERVAL, PATH_WATCH_INTERVAL};
use tunnel_proto::{AttemptId, CarrierNews, PathNews, PathWatch};

use super::super::ways::{SocketChange, Waiting};
use super::Registration;
use crate::error::RendezvousProblem;

/// Why an attempt failed whose port is closed.
const PORT_CLOSED: &str = "nothing listens on its port";

/// What is watched of the path in use.
#[derive(Default)]
pub(super) struct Watch {
    path: PathWatch,
    /// When it is looked at next: while something is awaited, and always in TCP's shape.
    pub(super) due: Option<Instant>,
    /// When it is looked whether the carrier carries what is wanted.
    next_look: Option<Instant>,
}

impl Registration {
    /// Begins an attempt, or has its socket opened first.
    pub(super) fn begin(&mut self, now: Instant, attempt: AttemptId, over: SocketAddr, server_name: String) {
        let Some(payload_max) = self.ways.payload_max(over) else {
            return self.ways.wait(Waiting {
                attempt,
                over,
                server_name,
            });
        };
        let known = self.ways.add(attempt, over);
        self.end_resting(now, known);
        let begun = self.engine.connect(
            now,
            attempt,
            known,
            self.knows.name(&server_name),
            &self.knows.parameters(unix_seconds()),
            payload_max,
        );
        if let Err(error) = begun {
            self.lose(now, attempt, Some(error.to_string()));
        }
    }

    /// Closes the connection that rests at the genuine site and that QUIC knows by this address, where another one is
    /// to begin: without connection IDs there is one at each. One that left from another port rests on.
    fn end_resting(&mut self, now: Instant, known: SocketAddr) {
        while let Some(attempt) = self.resting.take_at(known) {
            self.engine.abandon(now, attempt);
        }
    }

    /// The next thing to do about sockets beside the endpoint's own.
    pub(in crate::rendezvous) fn poll_socket_change(&mut self) -> Option<SocketChange> {
        self.ways.poll_change()
    }

    /// A socket is open that carries so many bytes, or why it is not.
    pub(in crate::rendezvous) fn handle_socket_opened(
        &mut self,
        now: Instant,
        over: SocketAddr,
        opened: Result<u16, String>,
    ) {
        let (payload_max, reason) = match opened {
            Ok(bytes) => (Some(bytes), None),
            Err(reason) => (None, Some(reason)),
        };
        for waited in self.ways.opened(over, payload_max) {
            match &reason {
                Some(reason) => {
                    // The attempts over UDP take their time.
                    if !self.is_registered && !self.has_ended {
                        self.problem = Some(RendezvousProblem::Unreachable(reason.clone()));
                    }
                    self.lose(now, waited.attempt, Some(reason.clone()));
                }
                None => self.begin(now, waited.attempt, waited.over, waited.server_name),
            }
        }
        // The connection has returned there, and would go on without a socket.
        let is_stranded = |attempt: &AttemptId| self.reconnection.is_connection(*attempt);
        if let Some(reason) = reason
            && self.ways.attempts_over(over).iter().any(is_stranded)
        {
            self.problem = Some(RendezvousProblem::Unreachable(reason));
            self.leave(now);
        }
    }

    /// The server's machine says that nothing listens there, as anybody on the way can: a connection that is up is not
    /// ended by it.
    pub(in crate::rendezvous) fn handle_port_closed(&mut self, now: Instant, over: SocketAddr) {
        for attempt in self.ways.attempts_over(over) {
            if !self.reconnection.is_connection(attempt) {
                self.engine.abandon(now, attempt);
                self.lose(now, attempt, Some(PORT_CLOSED.to_owned()));
            }
        }
    }

    /// An attempt, or the connection, is over.
    pub(super) fn lose(&mut self, now: Instant, attempt: AttemptId, reason: Option<String>) {
        self.ways.remove(attempt);
        self.reconnection.handle_lost(now, attempt, reason);
    }

    /// An attempt has become the connection.
    pub(super) fn watch_from(&mut self, now: Instant, attempt: AttemptId) {
        self.connection = Some(attempt);
        self.watch.path.forget();
        self.sent(now);
    }

    /// Something was sent, and its acknowledgement may be awaited.
    pub(super) fn sent(&mut self, now: Instant) {
        if self.watch.due.is_none() && self.is_watched() {
            self.watch.due = Some(now + PATH_WATCH_INTERVAL);
        }
    }

    /// Whether something can be done about a path that is silent. A server without a cover that has forgotten the
    /// connection says so.
    fn is_watched(&self) -> bool {
        self.reconnection.has_other_carrier() || self.knows.is_cover()
    }

    /// Looks at the path, and at the carrier in use.
    pub(super) fn watch_carrier(&mut self, now: Instant) {
        self.watch.due = None;
        let Some((kind, _)) = self.reconnection.carrier().filter(|_| self.reconnection.is_up()) else {
            return;
        };
        let Some(activity) = self.engine.path_activity().filter(|_| self.is_watched()) else {
            return;
        };
        if self.reconnection.is_in_doubt() {
            if self.watch.path.has_answered(activity) {
                self.reconnection.handle_answered();
            }
            self.watch.due = Some(now + PATH_WATCH_INTERVAL);
            return;
        }
        let has_other = self.reconnection.has_other_carrier();
        match self.watch.path.look(now, activity) {
            // The attempts beside it leave from other ports (RDV-19).
            Some(PathNews::Dead) if self.knows.is_cover() && !self.reconnection.is_carrier_on_trial() => {
                self.reconnection.handle_silence(now);
            }
            // Another port of the endpoint's socket there is none.
            Some(PathNews::Dead | PathNews::Silent) if has_other => self.carrier_is_silent(now),
            Some(PathNews::Answered) => self.reconnection.carrier_answered(),
            Some(PathNews::Paused) if self.reconnection.would_leave_carrier(now) => self.engine.probe(),
            Some(_) | None => {}
        }
        let is_judged = has_other && (kind == CarrierKind::Tcp || self.reconnection.is_carrier_on_trial());
        if is_judged && self.watch.next_look.is_none_or(|at| at <= now) {
            self.watch.next_look = Some(now + CARRIER_WATCH_INTERVAL);
            self.judge_carrier(now);
        }
        let interval = match activity.is_awaited || self.watch.path.is_flowing() {
            true => Some(PATH_WATCH_INTERVAL),
            false => is_judged.then_some(CARRIER_WATCH_INTERVAL),
        };
        self.watch.due = interval.map(|interval| now + interval);
    }

    /// PATH-8.
    fn carrier_is_silent(&mut self, now: Instant) {
        if !self.reconnection.is_carrier_on_trial() {
            self.reconnection.carrier_is_silent(now);
        } else if let Some(over) = self.reconnection.leave_silent_carrier(now) {
            self.go_over(now, over);
        }
    }

    /// PATH-6, PATH-7.
    fn judge_carrier(&mut self, now: Instant) {
        let Some(carried) = self.engine.carried(now) else {
            return;
        };
        if let Some(CarrierNews::Return(over)) = self.reconnection.look_at_carrier(now, carried) {
            self.go_over(now, over);
        }
    }

    /// The server answers an attempt over the other carrier, which the connection takes from here on (PATH-5).
    pub(super) fn move_to_other_carrier(&mut self, now: Instant, attempt: AttemptId) {
        self.engine.abandon(now, attempt);
        let Some(over) = self.reconnection.address_of(attempt) else {
            return;
        };
        self.reconnection.handle_moved(now, attempt);
        self.go_over(now, over);
        self.ways.remove(attempt);
    }

    /// Packets leave this machine in another way, where the other carrier may do better than it did (PATH-7).
    pub(in crate::rendezvous) fn network_changed(&mut self, now: Instant) {
        self.reconnection.forget_carriers();
        (self.watch.due, self.watch.next_look) = (Some(now), None);
    }

    /// The connection goes on by the endpoint's own socket, whose address the rendezvous is to see (RDV-7, RDV-19).
    pub(super) fn move_to_own_socket(&mut self, now: Instant) {
        let connection = self
            .connection
            .filter(|attempt| self.ways.is_at_other_port(*attempt));
        if let Some(address) = connection.and_then(|attempt| self.reconnection.address_of(attempt)) {
            self.take_own_socket(now, address);
        }
    }

    /// All that comes there is the connection's from here on: one that rests there would hear nothing.
    pub(super) fn take_own_socket(&mut self, now: Instant, address: SocketAddr) {
        let resting = self.ways.known(address);
        self.go_over(now, address);
        self.end_resting(now, resting);
    }

    fn go_over(&mut self, now: Instant, over: SocketAddr) {
        if let Some(connection) = self.connection {
            self.ways.move_to(connection, over);
        }
        self.server = Some(over);
        self.watch.path.forget();
        self.engine.path_changed(now);
        self.engine.local_address_changed();
    }

    /// Over what the server is reached, while it is.
    pub(in crate::rendezvous) fn carrier(&self) -> Option<CarrierKind> {
        let (kind, _) = self.reconnection.carrier()?;
        self.reconnection.is_up().then_some(kind)
    }
}
