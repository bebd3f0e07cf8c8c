//! What a server relays for a guest has a bound: whoever is about to receive more is told at the start.

use std::time::Instant;

use files::Snapshot;
use tunnel_proto::limits::GUEST_BYTES_MAX;

use crate::limits::TRANSFER_RELAYED_TIME;
use crate::units;

/// Whether somebody has been told, or is to be.
#[derive(Debug)]
pub(super) struct Allowance {
    /// A guest that has not been told.
    is_to_be_told: bool,
    /// Since when the server relays, without a pause.
    relayed: Option<Instant>,
}

impl Allowance {
    pub(super) fn new(is_guest: bool) -> Self {
        Self {
            is_to_be_told: is_guest,
            relayed: None,
        }
    }

    /// What to tell, once: where all is known that is offered, more is to come than a guest is allowed, and no direct
    /// path has opened in the time that one takes.
    pub(super) fn look(&mut self, snapshot: &Snapshot, is_relayed: bool, now: Instant) -> Option<String> {
        if !is_relayed {
            self.relayed = None;
            return None;
        }
        let since = *self.relayed.get_or_insert(now);
        let left = snapshot.bytes_total.saturating_sub(snapshot.bytes_done);
        let is_too_much = snapshot.manifest_complete && left > GUEST_BYTES_MAX;
        let is_due = now.saturating_duration_since(since) >= TRANSFER_RELAYED_TIME;
        if !(self.is_to_be_told && is_due && is_too_much) {
            return None;
        }
        self.is_to_be_told = false;
        Some(format!(
            "{} are to come, and the server, through which they come, relays {} for a guest. What has come then is kept; with a \
             link of the same server (--rendezvous-file) more comes at once",
            units::bytes(left),
            units::bytes(GUEST_BYTES_MAX),
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_guest_is_told_once_that_more_is_to_come_than_its_server_relays() {
        let begun = Instant::now();
        let later = begun + TRANSFER_RELAYED_TIME;
        let mut snapshot = Snapshot::default();
        snapshot.bytes_total = 3 * GUEST_BYTES_MAX;
        let mut allowance = Allowance::new(true);
        assert_eq!(allowance.look(&snapshot, true, begun), None);
        // Not all is known yet, and then the path is direct for a moment.
        assert_eq!(allowance.look(&snapshot, true, later), None);
        snapshot.manifest_complete = true;
        assert_eq!(allowance.look(&snapshot, false, later), None);
        assert_eq!(allowance.look(&snapshot, true, later), None);
        let later = later + TRANSFER_RELAYED_TIME;
        let told = allowance.look(&snapshot, true, later).unwrap();
        assert!(
            told.starts_with("3.2 GB are to come") && told.contains("relays 1.1 GB for a guest"),
            "{told}"
        );
        assert_eq!(allowance.look(&snapshot, true, later), None);
    }

    #[test]
    fn neither_a_user_of_the_server_nor_a_guest_with_little_to_come_is_told() {
        let begun = Instant::now();
        let later = begun + Duration::from_secs(60);
        let mut snapshot = Snapshot::default();
        (snapshot.bytes_total, snapshot.manifest_complete) = (3 * GUEST_BYTES_MAX, true);
        let mut user = Allowance::new(false);
        let mut guest = Allowance::new(true);
        for now in [begun, later] {
            assert_eq!(user.look(&snapshot, true, now), None);
        }
        // Most of it is there.
        snapshot.bytes_done = 5 * GUEST_BYTES_MAX / 2;
        for now in [begun, later] {
            assert_eq!(guest.look(&snapshot, true, now), None);
        }
    }
}
