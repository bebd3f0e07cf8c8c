//! What belongs to no connection: new ones, cookies that come back, and packets that get a RST; and the account of
//! connections by what they are.

use std::net::IpAddr;
use std::time::Instant;

use packet::{Ecn, customer_prefix};

use super::{Event, Stack};
use crate::connection::{Connection, Reply, State};
use crate::headers::{Fields, Headers};
use crate::limits;
use crate::profile::Profile;
use crate::secret::Announced;
use crate::segment::{Flags, Segment};
use crate::sequence::Sequence;
use crate::tuple::Tuple;

/// What the stack counts of a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Facts {
    is_half_open: bool,
    is_quarantined: bool,
    is_open: bool,
    was_open: bool,
}

impl Stack {
    /// A segment of no connection: gives the one that a cookie restored, which is to take it.
    pub(super) fn receive_unknown(&mut self, now: Instant, tuple: Tuple, segment: &Segment) -> Option<usize> {
        let flags = segment.flags;
        if flags.has(Flags::RST) || !is_one_host(tuple.remote.ip()) || !is_one_host(tuple.local.ip()) {
            self.counters.unknown += 1;
            return None;
        }
        let is_listener = self.config.listen == Some(tuple.local.port());
        if is_listener && flags.has(Flags::SYN) && !flags.has(Flags::ACK) {
            self.receive_syn(now, tuple, segment);
            return None;
        }
        let restored = match is_listener && flags.has(Flags::ACK) && !flags.has(Flags::SYN) {
            true => self.restore(now, tuple, segment),
            false => None,
        };
        if restored.is_none() {
            self.counters.unknown += 1;
            self.reset_unknown(now, tuple, segment);
        }
        restored
    }

    /// FTCP-6, FTCP-7.
    fn receive_syn(&mut self, now: Instant, tuple: Tuple, segment: &Segment) {
        let ip = tuple.remote.ip();
        let of_prefix = self.accepted.get(&customer_prefix(ip)).copied().unwrap_or(0);
        if of_prefix >= limits::PREFIX_CONNECTIONS_MAX
            || self.table.is_full()
            || !self.syn_budget.take(now, ip)
        {
            self.counters.syns_ignored += 1;
            return;
        }
        if self.half_open >= limits::HALF_OPEN_MAX && self.config.profile == Profile::Linux {
            self.answer_by_cookie(now, tuple, segment);
            return;
        }
        if self.half_open >= limits::HALF_OPEN_MAX {
            self.counters.syns_ignored += 1;
            return;
        }
        let initial = self.initial_sequence(now, &tuple);
        let start = self.start(now, tuple, initial);
        let connection = Connection::accept(now, start, self.settings(), segment);
        let index = self.table.insert(connection);
        self.half_open += 1;
        self.transmit(index, Reply::SynAck);
        self.schedule(index);
    }

    fn answer_by_cookie(&mut self, now: Instant, tuple: Tuple, segment: &Segment) {
        let announced = Announced {
            mss: segment.options.mss,
            window_scale: segment.options.window_scale,
        };
        let cookie = self.secret.cookie(now, &tuple, segment.sequence, announced);
        let start = self.start(now, tuple, cookie);
        let mut connection = Connection::accept(now, start, self.settings(), segment);
        let headers = connection.write(Reply::SynAck);
        self.counters.cookies += 1;
        self.cookies_until = Some(now + 2 * limits::COOKIE_SLOT);
        self.push(None, tuple, headers);
    }

    /// The connection that the cookie in a segment stands for.
    fn restore(&mut self, now: Instant, tuple: Tuple, segment: &Segment) -> Option<usize> {
        self.cookies_until.filter(|until| now < *until)?;
        let behind = u32::MAX;
        let peer = segment.sequence.plus(behind);
        let cookie = segment.acknowledgement.plus(behind);
        let announced = self.secret.read_cookie(now, &tuple, peer, cookie)?;
        let of_prefix = self.accepted.get(&customer_prefix(tuple.remote.ip()));
        if self.table.is_full() || of_prefix.is_some_and(|count| *count >= limits::PREFIX_CONNECTIONS_MAX) {
            return None;
        }
        let start = self.start(now, tuple, cookie);
        let connection = Connection::restore(now, start, self.settings(), segment, announced);
        // Any network may come by a cookie; a place in the table is for who has the key.
        if !connection.may_open(segment) {
            self.counters.unproved += 1;
            return None;
        }
        let index = self.table.insert(connection);
        self.half_open += 1;
        Some(index)
    }

    /// FTCP-16; RFC 9293 section 3.10.7.1.
    fn reset_unknown(&mut self, now: Instant, tuple: Tuple, segment: &Segment) {
        if !self.reset_budget.take(now, tuple.remote.ip()) {
            return;
        }
        let (sequence, acknowledgement, flags) = if segment.flags.has(Flags::ACK) {
            (segment.acknowledgement, Sequence(0), Flags::RST)
        } else {
            (Sequence(0), segment.end(), Flags::RST.and(Flags::ACK))
        };
        let fields = Fields {
            tuple,
            sequence,
            acknowledgement,
            flags,
            window: 0,
            ip_id: 0,
            flow_label: self.secret.label(&tuple) >> 12,
            ecn: Ecn::NotEct,
            options: &[],
        };
        self.counters.resets_sent += 1;
        self.push(None, tuple, Headers::write(&fields, 0, 0));
    }

    /// Where a connection's numbers begin (FTCP-3).
    pub(super) fn initial_sequence(&mut self, now: Instant, tuple: &Tuple) -> Sequence {
        match self.config.profile {
            Profile::Linux => self.secret.initial_sequence(now, tuple),
            Profile::Phantun => Sequence(0),
        }
    }

    /// What is counted of a connection, before something happens to it.
    pub(super) fn facts(&self, index: usize) -> Facts {
        let connection = &self.table[index];
        Facts {
            is_half_open: connection.is_half_open(),
            is_quarantined: matches!(connection.state(), State::Quarantined { .. }),
            is_open: connection.state() == State::Established,
            was_open: connection.was_open(),
        }
    }

    /// Counts what changed, and tells of a connection that opened.
    pub(super) fn account(&mut self, index: usize, before: Facts) {
        let after = self.facts(index);
        if before == after {
            return;
        }
        self.half_open = self.half_open + usize::from(after.is_half_open) - usize::from(before.is_half_open);
        self.quarantined =
            self.quarantined + usize::from(after.is_quarantined) - usize::from(before.is_quarantined);
        let connection = &self.table[index];
        let (is_passive, tuple) = (connection.is_passive(), connection.tuple);
        let connection = self.table.id(index);
        let opens = after.was_open && !before.was_open;
        if is_passive && (before.is_open || opens) && before.is_open != after.is_open {
            self.count_accepted(tuple.remote.ip(), after.is_open);
        }
        if opens && is_passive {
            self.counters.accepted += 1;
            self.tell(Event::Accepted {
                connection,
                local: tuple.local,
                remote: tuple.remote,
            });
        } else if opens {
            self.counters.connected += 1;
            self.tell(Event::Connected { connection });
        }
    }

    /// Forgets a connection.
    pub(super) fn remove(&mut self, index: usize) {
        let before = self.facts(index);
        let entry = self.table.remove(index);
        let connection = entry.connection();
        self.half_open -= usize::from(before.is_half_open);
        self.quarantined -= usize::from(before.is_quarantined);
        if connection.is_passive() && before.is_open {
            self.count_accepted(connection.tuple.remote.ip(), false);
        }
        if let Some(at) = entry.scheduled {
            self.timers.remove(&(at, index));
        }
    }

    /// Sees that the connection's deadline is among the timers, or an earlier one.
    pub(super) fn schedule(&mut self, index: usize) {
        let deadline = self.table[index].deadline();
        let scheduled = self.table.entry(index).scheduled;
        let Some(deadline) = deadline.filter(|at| scheduled.is_none_or(|scheduled| *at < scheduled)) else {
            return;
        };
        if let Some(scheduled) = scheduled {
            self.timers.remove(&(scheduled, index));
        }
        self.timers.insert((deadline, index));
        self.table.entry(index).scheduled = Some(deadline);
    }

    fn count_accepted(&mut self, ip: IpAddr, is_more: bool) {
        let prefix = customer_prefix(ip);
        let count = self.accepted.entry(prefix).or_default();
        if is_more {
            *count += 1;
        } else {
            *count -= 1;
        }
        if *count == 0 {
            self.accepted.remove(&prefix);
        }
    }
}

/// Whether an address is one host's, so that it may be answered.
fn is_one_host(ip: IpAddr) -> bool {
    let is_broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    !ip.is_unspecified() && !ip.is_multicast() && !is_broadcast
}
