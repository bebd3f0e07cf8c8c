//! Over what connections to the rendezvous go: UDP from the endpoint's own socket, or sockets beside it, which the
//! endpoint's thread opens and closes as it is told here: in TCP's shape (specs/fake-tcp.md), one for each address, or
//! over UDP from a port of its own, one for each attempt.
//!
//! QUIC knows a connection by the address at which it was made. One that moves to another socket (specs/path.md) keeps
//! that one, so addresses are exchanged between QUIC and the sockets: *known* is that of QUIC, *over* names the socket:
//! an address without a mark the endpoint's own, any other the one beside it that was opened by this name.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use packet::CarrierKind;
use peer_proto::Outbox;
use tunnel_proto::AttemptId;

use crate::limits::RENDEZVOUS_PAYLOAD_MAX;

/// What the endpoint's thread does about a socket beside its own, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SocketChange {
    /// Opens one to this address; [`super::Meetings::handle_socket_opened`] is to follow.
    Open(SocketAddr),
    /// Closes it, once what waits is sent.
    Close(SocketAddr),
}

/// Of an attempt, or the connection that comes of it.
struct Way {
    attempt: AttemptId,
    known: SocketAddr,
    over: SocketAddr,
}

/// An attempt whose socket is being opened.
pub(super) struct Waiting {
    pub(super) attempt: AttemptId,
    pub(super) over: SocketAddr,
    pub(super) server_name: String,
}

/// Of all attempts and connections.
#[derive(Default)]
pub(super) struct Ways {
    ways: Vec<Way>,
    waiting: Vec<Waiting>,
    /// Sockets beside the endpoint's own by their names: the largest payload, once they are open.
    sockets: BTreeMap<SocketAddr, Option<u16>>,
    changes: VecDeque<SocketChange>,
}

impl Ways {
    /// Whether the endpoint's thread alone may send: the sockets beside the endpoint's are its own.
    pub(super) fn are_of_thread(&self) -> bool {
        !self.sockets.is_empty() || !self.changes.is_empty()
    }

    pub(super) fn poll_change(&mut self) -> Option<SocketChange> {
        self.changes.pop_front()
    }

    /// Largest payload of the open socket of this name.
    pub(super) fn payload_max(&self, over: SocketAddr) -> Option<u16> {
        match CarrierKind::is_marked(over) {
            true => self.sockets.get(&over).copied().flatten(),
            false => Some(RENDEZVOUS_PAYLOAD_MAX),
        }
    }

    /// Whether packets come from a socket of this name beside the endpoint's own.
    pub(super) fn has_socket(&self, over: SocketAddr) -> bool {
        self.sockets.contains_key(&over)
    }

    /// Whether a connection goes over UDP by a socket beside the endpoint's own.
    pub(super) fn is_at_other_port(&self, attempt: AttemptId) -> bool {
        let mut ways = self.ways.iter().filter(|way| way.attempt == attempt);
        ways.any(|way| is_other_port(way.over))
    }

    /// The attempt begins when the socket is open.
    pub(super) fn wait(&mut self, waiting: Waiting) {
        self.want(waiting.over);
        self.waiting.push(waiting);
    }

    /// The socket that leads there is open, with its largest payload, or cannot be. Who has waited.
    pub(super) fn opened(&mut self, over: SocketAddr, payload_max: Option<u16>) -> Vec<Waiting> {
        // Otherwise it was given up meanwhile.
        let Some(socket) = self.sockets.get_mut(&over).filter(|socket| socket.is_none()) else {
            return Vec::new();
        };
        *socket = payload_max;
        if payload_max.is_none() {
            self.sockets.remove(&over);
        }
        let waited = self.waiting.extract_if(.., |waiting| waiting.over == over);
        waited.collect()
    }

    /// An attempt begins at this address; how QUIC is to know it. A connection that has moved may have taken either.
    pub(super) fn add(&mut self, attempt: AttemptId, over: SocketAddr) -> SocketAddr {
        let same = self.ways.iter().find(|way| way.over == over);
        let known = match same {
            Some(way) => way.known,
            None if self.ways.iter().any(|way| way.known == over) => {
                CarrierKind::of(over).stand_in(over, attempt)
            }
            None => over,
        };
        self.ways.push(Way { attempt, known, over });
        known
    }

    /// An attempt or a connection is over.
    pub(super) fn remove(&mut self, attempt: AttemptId) {
        self.ways.retain(|way| way.attempt != attempt);
        self.waiting.retain(|waiting| waiting.attempt != attempt);
        self.close_unused();
    }

    /// An attempt that waits for its socket does not begin.
    pub(super) fn give_up_waiting(&mut self, attempt: AttemptId) {
        self.waiting.retain(|waiting| waiting.attempt != attempt);
        self.close_unused();
    }

    /// A connection goes on over this address.
    pub(super) fn move_to(&mut self, attempt: AttemptId, over: SocketAddr) {
        if CarrierKind::is_marked(over) {
            self.want(over);
        }
        for way in self.ways.iter_mut().filter(|way| way.attempt == attempt) {
            way.over = over;
        }
        self.close_unused();
    }

    /// Who is reached over this address.
    pub(super) fn attempts_over(&self, over: SocketAddr) -> Vec<AttemptId> {
        let there = self.ways.iter().filter(|way| way.over == over);
        there.map(|way| way.attempt).collect()
    }

    /// How QUIC knows where packets from `over` come from: those of the latest that came there.
    pub(super) fn known(&self, over: SocketAddr) -> SocketAddr {
        let there = self.ways.iter().rfind(|way| way.over == over);
        there.map_or(over, |way| way.known)
    }

    /// How QUIC knows where an attempt or a connection goes.
    pub(super) fn known_of(&self, attempt: AttemptId) -> Option<SocketAddr> {
        let mut ways = self.ways.iter().filter(|way| way.attempt == attempt);
        ways.next().map(|way| way.known)
    }

    /// Names where trains go in place of where QUIC sends them.
    pub(super) fn redirect(&self, outbox: &mut Outbox) {
        let is_moved = self.ways.iter().any(|way| way.known != way.over);
        for train in outbox.trains_mut() {
            let known = train.destination;
            if is_moved && let Some(way) = self.ways.iter().find(|way| way.known == known) {
                train.destination = way.over;
            } else if is_other_port(known) && !self.may_send(known) {
                // The last words of an attempt that is over.
                train.destination = CarrierKind::unmark(known);
            }
        }
    }

    /// Whether a socket beside the endpoint's own is there until what waits is sent.
    fn may_send(&self, over: SocketAddr) -> bool {
        self.has_socket(over) || self.changes.contains(&SocketChange::Close(over))
    }

    fn want(&mut self, over: SocketAddr) {
        if let Entry::Vacant(socket) = self.sockets.entry(over) {
            socket.insert(None);
            self.changes.push_back(SocketChange::Open(over));
        }
    }

    fn close_unused(&mut self) {
        let (ways, waiting) = (&self.ways, &self.waiting);
        let is_used = |over: &SocketAddr| {
            ways.iter().any(|way| way.over == *over) || waiting.iter().any(|waiting| waiting.over == *over)
        };
        let unused = self.sockets.extract_if(.., |over, _| !is_used(over));
        self.changes
            .extend(unused.map(|(over, _)| SocketChange::Close(over)));
    }
}

/// Whether an address of UDP stands for another one ([`CarrierKind::stand_in`]).
fn is_other_port(address: SocketAddr) -> bool {
    CarrierKind::of(address) == CarrierKind::Udp && CarrierKind::is_marked(address)
}

#[cfg(test)]
mod tests {
    use packet::Ecn;
    use quic::OutgoingTrain;

    use super::*;

    fn udp() -> SocketAddr {
        "192.0.2.1:443".parse().unwrap()
    }

    fn tcp() -> SocketAddr {
        CarrierKind::Tcp.mark(udp())
    }

    fn waiting(attempt: AttemptId) -> Waiting {
        Waiting {
            attempt,
            over: tcp(),
            server_name: "example.org".to_owned(),
        }
    }

    fn sent(ways: &Ways, known: SocketAddr) -> SocketAddr {
        let mut outbox = Outbox::default();
        outbox.push(OutgoingTrain {
            destination: known,
            source: None,
            ecn: Ecn::NotEct,
            segment_size: 1,
            bytes: vec![0],
        });
        ways.redirect(&mut outbox);
        outbox.trains()[0].destination
    }

    fn changes(ways: &mut Ways) -> Vec<SocketChange> {
        std::iter::from_fn(|| ways.poll_change()).collect()
    }

    #[test]
    fn a_socket_is_opened_once_for_all_that_wait_and_closed_behind_the_last() {
        let mut ways = Ways::default();
        (1..3).for_each(|attempt| ways.wait(waiting(attempt)));
        assert!(ways.are_of_thread());
        assert_eq!(changes(&mut ways), [SocketChange::Open(tcp())]);
        let waited = ways.opened(tcp(), Some(1_440));
        assert_eq!((waited.len(), ways.payload_max(tcp())), (2, Some(1_440)));
        for attempt in [1, 2] {
            assert_eq!(ways.add(attempt, tcp()), tcp());
        }
        ways.remove(1);
        assert_eq!(changes(&mut ways), []);
        ways.remove(2);
        assert!(ways.are_of_thread(), "it is closed by the thread");
        assert_eq!(changes(&mut ways), [SocketChange::Close(tcp())]);
        assert!(!ways.are_of_thread());
        // One that cannot be opened is asked for again.
        ways.wait(waiting(3));
        assert_eq!(ways.opened(tcp(), None).len(), 1);
        ways.wait(waiting(4));
        ways.remove(4);
        let open = SocketChange::Open(tcp());
        assert_eq!(changes(&mut ways), [open, open, SocketChange::Close(tcp())]);
        assert_eq!(ways.opened(tcp(), Some(1_440)).len(), 0, "it was given up");
    }

    /// PATH-5.
    #[test]
    fn a_connection_that_moves_keeps_its_address_in_quic_and_an_attempt_beside_it_has_another() {
        let mut ways = Ways::default();
        assert_eq!(ways.add(1, udp()), udp());
        ways.move_to(1, tcp());
        assert_eq!(changes(&mut ways), [SocketChange::Open(tcp())]);
        assert_eq!((sent(&ways, udp()), ways.known(tcp())), (tcp(), udp()));
        let beside = ways.add(2, udp());
        assert!(beside != udp() && beside != tcp());
        assert_eq!((sent(&ways, beside), ways.known(udp())), (udp(), beside));
        // Whoever comes where the connection is now is told apart by connection IDs.
        assert_eq!(ways.add(3, tcp()), udp());
        assert_eq!(ways.attempts_over(tcp()), [1, 3]);
        ways.remove(3);
        ways.remove(2);
        assert_eq!(sent(&ways, beside), udp());
        ways.move_to(1, udp());
        assert_eq!(changes(&mut ways), [SocketChange::Close(tcp())]);
        assert_eq!((sent(&ways, udp()), ways.known(udp())), (udp(), udp()));
    }
    /// RDV-19.
    #[test]
    fn an_attempt_from_another_port_has_a_socket_of_its_own_until_it_moves_to_the_endpoints() {
        let mut ways = Ways::default();
        assert_eq!(ways.payload_max(udp()), Some(RENDEZVOUS_PAYLOAD_MAX));
        // One that went over the endpoint's own socket is there still.
        assert_eq!(ways.add(1, udp()), udp());
        let over = CarrierKind::Udp.stand_in(udp(), 2);
        assert_eq!(ways.payload_max(over), None);
        ways.wait(Waiting {
            attempt: 2,
            over,
            server_name: "example.org".to_owned(),
        });
        assert_eq!(changes(&mut ways), [SocketChange::Open(over)]);
        assert_eq!(ways.opened(over, Some(1_440)).len(), 1);
        assert!(ways.has_socket(over) && !ways.has_socket(udp()));
        assert_eq!(ways.add(2, over), over);
        assert!(ways.is_at_other_port(2) && !ways.is_at_other_port(1));
        assert_eq!((sent(&ways, over), ways.known(over)), (over, over));
        ways.move_to(2, udp());
        assert_eq!((sent(&ways, over), ways.known(udp())), (udp(), over));
        assert_eq!(changes(&mut ways), [SocketChange::Close(over)]);
        assert!(!ways.are_of_thread() && !ways.is_at_other_port(2));
        ways.remove(1);
        ways.remove(2);
        assert_eq!((sent(&ways, over), sent(&ways, udp())), (udp(), udp()));
    }

    #[test]
    fn the_last_words_from_another_port_leave_before_its_socket_is_closed() {
        let mut ways = Ways::default();
        let over = CarrierKind::Udp.stand_in(udp(), 1);
        ways.wait(Waiting {
            attempt: 1,
            over,
            server_name: "example.org".to_owned(),
        });
        ways.opened(over, Some(1_440));
        ways.add(1, over);
        ways.remove(1);
        assert_eq!(sent(&ways, over), over);
        let changed = [SocketChange::Open(over), SocketChange::Close(over)];
        assert_eq!(changes(&mut ways), changed);
    }
}
