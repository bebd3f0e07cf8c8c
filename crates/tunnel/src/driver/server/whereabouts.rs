//! Which shards have sessions for which of the clients' addresses.
//!
//! Packets whose session is on another shard ask here. The lock is one of its own, so that they wait for nothing but a
//! session that comes or goes.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{PoisonError, RwLock};

use tunnel_proto::Elsewhere;

/// By address: the shards that have sessions for it, one entry for each session.
#[derive(Debug, Default)]
pub(super) struct Whereabouts(RwLock<HashMap<IpAddr, Vec<usize>>>);

impl Whereabouts {
    /// A session with these addresses has begun on a shard.
    pub(super) fn arrived(&self, addresses: impl IntoIterator<Item = IpAddr>, shard: usize) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        for address in addresses {
            known.entry(address).or_default().push(shard);
        }
    }

    /// A session with these addresses has ended on a shard.
    pub(super) fn left(&self, addresses: &[IpAddr], shard: usize) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        for address in addresses {
            let Some(shards) = known.get_mut(address) else {
                continue;
            };
            if let Some(index) = shards.iter().position(|other| *other == shard) {
                shards.remove(index);
            }
            if shards.is_empty() {
                known.remove(address);
            }
        }
    }

    /// Which shard besides `own` takes the packets of a flow to this destination: the same one as long as its sessions
    /// live.
    pub(super) fn shard_for(&self, elsewhere: Elsewhere, own: usize) -> Option<usize> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let shards = known.get(&elsewhere.destination)?;
        let mut others = shards.iter().copied().filter(|shard| *shard != own);
        let index = elsewhere.flow.checked_rem(others.clone().count() as u64)?;
        others.nth(index as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        [10, 9, 0, last].into()
    }

    fn flow(last: u8, flow: u64) -> Elsewhere {
        Elsewhere {
            destination: address(last),
            flow,
        }
    }

    #[test]
    fn flows_spread_over_the_other_shards_that_have_a_session_and_stay_where_they_are() {
        let known = Whereabouts::default();
        for shard in [0, 1, 2] {
            known.arrived([address(2)], shard);
        }
        known.arrived([address(3)], 3);
        let found = |number| known.shard_for(flow(2, number), 1);
        assert_eq!((found(0), found(1), found(2)), (Some(0), Some(2), Some(0)));
        assert_eq!(found(7), found(7));
        // Without a session elsewhere there is nobody.
        assert_eq!(known.shard_for(flow(3, 0), 3), None);
        assert_eq!(known.shard_for(flow(4, 0), 1), None);
    }

    #[test]
    fn a_shard_is_known_until_its_last_session_for_an_address_has_ended() {
        let known = Whereabouts::default();
        known.arrived([address(2), address(3)], 0);
        known.arrived([address(2)], 0);
        known.left(&[address(2), address(3)], 0);
        assert_eq!(known.shard_for(flow(2, 0), 1), Some(0));
        assert_eq!(known.shard_for(flow(3, 0), 1), None);
        known.left(&[address(2)], 0);
        known.left(&[address(2)], 0);
        assert_eq!(known.shard_for(flow(2, 0), 1), None);
        assert!(known.0.read().unwrap().is_empty());
    }
}
