//! What a server relays for a guest has a bound: whoever is about to receive more is told at the start. Only the server
//! knows what earlier commands by the same code have used of it.

use std::time::Instant;

use files::Snapshot;
use tunnel_proto::limits::GUEST_BYTES_MAX;

use crate::limits::TRANSFER_RELAYED_TIME;
use crate::units;

/// What a command has used of it over all its connections, and whether its user has been told.
#[derive(Debug)]
pub(super) struct Allowance {
    /// What comes goes to standard output, where nothing can be gone on with.
    has_data: bool,
    is_to_be_told: bool,
    is_guest: bool,
    /// Bytes that the server has relayed.
    used: u64,
    /// Bytes that the connection has brought by any way.
    brought: u64,
    /// Since when the server relays, without a pause.
    relayed: Option<Instant>,
}

impl Allowance {
    /// Of a command that brings all that is offered, `has_data` to standard output, or only `looks`.
    pub(super) fn new(has_data: bool, looks: bool) -> Self {
        Self {
            has_data,
            is_to_be_told: !looks,
            is_guest: false,
            used: 0,
            brought: 0,
            relayed: None,
        }
    }

    /// The command has a connection, as a guest of the server or otherwise.
    pub(super) fn begin(&mut self, is_guest: bool) {
        self.is_guest = is_guest;
        self.brought = 0;
        self.relayed = None;
    }

    /// What to tell, once: where all is known that is offered, more is to come than half of what a guest is still
    /// allowed, which an earlier command may have used, and no direct path has opened in the time that one takes.
    pub(super) fn look(&mut self, snapshot: &Snapshot, is_relayed: bool, now: Instant) -> Option<String> {
        let before = std::mem::replace(&mut self.brought, snapshot.bytes_wire);
        if !is_relayed {
            self.relayed = None;
            return None;
        }
        let since = *self.relayed.get_or_insert(now);
        self.used += snapshot.bytes_wire.saturating_sub(before);
        let left = snapshot.bytes_total.saturating_sub(snapshot.bytes_done);
        let allowed = GUEST_BYTES_MAX.saturating_sub(self.used);
        let is_too_much = snapshot.manifest_complete && left > allowed / 2;
        let is_due = now.saturating_duration_since(since) >= TRANSFER_RELAYED_TIME;
        if !(self.is_to_be_told && self.is_guest && is_due && is_too_much) {
            return None;
        }
        self.is_to_be_told = false;
        let what_then = match self.has_data {
            true => {
                "Should that end it, what has gone to standard output cannot be gone on with: with a link of the same \
                 server (--rendezvous-file) all comes"
            }
            false => {
                "Should that end it, what has come is kept; with a link of the same server (--rendezvous-file) more comes \
                 at once"
            }
        };
        Some(format!(
            "{} are to come, and the server, through which they come, relays at most {} more for a guest, less what earlier \
             commands by the code have used. {what_then}",
            units::bytes(left),
            units::bytes(allowed),
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
        let mut allowance = Allowance::new(false, false);
        allowance.begin(true);
        assert_eq!(allowance.look(&snapshot, true, begun), None);
        // Not all is known yet, and then the path is direct for a moment.
        assert_eq!(allowance.look(&snapshot, true, later), None);
        snapshot.manifest_complete = true;
        assert_eq!(allowance.look(&snapshot, false, later), None);
        assert_eq!(allowance.look(&snapshot, true, later), None);
        let later = later + TRANSFER_RELAYED_TIME;
        let told = allowance.look(&snapshot, true, later).unwrap();
        assert!(
            told.starts_with("3.2 GB are to come")
                && told.contains("relays at most 1.1 GB more for a guest, less what earlier commands")
                && told.ends_with("more comes at once"),
            "{told}"
        );
        // Nor by another connection.
        for _ in 0..2 {
            assert_eq!(allowance.look(&snapshot, true, later), None);
            assert_eq!(
                allowance.look(&snapshot, true, later + TRANSFER_RELAYED_TIME),
                None
            );
            allowance.begin(true);
        }
    }

    #[test]
    fn what_the_server_has_relayed_by_earlier_connections_counts_and_nothing_else_does() {
        let begun = Instant::now();
        let later = begun + TRANSFER_RELAYED_TIME;
        let mut snapshot = Snapshot::default();
        // An earlier command may have used half of what a guest has, and of this, that is half of it.
        (snapshot.bytes_total, snapshot.manifest_complete) = (GUEST_BYTES_MAX / 2, true);
        let mut allowance = Allowance::new(true, false);
        for (is_relayed, expected) in [(false, false), (true, false), (true, true)] {
            allowance.begin(true);
            (snapshot.bytes_wire, snapshot.bytes_done) = (0, 0);
            let told = [begun, later].map(|now| allowance.look(&snapshot, is_relayed, now));
            assert_eq!(told[1].is_some(), expected, "{told:?}");
            if let [None, Some(told)] = told {
                assert!(
                    told.contains("relays at most 429 MB more for a guest") && told.ends_with("all comes"),
                    "{told}"
                );
            }
            (snapshot.bytes_wire, snapshot.bytes_done) = (GUEST_BYTES_MAX / 5 * 3, snapshot.bytes_total);
            assert_eq!(allowance.look(&snapshot, is_relayed, later), None);
        }
    }

    #[test]
    fn neither_a_user_of_the_server_nor_a_guest_who_looks_or_with_little_to_come_is_told() {
        let begun = Instant::now();
        let later = begun + Duration::from_secs(60);
        let mut snapshot = Snapshot::default();
        (snapshot.bytes_total, snapshot.manifest_complete) = (3 * GUEST_BYTES_MAX, true);
        let mut user = Allowance::new(false, false);
        let mut looker = Allowance::new(false, true);
        looker.begin(true);
        for now in [begun, later] {
            assert_eq!(user.look(&snapshot, true, now), None);
            assert_eq!(looker.look(&snapshot, true, now), None);
        }
        let mut guest = Allowance::new(false, false);
        guest.begin(true);
        // Most of it is there.
        snapshot.bytes_done = 5 * GUEST_BYTES_MAX / 2;
        for now in [begun, later] {
            assert_eq!(guest.look(&snapshot, true, now), None);
        }
    }
}
