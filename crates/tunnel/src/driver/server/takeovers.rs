//! Which clients have started anew, for the shards that still have sessions of their earlier runs (SESSION-6).
//!
//! A client that took its lease up on one shard may have left sessions on others, and packets would go on to them. So
//! what the other shards are to end is kept here until they have: it does not compete for room with packets.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tunnel_proto::{ClientIdentity, Owner};

#[derive(Debug)]
pub(super) struct Takeovers {
    /// By shard: clients whose earlier runs it is to end, each with its latest run.
    outstanding: Mutex<Vec<HashMap<ClientIdentity, Owner>>>,
    /// By shard: whether there may be some. Shards look whenever they are woken, most often for packets.
    has_some: Vec<AtomicBool>,
}

impl Takeovers {
    pub(super) fn new(shards: usize) -> Self {
        Self {
            outstanding: Mutex::new(vec![HashMap::new(); shards]),
            has_some: (0..shards).map(|_| AtomicBool::new(false)).collect(),
        }
    }

    /// A session of this run has begun on a shard, and those of other runs are to end on all others. The run that
    /// begins last counts, whichever shard it is on.
    pub(super) fn begin(&self, owner: Owner, shard: usize) {
        for (index, outstanding) in self.lock().iter_mut().enumerate() {
            if index == shard {
                outstanding.remove(&owner.client);
            } else {
                outstanding.insert(owner.client, owner);
                self.has_some[index].store(true, Ordering::Release);
            }
        }
    }

    /// The clients whose earlier runs this shard is to end now.
    pub(super) fn take(&self, shard: usize) -> Vec<Owner> {
        if !self.has_some[shard].swap(false, Ordering::Acquire) {
            return Vec::new();
        }
        let outstanding = &mut self.lock()[shard];
        outstanding.drain().map(|(_, owner)| owner).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<HashMap<ClientIdentity, Owner>>> {
        // Each call leaves it whole.
        self.outstanding.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tunnel_proto::UserId;
    use tunnel_proto::limits::LEASES_MAX;

    use super::*;

    fn owner(client: u16, run: u32) -> Owner {
        let mut name = [0; 16];
        name[..2].copy_from_slice(&client.to_be_bytes());
        Owner {
            client: ClientIdentity::Named(UserId::OWNER, name),
            run: Some(run),
        }
    }

    #[test]
    fn all_other_shards_hear_of_a_run_once_however_many_clients_begin_at_once() {
        let takeovers = Takeovers::new(3);
        for client in 0..LEASES_MAX as u16 {
            takeovers.begin(owner(client, 1), 0);
        }
        for shard in [1, 2] {
            assert_eq!(takeovers.take(shard).len(), LEASES_MAX);
            assert_eq!(takeovers.take(shard), []);
        }
        assert_eq!(takeovers.take(0), []);
    }

    #[test]
    fn the_run_that_begins_last_is_never_ended_for_an_earlier_one() {
        let takeovers = Takeovers::new(2);
        takeovers.begin(owner(7, 1), 0);
        takeovers.begin(owner(7, 2), 0);
        assert_eq!(takeovers.take(1), [owner(7, 2)]);
        // The other shard has not looked yet when a later run begins on it.
        takeovers.begin(owner(7, 3), 0);
        takeovers.begin(owner(7, 4), 1);
        assert_eq!(takeovers.take(1), []);
        assert_eq!(takeovers.take(0), [owner(7, 4)]);
    }
}
