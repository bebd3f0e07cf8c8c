//! What becomes of calls: ours at the rendezvous, and those of others that it hands on.

use std::net::SocketAddr;
use std::task::{Poll, Waker};
use std::time::Instant;

use bytes::BytesMut;
use packet::{CarrierKind, Ecn, Path};
use peer_proto::{
    AddressSource, CloseReason, ConnectError, Meeting, Outbox, PeerId, PeerKey, Peers, is_relayed,
};
use tunnel_proto::NoContext;
use tunnel_proto::limits::RENDEZVOUS_ADDRESSES_MAX;
use tunnel_proto::rendezvous::Message;

use super::addresses_of;
use super::inbox::RelayedTrain;
use super::link::Rendezvous;
use super::questions::{Asked, Questions};
use super::registration::{Registration, Resolution};
use super::ways::SocketChange;
use super::whereabouts::Whereabouts;
use crate::error::{BindError, InviteError, InviterError, RelayProblem, RendezvousProblem};
use crate::key::SecretKey;
use crate::limits::{CALLS_MAX, FINDS_MAX, INVITES_MAX, MEETING_TIME_MAX, RELAYED_PAYLOAD_MAX};
use crate::wakers::Wakers;

/// Somebody whom we want to connect to.
struct Call {
    peer: PeerKey,
    callee: PeerId,
    meeting: Meeting,
    until: Instant,
    /// The rendezvous knows of it.
    is_said: bool,
}

/// The endpoint's rendezvous.
pub(crate) struct Meetings {
    registration: Registration,
    local: SocketAddr,
    observed: Option<SocketAddr>,
    whereabouts: Whereabouts,
    /// Where a router's mapping leads to us from.
    mapped: Option<SocketAddr>,
    /// Where a router's firewall of IPv6 lets others in to us.
    pinhole: Option<SocketAddr>,
    calls: Vec<Call>,
    /// Where the rendezvous relayed for us last.
    relayed: Option<SocketAddr>,
    /// Since the last registration our addresses have been told.
    has_told: bool,
    /// Numbers that were asked for.
    invitations: Questions<u32, InviteError>,
    /// Whose numbers are.
    finds: Questions<Option<PeerId>, InviterError>,
    /// Whose number we came by, as a guest (RDV-17).
    inviter: Option<PeerId>,
    /// Who waits for that.
    pub(crate) guests: Wakers,
}

impl Meetings {
    /// # Errors
    /// [`BindError::NoRandomness`], [`BindError::Rendezvous`].
    pub(crate) fn new(
        now: Instant,
        rendezvous: &Rendezvous,
        key: &SecretKey,
        local: SocketAddr,
    ) -> Result<Self, BindError> {
        let mut seed = [0; 32];
        aws_lc_rs::rand::fill(&mut seed).map_err(|_| BindError::NoRandomness)?;
        Ok(Self {
            registration: Registration::new(now, rendezvous, key, seed)?,
            local,
            observed: None,
            whereabouts: Whereabouts::default(),
            mapped: None,
            pinhole: None,
            calls: Vec::new(),
            relayed: None,
            has_told: false,
            invitations: Questions::default(),
            finds: Questions::default(),
            inviter: None,
            guests: Wakers::default(),
        })
    }

    /// Where the rendezvous sees us, while we are registered there.
    pub(crate) fn observed(&self) -> Option<SocketAddr> {
        self.observed.filter(|_| self.registration.is_registered())
    }

    /// The router maps a port to ours, or does not any more: the rendezvous is told our addresses again.
    pub(crate) fn set_mapped(&mut self, mapped: Option<SocketAddr>) {
        self.has_told &= self.mapped == mapped;
        self.mapped = mapped;
    }

    /// The same of what a router's firewall of IPv6 lets in.
    pub(crate) fn set_pinhole(&mut self, pinhole: Option<SocketAddr>) {
        self.has_told &= self.pinhole == pinhole;
        self.pinhole = pinhole;
    }

    /// What went wrong last on the way to the rendezvous.
    pub(crate) fn problem(&self) -> Option<&RendezvousProblem> {
        self.registration.problem()
    }

    /// Whether the rendezvous relays for us, or why not, once it has said so.
    pub(crate) fn relayed(&self) -> Option<Result<(), RelayProblem>> {
        self.registration.relayed()
    }

    /// Over what the rendezvous is reached, while it is.
    pub(crate) fn carrier(&self) -> Option<CarrierKind> {
        self.registration.carrier()
    }

    /// Whether the endpoint's thread alone may send to it.
    pub(crate) fn is_sent_by_thread(&self) -> bool {
        self.registration.is_sent_by_thread()
    }

    /// The next thing to do about sockets beside the endpoint's own.
    pub(crate) fn poll_socket_change(&mut self) -> Option<SocketChange> {
        self.registration.poll_socket_change()
    }

    /// A socket beside the endpoint's own is open that carries so many bytes, or why it is not.
    pub(crate) fn handle_socket_opened(
        &mut self,
        now: Instant,
        over: SocketAddr,
        opened: Result<u16, String>,
    ) {
        self.registration.handle_socket_opened(now, over, opened);
    }

    /// Nothing listens there, as a socket beside the endpoint's own was told.
    pub(crate) fn handle_port_closed(&mut self, now: Instant, over: SocketAddr) {
        self.registration.handle_port_closed(now, over);
    }

    pub(crate) fn is_server(&self, remote: SocketAddr) -> bool {
        self.registration.is_server(remote)
    }

    pub(crate) fn handle_received(
        &mut self,
        now: Instant,
        path: Path,
        ecn: Ecn,
        data: BytesMut,
        segment_size: usize,
        outbox: &mut Outbox,
    ) {
        self.registration
            .handle_received(now, path, ecn, data, segment_size, outbox);
    }

    pub(crate) fn set_copies_received(&mut self, copies: bool) {
        self.registration.set_copies_received(copies);
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.registration.poll_timeout()
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.registration.handle_timeout(now);
    }

    pub(crate) fn poll_resolution(&mut self) -> Option<Resolution> {
        self.registration.poll_resolution()
    }

    pub(crate) fn handle_resolved(&mut self, now: Instant, number: u64, addresses: &[SocketAddr]) {
        self.registration.handle_resolved(now, number, addresses);
    }

    pub(crate) fn flush(&mut self, now: Instant, outbox: &mut Outbox) -> bool {
        self.registration.flush(now, outbox)
    }

    /// Asks for a number for a guest.
    pub(crate) fn invite(&mut self, now: Instant) -> Result<Asked<u32, InviteError>, InviteError> {
        if self.invitations.len() >= INVITES_MAX {
            return Err(InviteError::Refused);
        }
        let is_said = self.registration.say(now, Message::Invite);
        is_said
            .then(|| self.invitations.add())
            .ok_or(InviteError::NotRegistered)
    }

    /// Asks whose a number is.
    pub(crate) fn find(
        &mut self,
        now: Instant,
        number: u32,
    ) -> Result<Asked<Option<PeerId>, InviterError>, InviterError> {
        if self.finds.len() >= FINDS_MAX {
            return Err(InviterError::TooMany);
        }
        let is_said = self.registration.say(now, Message::Find { number });
        is_said
            .then(|| self.finds.add())
            .ok_or(InviterError::NotRegistered)
    }

    /// Ready once the rendezvous has told whose number we came by.
    pub(crate) fn inviter(&self) -> Poll<Option<PeerId>> {
        match self.inviter {
            Some(_) => Poll::Ready(self.inviter),
            None => Poll::Pending,
        }
    }

    /// Who has been given a number, or will not be, and who learns its inviter.
    pub(crate) fn take_woken(&mut self, woken: &mut Vec<Waker>) {
        self.invitations.take_woken(woken);
        self.finds.take_woken(woken);
        if self.inviter.is_some() {
            self.guests.take(woken);
        }
    }

    /// The endpoint has ended: who waits learns of it.
    pub(crate) fn end(&mut self, woken: &mut Vec<Waker>) {
        self.guests.take(woken);
    }

    /// The endpoint closes: no question is answered any more.
    pub(crate) fn close(&mut self) {
        self.invitations.fail(InviteError::NotRegistered);
        self.finds.fail(InviterError::NotRegistered);
    }

    /// The rendezvous is told, which relays nothing from here on.
    pub(crate) fn leave(&mut self, now: Instant) {
        self.registration.close(now);
    }

    /// Connects to a peer at the addresses that are given, at those that the rendezvous knows, and at those that the
    /// peer's checks come from, whichever answers first.
    pub(crate) fn connect(
        &mut self,
        now: Instant,
        peers: &mut Peers,
        callee: PeerId,
        addresses: &[SocketAddr],
    ) -> Result<PeerKey, ConnectError> {
        self.calls.retain(|call| now < call.until);
        // Without random bytes nobody could be told from others: the addresses that are given have to do.
        let Some(meeting) = draw().filter(|_| self.calls.len() < CALLS_MAX) else {
            return peers.connect(now, callee, addresses);
        };
        let until = now + MEETING_TIME_MAX;
        let peer = peers.connect_and_meet(now, callee, addresses, meeting, until)?;
        self.calls.push(Call {
            peer,
            callee,
            meeting,
            until,
            is_said: false,
        });
        self.settle(now, peers);
        Ok(peer)
    }

    /// Meets peers again on whose paths nothing comes, or all whose addresses may have changed: what the rendezvous
    /// then says of each other's addresses may be paths of their connections (RDV-8).
    fn meet_again(&mut self, now: Instant, peers: &mut Peers) {
        self.calls.retain(|call| now < call.until);
        // What there is no room for is wished on.
        while self.calls.len() < CALLS_MAX
            && let Some((peer, callee)) = peers.poll_wish()
        {
            self.calls
                .retain(|call| now < call.until && (call.peer != peer || !call.is_said));
            if self.calls.len() < CALLS_MAX
                && !self.calls.iter().any(|call| call.peer == peer)
                && let Some(meeting) = draw()
            {
                self.calls.push(Call {
                    peer,
                    callee,
                    meeting,
                    until: now + MEETING_TIME_MAX,
                    is_said: false,
                });
            }
        }
    }

    /// Processes what came from the rendezvous, and says what there is to say.
    pub(crate) fn settle(&mut self, now: Instant, peers: &mut Peers) {
        self.registration.settle(now);
        for address in self.registration.take_closed_contexts() {
            peers.fail_at(now, address, &CloseReason::NotRelayed);
        }
        // A call that came before we have a socket at the server could not be answered by all paths.
        while self.registration.is_ready()
            && let Some(message) = self.registration.hear(now)
        {
            self.take(now, peers, message);
        }
        self.meet_again(now, peers);
        let is_registered = self.registration.is_registered();
        self.has_told &= is_registered;
        if !is_registered {
            self.invitations.fail(InviteError::NotRegistered);
            self.finds.fail(InviterError::NotRegistered);
        }
        if is_registered && !self.has_told {
            let server = self.registration.server().map(CarrierKind::unmark);
            let addresses = server.map(|server| addresses_of(self.local, server, RENDEZVOUS_ADDRESSES_MAX));
            let own = addresses.as_ref().and_then(|addresses| addresses.first());
            let observed = self.registration.carrier().zip(self.observed);
            let observed = observed.map(|(carrier, observed)| (carrier, observed.ip()));
            if self.whereabouts.look(own.map(SocketAddr::ip), observed) {
                self.registration.network_changed(now);
            }
            let opened = [self.mapped, self.pinhole].into_iter().flatten();
            let mut told: Vec<SocketAddr> = opened.collect();
            for address in addresses.into_iter().flatten() {
                if told.len() < RENDEZVOUS_ADDRESSES_MAX && !told.contains(&address) {
                    told.push(address);
                }
            }
            self.has_told = self.registration.say(now, Message::Addresses(told));
        }
        self.meet_where_relayed_anew(peers);
        if self.has_told && self.registration.is_ready() {
            self.calls.retain(|call| now < call.until);
            for call in self.calls.iter_mut().filter(|call| !call.is_said) {
                call.is_said = self.registration.say(
                    now,
                    Message::Call {
                        callee: *call.callee.as_bytes(),
                        transaction: call.meeting.transaction,
                        key: call.meeting.key,
                    },
                );
            }
        }
        self.registration.settle(now);
    }

    fn take(&mut self, now: Instant, peers: &mut Peers, message: Message) {
        match message {
            Message::Observed(address) => {
                let former = self.observed.replace(address);
                if former.is_some_and(|former| former != address) {
                    // Also the machine's own ones may be others.
                    self.has_told = false;
                    peers.wish_all();
                }
            }
            Message::Called {
                caller,
                transaction,
                key,
                addresses,
                relayed,
            } => {
                let from = PeerId::from(caller);
                let meeting = Meeting { transaction, key };
                // A context that nobody uses would be asked for in vain, and the server counts the questions.
                if !peers.admits(from) || !peers.has_room_for_checks(now, from) {
                    return;
                }
                let usable = self.ways(peers, &addresses, relayed);
                if peers.send_checks(now, from, meeting, &usable) {
                    self.registration
                        .say(now, Message::Answer { caller, transaction });
                }
            }
            Message::Answered {
                transaction,
                callee,
                addresses,
                relayed,
            } => {
                if let Some(call) = self.call(transaction)
                    && *call.callee.as_bytes() == callee
                {
                    let usable = self.ways(peers, &addresses, relayed);
                    peers.add_addresses(now, call.peer, AddressSource::Rendezvous, &usable);
                }
            }
            Message::Unreachable { transaction, .. } => {
                if let Some(call) = self.call(transaction) {
                    peers.expect_no_more_addresses(now, call.peer, AddressSource::Rendezvous);
                }
            }
            Message::Invited { number } => self.invitations.answered(number.ok_or(InviteError::Refused)),
            Message::Found { peer } => self.finds.answered(Ok(peer.map(PeerId::from))),
            Message::Inviter { peer } => self.inviter = Some(PeerId::from(peer)),
            // A rendezvous says nothing else.
            Message::Addresses(_)
            | Message::Call { .. }
            | Message::Answer { .. }
            | Message::Invite
            | Message::Find { .. } => {}
        }
    }

    /// The call of a transaction that was heard of; it is over by that.
    fn call(&mut self, transaction: [u8; 12]) -> Option<Call> {
        let mut calls = self.calls.iter();
        let place = calls.position(|call| call.meeting.transaction == transaction)?;
        Some(self.calls.swap_remove(place))
    }

    /// Whoever we were relayed to knows another address of ours.
    fn meet_where_relayed_anew(&mut self, peers: &mut Peers) {
        if let Some(relayed) = self.registration.relayed_address()
            && self.relayed.replace(relayed) != Some(relayed)
        {
            peers.wish_all();
        }
    }

    /// Where a peer can be tried: at addresses that the socket can send to, and where the rendezvous relays for it.
    fn ways(
        &mut self,
        peers: &Peers,
        addresses: &[SocketAddr],
        relayed: Option<SocketAddr>,
    ) -> Vec<SocketAddr> {
        let mut ways = self.usable(addresses);
        if let Some(relayed) = relayed.filter(|relayed| is_relayed(*relayed)) {
            let mut opened = self.registration.open_context(relayed);
            if opened == Err(NoContext::TooMany) {
                let is_unused = |context: &SocketAddr| !peers.knows(*context);
                let unused: Vec<_> = self.registration.contexts().filter(is_unused).collect();
                for context in unused {
                    self.registration.close_context(context);
                }
                opened = self.registration.open_context(relayed);
            }
            if opened.is_ok() {
                ways.push(relayed);
            }
        }
        ways
    }

    /// Takes out of `outbox` what the rendezvous is to relay, and hands it over. Whether there was something.
    pub(crate) fn relay(&mut self, now: Instant, outbox: &mut Outbox) -> bool {
        let mut relays = false;
        for train in outbox
            .trains()
            .iter()
            .filter(|train| is_relayed(train.destination))
        {
            let packets = packet::segments(&train.bytes, train.segment_size);
            let packets = packets.filter(|packet| packet.len() <= RELAYED_PAYLOAD_MAX.into());
            self.registration.send_relayed(now, train.destination, packets);
            relays = true;
        }
        if relays {
            outbox.discard(|train| is_relayed(train.destination));
        }
        relays
    }

    /// Whether something that is to be relayed has not left yet.
    pub(crate) fn has_waiting(&self) -> bool {
        self.registration.has_waiting()
    }

    /// What was relayed for us.
    pub(crate) fn take_relayed(&mut self) -> Vec<RelayedTrain> {
        self.registration.take_relayed()
    }

    /// Addresses that the socket can send to.
    fn usable(&self, addresses: &[SocketAddr]) -> Vec<SocketAddr> {
        let is_usable = |address: &&SocketAddr| {
            let ip = address.ip();
            let family = self.local.is_ipv6() || ip.is_ipv4();
            family
                && !is_relayed(**address)
                && address.port() != 0
                && !ip.is_unspecified()
                && !ip.is_multicast()
        };
        addresses.iter().filter(is_usable).copied().collect()
    }
}

/// A meeting that nobody else knows.
fn draw() -> Option<Meeting> {
    let mut drawn = [0; 28];
    aws_lc_rs::rand::fill(&mut drawn).ok()?;
    let mut meeting = Meeting {
        transaction: [0; 12],
        key: [0; 16],
    };
    meeting.transaction.copy_from_slice(&drawn[..12]);
    meeting.key.copy_from_slice(&drawn[12..]);
    Some(meeting)
}
