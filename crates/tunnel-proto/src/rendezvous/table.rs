//! Who is registered at a server, and what each is to be told. All shards share it. Only the mailboxes lie on a packet's
//! way, between bound sockets of different shards.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use packet::CarrierKind;
use quic::ConnectionKey;

use super::PeerKeyBytes;
use super::guests::Guests;
use super::message::{Message, Reason};
use super::service::Provider;
use super::sockets::{Handover, Mailbox, Relay, SocketEnd, relayed_address};
use crate::access::UserId;
use crate::engine::{Bucket, NoService, RequestId, ServiceProvider};
use crate::limits;
use crate::snapshot::RendezvousCounters;

/// Wakes a shard of this process, whose engine then settles.
pub type WakeShard = Box<dyn Fn(usize) + Send + Sync>;

/// The rendezvous of a server.
#[derive(Clone)]
pub struct Rendezvous(Arc<Shared>);

struct Shared {
    table: Mutex<Table>,
    /// Whether services of each shard are to be woken.
    has_news: Vec<AtomicBool>,
    /// What is handed over to each shard for its bound sockets.
    mailboxes: Vec<Mailbox>,
    /// Bytes that were taken to be relayed; beside the table, whose lock is not for packets.
    relayed_bytes: AtomicU64,
    /// Who may come without a link; `None`: nobody.
    guests: Option<Guests>,
    wake: WakeShard,
}

#[derive(Default)]
struct Table {
    registrations: HashMap<PeerKeyBytes, Registration>,
    by_user: BTreeMap<UserId, usize>,
    /// Numbers registrations, so that the end of a former one does not end the next.
    numbers: u64,
    /// Requests with news, by shard.
    news: Vec<VecDeque<RequestId>>,
    /// The registrations of each connection of a shard by number, so that the one that came last is the last one.
    by_connection: BTreeMap<(usize, ConnectionKey, u64), PeerKeyBytes>,
    /// Bound sockets.
    sockets: HashMap<SocketAddr, (Ticket, Place)>,
    /// Numbers them; none is given twice.
    socket_numbers: u64,
    /// Contexts of all of them.
    contexts: usize,
    /// The same by user.
    contexts_by_user: BTreeMap<UserId, usize>,
    /// What it has done; what is there at present is counted where it is asked for.
    counters: RendezvousCounters,
}

struct Registration {
    number: u64,
    place: Place,
    connection: ConnectionKey,
    user: UserId,
    observed: SocketAddr,
    addresses: Vec<SocketAddr>,
    /// Its bound socket.
    relayed: Option<SocketAddr>,
    outgoing: VecDeque<Message>,
    calls: Bucket,
}

impl Registration {
    /// Where it is reached: as seen from here first. In TCP's shape nobody else reaches it where it is seen.
    fn candidates(&self) -> Vec<SocketAddr> {
        let own = self.addresses.iter().filter(|address| **address != self.observed);
        let is_reached = CarrierKind::of(self.observed) == CarrierKind::Udp;
        let all = Some(&self.observed).filter(|_| is_reached).into_iter().chain(own);
        all.take(limits::RENDEZVOUS_ADDRESSES_MAX).copied().collect()
    }
}

/// Whose end of a request a registration is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) shard: usize,
    pub(super) request: RequestId,
}

/// A registration, as its service knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    pub(super) peer: PeerKeyBytes,
    pub(super) number: u64,
}

impl Rendezvous {
    /// Of a server with this many shards.
    #[must_use]
    pub fn new(shards: usize, wake: WakeShard) -> Self {
        Self::with_guests(shards, wake, None)
    }

    /// The same, whose users may invite guests, whom the server's authorizer asks [`Guests::authorize`] about.
    #[must_use]
    pub fn with_guests(shards: usize, wake: WakeShard, guests: Option<Guests>) -> Self {
        let table = Table {
            news: vec![VecDeque::new(); shards],
            ..Table::default()
        };
        Self(Arc::new(Shared {
            table: Mutex::new(table),
            has_news: (0..shards).map(|_| AtomicBool::new(false)).collect(),
            mailboxes: (0..shards).map(|_| Mailbox::default()).collect(),
            relayed_bytes: AtomicU64::new(0),
            guests,
            wake,
        }))
    }

    /// The service of one shard, for [`crate::Engine::serve`] with [`super::PROTOCOL`].
    ///
    /// # Panics
    /// Where there is no such shard.
    #[must_use]
    pub fn provider(&self, shard: usize) -> Box<dyn ServiceProvider> {
        assert!(
            shard < self.0.has_news.len(),
            "a shard is one of those that there are"
        );
        Box::new(Provider::new(self.clone(), shard))
    }

    /// The relay between peers on one shard, for [`crate::Engine::serve_relay`].
    ///
    /// # Panics
    /// Where there is no such shard.
    #[must_use]
    pub fn relay(&self, shard: usize) -> Relay {
        assert!(
            shard < self.0.mailboxes.len(),
            "a shard is one of those that there are"
        );
        Relay::new(self.clone(), shard)
    }

    /// What is there, and what was done.
    #[must_use]
    pub fn counters(&self) -> RendezvousCounters {
        let table = self.table();
        RendezvousCounters {
            registered: table.registrations.len() as u64,
            sockets: table.sockets.len() as u64,
            contexts: table.contexts as u64,
            relayed_bytes: self.0.relayed_bytes.load(Ordering::Relaxed),
            ..table.counters
        }
    }

    /// Payload of a peer is taken to be relayed.
    pub(super) fn count_relayed(&self, bytes: u64) {
        self.0.relayed_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A registration was refused before it could find room.
    pub(super) fn count_unproved(&self) {
        self.table().counters.unproved += 1;
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn guests(&self) -> Option<&Guests> {
        self.0.guests.as_ref()
    }

    pub(super) fn mailbox(&self, shard: usize) -> &Mailbox {
        &self.0.mailboxes[shard]
    }

    pub(super) fn wake(&self, shard: usize) {
        (self.0.wake)(shard);
    }

    /// A peer is there from here on; one with the same key was replaced.
    pub(super) fn register(
        &self,
        peer: PeerKeyBytes,
        user: UserId,
        place: Place,
        connection: ConnectionKey,
        observed: SocketAddr,
    ) -> Result<Ticket, NoService> {
        let mut table = self.table();
        let of_user = table.by_user.get(&user).copied().unwrap_or(0);
        let replaces = table
            .registrations
            .get(&peer)
            .is_some_and(|former| former.user == user);
        let is_full = table.registrations.len() >= limits::RENDEZVOUS_PEERS_MAX
            || of_user >= limits::RENDEZVOUS_PEERS_PER_USER_MAX;
        if is_full && !replaces {
            table.counters.over_limit += 1;
            return Err(NoService::Unavailable);
        }
        let former = self.remove(&mut table, &peer);
        table.numbers += 1;
        table.counters.registrations += 1;
        let number = table.numbers;
        let ticket = Ticket { peer, number };
        let in_order = (place.shard, connection, number);
        table.by_connection.insert(in_order, peer);
        *table.by_user.entry(user).or_default() += 1;
        let registration = Registration {
            number,
            place,
            connection,
            user,
            observed,
            addresses: Vec::new(),
            relayed: None,
            outgoing: VecDeque::from([Message::Observed(observed)]),
            calls: Bucket::new(limits::RENDEZVOUS_CALLS_BURST, limits::RENDEZVOUS_CALL_INTERVAL),
        };
        table.registrations.insert(peer, registration);
        if let Some(former) = former {
            self.tell_shard(&mut table, former.place);
        }
        Ok(ticket)
    }

    /// A guest learns whose number it came by (RDV-17).
    pub(super) fn tell_inviter(&self, ticket: Ticket, inviter: PeerKeyBytes) {
        let mut table = self.table();
        // It has just come, and there is room.
        let _ = self.tell(&mut table, &ticket.peer, Message::Inviter { peer: inviter });
    }

    /// The request of a registration has ended.
    pub(super) fn leave(&self, ticket: Ticket) {
        let mut table = self.table();
        if table.of(ticket).is_some() {
            self.remove(&mut table, &ticket.peer);
        }
    }

    /// Takes a registration out, and ends its socket.
    fn remove(&self, table: &mut Table, peer: &PeerKeyBytes) -> Option<Registration> {
        let removed = table.remove(peer)?;
        if let Some(address) = removed.relayed
            && let Some((_, place)) = table.sockets.remove(&address)
        {
            let socket = SocketEnd { address, place };
            self.hand_over(place.shard, vec![Handover::Over { socket }]);
        }
        Some(removed)
    }

    /// A socket for the peer whose registration came last on this connection: one for each (RDV-10).
    pub(super) fn bind(
        &self,
        user: UserId,
        connection: ConnectionKey,
        place: Place,
    ) -> Result<SocketAddr, NoService> {
        let mut table = self.table();
        let ticket = table.last_of(place.shard, connection);
        let ticket = ticket.ok_or(NoService::Forbidden)?;
        let address = relayed_address(table.socket_numbers + 1);
        let registration = table.of(ticket).filter(|registration| registration.user == user);
        let registration = registration.ok_or(NoService::Forbidden)?;
        if registration.relayed.is_some() {
            return Err(NoService::Unavailable);
        }
        registration.relayed = Some(address);
        table.socket_numbers += 1;
        table.sockets.insert(address, (ticket, place));
        Ok(address)
    }

    /// The request of a socket has ended.
    pub(super) fn unbind(&self, socket: SocketEnd) {
        let mut table = self.table();
        let removed = table.sockets.remove(&socket.address);
        if let Some((ticket, _)) = removed
            && let Some(registration) = table.of(ticket)
        {
            registration.relayed = None;
        }
    }

    /// Where the socket with this address is; a context of this user to it has a place from here on.
    pub(super) fn take_context(&self, user: UserId, address: SocketAddr) -> Option<Place> {
        let mut table = self.table();
        let (_, place) = table.sockets.get(&address).copied()?;
        let of_user = table.contexts_by_user.get(&user).copied().unwrap_or(0);
        let has_room =
            table.contexts < limits::RELAY_CONTEXTS_MAX && of_user < limits::RELAY_CONTEXTS_PER_USER_MAX;
        has_room.then(|| {
            table.contexts += 1;
            table.contexts_by_user.insert(user, of_user + 1);
            place
        })
    }

    pub(super) fn give_contexts_back(&self, user: UserId, contexts: usize) {
        if contexts == 0 {
            return;
        }
        let mut table = self.table();
        table.contexts -= contexts;
        if let Some(of_user) = table.contexts_by_user.get_mut(&user) {
            *of_user -= contexts;
            if *of_user == 0 {
                table.contexts_by_user.remove(&user);
            }
        }
    }

    /// The packets of a registered peer come from another address.
    pub(super) fn observe(&self, ticket: Ticket, observed: SocketAddr) {
        let mut table = self.table();
        let Some(registration) = table.of(ticket) else {
            return;
        };
        registration.observed = observed;
        // One that waits is outdated, so that no more than one waits beside the others.
        let outgoing = &mut registration.outgoing;
        outgoing.retain(|message| !matches!(message, Message::Observed(_)));
        outgoing.push_back(Message::Observed(observed));
    }

    /// What a registration is to be told next; an error where another one has replaced it.
    pub(super) fn next_message(&self, ticket: Ticket) -> Result<Option<Message>, Replaced> {
        let mut table = self.table();
        let registration = table.of(ticket).ok_or(Replaced)?;
        Ok(registration.outgoing.pop_front())
    }

    /// A registration says something. Whether it may.
    pub(super) fn take(&self, now: Instant, ticket: Ticket, message: Message) -> bool {
        let mut table = self.table();
        let Some(own) = table.of(ticket) else {
            return true;
        };
        match message {
            Message::Addresses(addresses) => own.addresses = addresses,
            Message::Call {
                callee,
                transaction,
                key,
            } => {
                let is_allowed = own.calls.take(now);
                let called = Message::Called {
                    caller: ticket.peer,
                    transaction,
                    key,
                    addresses: own.candidates(),
                    relayed: own.relayed,
                };
                let refusal = match is_allowed && callee != ticket.peer {
                    true => self.tell(&mut table, &callee, called).err(),
                    false => Some(Reason::Busy),
                };
                table.counters.calls += 1;
                match refusal {
                    Some(Reason::Absent) => table.counters.absent += 1,
                    Some(_) => table.counters.busy += 1,
                    None => {}
                }
                if let Some(reason) = refusal {
                    let unreachable = Message::Unreachable { transaction, reason };
                    // Where it takes nothing, it asks too much.
                    let _ = self.tell(&mut table, &ticket.peer, unreachable);
                }
            }
            Message::Answer { caller, transaction } if own.calls.take(now) => {
                let answered = Message::Answered {
                    callee: ticket.peer,
                    transaction,
                    addresses: own.candidates(),
                    relayed: own.relayed,
                };
                table.counters.answers += 1;
                // The caller may have gone; whom nobody called tells its addresses to whoever it likes.
                let _ = self.tell(&mut table, &caller, answered);
            }
            Message::Invite => {
                let is_allowed = own.calls.take(now);
                let inviter = own.user;
                let guests = self.0.guests.as_ref().filter(|_| is_allowed);
                let is_there = |peer: &PeerKeyBytes| table.registrations.contains_key(peer);
                let number = guests.and_then(|guests| guests.invite(now, inviter, ticket.peer, is_there));
                // Where it takes nothing, it asks too much.
                let _ = self.tell(&mut table, &ticket.peer, Message::Invited { number });
            }
            Message::Find { number } => {
                let is_allowed = own.calls.take(now);
                let user = own.user;
                let guests = self.0.guests.as_ref().filter(|_| is_allowed);
                let is_there = |peer: &PeerKeyBytes| table.registrations.contains_key(peer);
                let peer = guests.and_then(|guests| guests.find(now, user, number, is_there));
                // Where it takes nothing, it asks too much.
                let _ = self.tell(&mut table, &ticket.peer, Message::Found { peer });
            }
            // It answers more than anybody is called: the caller waits in vain.
            Message::Answer { .. } => {}
            Message::Observed(_)
            | Message::Called { .. }
            | Message::Answered { .. }
            | Message::Invited { .. }
            | Message::Inviter { .. }
            | Message::Found { .. }
            | Message::Unreachable { .. } => return false,
        }
        true
    }

    fn tell(&self, table: &mut Table, peer: &PeerKeyBytes, message: Message) -> Result<(), Reason> {
        let registration = table.registrations.get_mut(peer).ok_or(Reason::Absent)?;
        if registration.outgoing.len() >= limits::RENDEZVOUS_WAITING_MAX {
            return Err(Reason::Busy);
        }
        registration.outgoing.push_back(message);
        let place = registration.place;
        self.tell_shard(table, place);
        Ok(())
    }

    fn tell_shard(&self, table: &mut Table, place: Place) {
        let news = &mut table.news[place.shard];
        if !news.contains(&place.request) {
            news.push_back(place.request);
        }
        if !self.0.has_news[place.shard].swap(true, Ordering::SeqCst) {
            (self.0.wake)(place.shard);
        }
    }

    /// The next request of a shard that has news.
    pub(super) fn poll_news(&self, shard: usize) -> Option<RequestId> {
        if !self.0.has_news[shard].load(Ordering::SeqCst) {
            return None;
        }
        let mut table = self.table();
        let request = table.news[shard].pop_front();
        if request.is_none() {
            self.0.has_news[shard].store(false, Ordering::SeqCst);
        }
        request
    }
}

impl fmt::Debug for Rendezvous {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Rendezvous").finish_non_exhaustive()
    }
}

/// Another registration has the peer's place.
#[derive(Debug)]
pub(super) struct Replaced;

impl Table {
    fn of(&mut self, ticket: Ticket) -> Option<&mut Registration> {
        let registration = self.registrations.get_mut(&ticket.peer)?;
        (registration.number == ticket.number).then_some(registration)
    }

    /// The registration that came last of those that are there on a connection.
    fn last_of(&self, shard: usize, connection: ConnectionKey) -> Option<Ticket> {
        let numbers = (shard, connection, 0)..=(shard, connection, u64::MAX);
        let (&(_, _, number), &peer) = self.by_connection.range(numbers).next_back()?;
        Some(Ticket { peer, number })
    }

    fn remove(&mut self, peer: &PeerKeyBytes) -> Option<Registration> {
        let removed = self.registrations.remove(peer)?;
        let in_order = (removed.place.shard, removed.connection, removed.number);
        self.by_connection.remove(&in_order);
        if let Some(count) = self.by_user.get_mut(&removed.user) {
            *count -= 1;
            if *count == 0 {
                self.by_user.remove(&removed.user);
            }
        }
        Some(removed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RDV-12.
    #[test]
    fn contexts_of_a_user_and_of_all_are_bounded_and_their_places_come_back() {
        let rendezvous = Rendezvous::new(1, Box::new(|_| {}));
        let address = relayed_address(1);
        let user = |number: usize| UserId([number as u8; 16]);
        assert_eq!(rendezvous.take_context(user(1), address), None);
        let ticket = Ticket {
            peer: [1; 32],
            number: 1,
        };
        let place = Place {
            shard: 0,
            request: RequestId::from_index(0),
        };
        rendezvous.table().sockets.insert(address, (ticket, place));
        let users = limits::RELAY_CONTEXTS_MAX / limits::RELAY_CONTEXTS_PER_USER_MAX;
        for number in 0..users {
            for _ in 0..limits::RELAY_CONTEXTS_PER_USER_MAX {
                assert_eq!(rendezvous.take_context(user(number), address), Some(place));
            }
            assert_eq!(rendezvous.take_context(user(number), address), None);
        }
        // Another one has none yet, and there is no room; that of the first one is its, and then anybody's.
        assert_eq!(rendezvous.take_context(user(users), address), None);
        rendezvous.give_contexts_back(user(0), 2);
        assert_eq!(rendezvous.take_context(user(0), address), Some(place));
        assert_eq!(rendezvous.take_context(user(users), address), Some(place));
        assert_eq!(rendezvous.take_context(user(0), address), None);
        rendezvous.give_contexts_back(user(users), 1);
        assert!(!rendezvous.table().contexts_by_user.contains_key(&user(users)));
    }
}
