//! The handshakes that were taken over: whose datagrams with a long header are theirs (QR1-20), and whether these pass
//! (QR1-22). A client's first datagrams name the ID that it chose, and belong to it where they come from its address;
//! later ones name the server's, which is learnt from what is sent.

use std::collections::BTreeMap;
use std::time::Instant;

use packet::Path;

use crate::guard::Guard;
use crate::limits;
use crate::long_header::{ConnectionId, Part, destination_id, parts};

/// What becomes of a datagram of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filtered {
    /// QUIC reads it.
    Pass,
    /// It is forged.
    Drop,
}

/// By path and first destination connection ID.
type Key = (Path, ConnectionId);

#[derive(Debug)]
struct Handshake {
    guard: Guard,
    /// The client's ID.
    client_id: ConnectionId,
    /// The server's ID, once a packet with it was sent.
    server_id: Option<ConnectionId>,
    begun: Instant,
    number: u64,
}

/// Those of one shard.
#[derive(Debug, Default)]
pub struct Handshakes {
    handshakes: BTreeMap<Key, Handshake>,
    by_server_id: BTreeMap<ConnectionId, Key>,
    /// In the order in which they began.
    by_number: BTreeMap<u64, Key>,
    begun: u64,
}

impl Handshakes {
    /// A handshake is taken over that began with these connection IDs. Where there are too many, the oldest is
    /// forgotten.
    pub fn begin(&mut self, now: Instant, path: Path, ids: (&[u8], &[u8]), guard: Guard) {
        let key = (path, ConnectionId::new(ids.0));
        self.remove(key);
        if self.handshakes.len() >= limits::HANDSHAKES_MAX
            && let Some((_, oldest)) = self.by_number.first_key_value()
        {
            self.remove(*oldest);
        }
        let handshake = Handshake {
            guard,
            client_id: ConnectionId::new(ids.1),
            server_id: None,
            begun: now,
            number: self.begun,
        };
        self.by_number.insert(self.begun, key);
        self.begun += 1;
        self.handshakes.insert(key, handshake);
    }

    /// The connection is gone, or needs no filter any more: what comes late is a stranger's.
    pub fn end(&mut self, path: Path, destination_id: &[u8]) {
        self.remove((path, ConnectionId::new(destination_id)));
    }

    /// Takes note of a datagram that leaves towards a client.
    pub fn handle_sent(&mut self, path: Path, datagram: &[u8]) {
        let Some(Part::Long(packet)) = parts(datagram).next() else {
            return;
        };
        let (client_id, server_id) = (
            ConnectionId::new(packet.destination_id),
            ConnectionId::new(packet.source_id),
        );
        let of_path = self.handshakes.range_mut((path, ConnectionId::LEAST)..);
        let found = of_path
            .take_while(|(key, _)| key.0 == path)
            .find(|(_, handshake)| {
                handshake.client_id == client_id && handshake.server_id.is_none_or(|known| known == server_id)
            });
        if let Some((key, handshake)) = found {
            handshake.guard.handle_sent(datagram);
            if handshake.server_id.replace(server_id).is_none() {
                self.by_server_id.insert(server_id, *key);
            }
        }
    }

    /// What becomes of a datagram that begins with a long header; `None` where it belongs to no handshake.
    pub fn filter(&mut self, path: Path, datagram: &[u8]) -> Option<Filtered> {
        let id = ConnectionId::checked(destination_id(datagram)?)?;
        let key = match self.handshakes.contains_key(&(path, id)) {
            true => (path, id),
            false => *self.by_server_id.get(&id)?,
        };
        let handshake = self.handshakes.get_mut(&key)?;
        let passes = key.0 == path && handshake.guard.passes(datagram);
        Some(if passes { Filtered::Pass } else { Filtered::Drop })
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.handshakes.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.handshakes.is_empty()
    }

    /// When the oldest is forgotten.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let (_, oldest) = self.by_number.first_key_value()?;
        Some(self.handshakes.get(oldest)?.begun + limits::HANDSHAKE_GUARD_TIME)
    }

    /// Forgets those that are complete or gone by now.
    pub fn handle_timeout(&mut self, now: Instant) {
        while self.poll_timeout().is_some_and(|due| due <= now) {
            let Some((_, oldest)) = self.by_number.first_key_value() else {
                return;
            };
            self.remove(*oldest);
        }
    }

    fn remove(&mut self, key: Key) {
        if let Some(handshake) = self.handshakes.remove(&key) {
            self.by_number.remove(&handshake.number);
            if let Some(id) = handshake.server_id {
                self.by_server_id.remove(&id);
            }
        }
    }
}

#[cfg(test)]
mod tests;
