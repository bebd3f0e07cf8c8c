//! Which destinations are this machine's own. A raw socket at a wildcard sees what passes through as well.

use std::io;
use std::net::IpAddr;
use std::time::Instant;

use host::{Network, Prefix};

use crate::limits::{LOCALS_STALE, LOCALS_TIME};

/// The kernel's list, as it was.
pub(crate) struct Locals {
    network: Network,
    listed: Option<Instant>,
    prefixes: Vec<Prefix>,
}

impl Locals {
    /// # Errors
    /// The system has no more sockets.
    pub(crate) fn open() -> io::Result<Self> {
        let network = Network::open().map_err(|error| io::Error::new(error.kind(), error))?;
        Ok(Self {
            network,
            listed: None,
            prefixes: Vec::new(),
        })
    }

    /// Whether packets to `address` are for this machine. Where the kernel does not say, they are not.
    pub(crate) fn is_own(&mut self, now: Instant, address: IpAddr) -> bool {
        let age = self.listed.map(|listed| now.saturating_duration_since(listed));
        let is_known = self.contains(address);
        // Others pass by all the time, and a new address has to be found soon.
        let patience = if is_known { LOCALS_STALE } else { LOCALS_TIME };
        if age.is_some_and(|age| age < patience) {
            return is_known;
        }
        self.listed = Some(now);
        self.prefixes = self.network.local_destinations().unwrap_or_default();
        self.contains(address)
    }

    fn contains(&self, address: IpAddr) -> bool {
        self.prefixes.iter().any(|prefix| prefix.contains(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_through_is_not_ours_and_the_list_is_read_again() {
        let (mut locals, now) = (Locals::open().unwrap(), Instant::now());
        assert!(locals.is_own(now, [127, 0, 0, 1].into()));
        assert!(!locals.is_own(now, [192, 0, 2, 1].into()));
        // As if the address were new.
        locals.prefixes.clear();
        assert!(!locals.is_own(now, [127, 0, 0, 1].into()));
        assert!(locals.is_own(now + LOCALS_TIME, [127, 0, 0, 1].into()));
        // As if it were gone.
        locals.prefixes.push(Prefix::host([192, 0, 2, 1].into()));
        let later = now + 2 * LOCALS_TIME;
        assert!(locals.is_own(later, [192, 0, 2, 1].into()));
        assert!(!locals.is_own(later + LOCALS_STALE, [192, 0, 2, 1].into()));
    }
}
