//! Sending: how messages become kernel messages, and how each of the kernel's results is handled.
//!
//! A cursor walks over the segments of all messages. What follows it is planned as units, each a lone datagram or a
//! GSO train, and offered in one call. The kernel takes some leading units and answers with an error only when it
//! took none, so an error always concerns the first unit:
//!
//! - *No room* (`EAGAIN`, `ENOBUFS`): stop, tell the caller where.
//! - *Maybe of an earlier datagram* (connected sockets report ICMP errors to whoever calls next): try once more.
//! - *A train refused* (`EIO`, `EINVAL`, `EMSGSIZE`): plan that message as lone datagrams from the cursor on. When
//!   the kernel takes one, it was GSO that failed: the path does without for a while. When it takes none, they were
//!   too large anyway and the path keeps GSO.
//! - *Anything else*: the unit is dropped and counted, the rest goes on.

use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use crate::datagram::{IoStats, Outgoing, SendDrops, SendOutcome};
use crate::limits::{GSO_BACKOFF, SEND_UNITS_MAX, STEPPED_DOWN_PATHS_MAX};

/// What the kernel takes or refuses as a whole: a part of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unit {
    pub(crate) message: usize,
    pub(crate) offset: usize,
    pub(crate) len: usize,
    /// Size of the datagrams of a train; 0 for a lone one.
    pub(crate) segment_size: u16,
    pub(crate) segments: usize,
}

impl Unit {
    pub(crate) fn is_train(&self) -> bool {
        self.segment_size != 0
    }

    /// Its bytes.
    pub(crate) fn of<'a>(&self, messages: &[Outgoing<'a>]) -> &'a [u8] {
        &messages[self.message].payload[self.offset..self.offset + self.len]
    }
}

/// The first segment that is not disposed of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cursor {
    message: usize,
    offset: usize,
}

impl Cursor {
    /// Goes on by `bytes` of the present message, to the next one at its end.
    fn advance(&mut self, messages: &[Outgoing<'_>], bytes: usize) {
        self.offset += bytes;
        if self.offset >= messages[self.message].payload.len() {
            *self = Self {
                message: self.message + 1,
                offset: 0,
            };
        }
    }
}

/// The sending side of one socket, apart from the system call.
pub(crate) struct Sender {
    gso_segments_max: usize,
    train_bytes_max: usize,
    connected: bool,
    units: Vec<Unit>,
    /// Paths without GSO, by destination (`None`: where the socket is connected to), oldest first.
    stepped_down: Vec<(Option<SocketAddr>, Instant)>,
}

impl Sender {
    pub(crate) fn new(gso_segments_max: usize, train_bytes_max: usize, connected: bool) -> Self {
        Self {
            gso_segments_max,
            train_bytes_max,
            connected,
            units: Vec::new(),
            stepped_down: Vec::new(),
        }
    }

    /// No train has more bytes from here on.
    pub(crate) fn limit_trains(&mut self, bytes_max: usize) {
        self.train_bytes_max = bytes_max;
    }

    /// Sends `messages` through `submit`, which offers units to the kernel and returns how many it took.
    pub(crate) fn send(
        &mut self,
        messages: &[Outgoing<'_>],
        stats: &mut IoStats,
        mut submit: impl FnMut(&[Unit]) -> io::Result<usize>,
    ) -> SendOutcome {
        let mut outcome = SendOutcome::default();
        let mut cursor = Cursor::default();
        let mut retried = None;
        let mut split = None;
        self.forget_expired();
        while cursor.message < messages.len() {
            self.plan(messages, cursor, split);
            stats.sends += 1;
            let first = self.units[0];
            let errno = match submit(&self.units) {
                Ok(taken) => {
                    stats.stale_errors += u64::from(retried.take() == Some(cursor));
                    if split == Some(first.message) {
                        split = None;
                        // A shorter last datagram that passes where the full ones were too large shows nothing.
                        if first.len >= messages[first.message].stride() {
                            self.step_down(messages[first.message].destination, stats);
                        }
                    }
                    let sent_before = stats.segments_sent;
                    for unit in &self.units[..taken] {
                        outcome.segments += unit.segments as u64;
                        stats.bytes_sent += unit.len as u64;
                        stats.gso_messages += u64::from(unit.is_train());
                        stats.segments_sent += unit.segments as u64;
                        cursor.advance(messages, unit.len);
                    }
                    stats.messages_sent += taken as u64;
                    stats.send_batches.observe(stats.segments_sent - sent_before);
                    continue;
                }
                Err(error) => error.raw_os_error().unwrap_or(libc::EIO),
            };
            match errno {
                libc::EINTR => {}
                libc::EAGAIN | libc::ENOBUFS => {
                    outcome.blocked = true;
                    stats.would_block += 1;
                    break;
                }
                _ if self.connected && may_be_stale(errno) && retried != Some(cursor) => {
                    retried = Some(cursor);
                }
                libc::EIO | libc::EINVAL | libc::EMSGSIZE if first.is_train() => {
                    split = Some(first.message);
                    stats.split_resends += 1;
                }
                _ => {
                    let (segments, bytes) = condemned(&messages[first.message], first, errno);
                    *reason(&mut outcome.dropped, errno) += segments as u64;
                    cursor.advance(messages, bytes);
                }
            }
        }
        outcome.messages = cursor.message;
        outcome.partial_segments = match messages.get(cursor.message) {
            Some(message) => cursor.offset / message.stride(),
            None => 0,
        };
        outcome
    }

    /// Cuts what follows `cursor` into units; message `split` goes without GSO.
    fn plan(&mut self, messages: &[Outgoing<'_>], mut cursor: Cursor, split: Option<usize>) {
        self.units.clear();
        self.units.reserve_exact(1);
        while let Some(message) = messages.get(cursor.message)
            && self.units.len() < SEND_UNITS_MAX
        {
            let stride = message.stride();
            let gso = split != Some(cursor.message) && !self.is_stepped_down(message.destination);
            let most = if gso {
                (self.train_bytes_max / stride).clamp(1, self.gso_segments_max)
            } else {
                1
            };
            let len = (message.payload.len() - cursor.offset).min(stride * most);
            // A train of two has a stride below half of a train's bytes, which fits 16 bits.
            let segment_size = if len > stride { stride as u16 } else { 0 };
            let segments = len.div_ceil(stride).max(1);
            self.units.push(Unit {
                message: cursor.message,
                offset: cursor.offset,
                len,
                segment_size,
                segments,
            });
            cursor.advance(messages, len);
        }
    }

    fn is_stepped_down(&self, path: Option<SocketAddr>) -> bool {
        self.stepped_down.iter().any(|(other, _)| *other == path)
    }

    fn step_down(&mut self, path: Option<SocketAddr>, stats: &mut IoStats) {
        stats.gso_step_downs += 1;
        if self.stepped_down.len() >= STEPPED_DOWN_PATHS_MAX {
            self.stepped_down.remove(0);
        }
        self.stepped_down.push((path, Instant::now() + GSO_BACKOFF));
    }

    fn forget_expired(&mut self) {
        if !self.stepped_down.is_empty() {
            let now = Instant::now();
            self.stepped_down.retain(|(_, until)| *until > now);
        }
    }
}

/// Whether a connected socket may report this error on behalf of an earlier datagram (ICMP).
fn may_be_stale(errno: i32) -> bool {
    matches!(
        errno,
        libc::ECONNREFUSED
            | libc::EHOSTUNREACH
            | libc::ENETUNREACH
            | libc::EMSGSIZE
            | libc::EACCES
            | libc::EPROTO
            | libc::ENOPROTOOPT
            | libc::EOPNOTSUPP
            | libc::EHOSTDOWN
            | libc::ENONET
    )
}

/// Segments and bytes to drop because the kernel refused `unit`. A datagram that is too large condemns those of the
/// same size behind it in its message; only a shorter last one may still pass.
fn condemned(message: &Outgoing<'_>, unit: Unit, errno: i32) -> (usize, usize) {
    let stride = message.stride();
    let full = (message.payload.len() - unit.offset) / stride;
    if errno == libc::EMSGSIZE && !unit.is_train() && full > 0 {
        return (full, full * stride);
    }
    (unit.segments, unit.len)
}

fn reason(drops: &mut SendDrops, errno: i32) -> &mut u64 {
    match errno {
        libc::EMSGSIZE => &mut drops.too_large,
        libc::ECONNREFUSED => &mut drops.refused,
        libc::ENETUNREACH
        | libc::EHOSTUNREACH
        | libc::ENETDOWN
        | libc::EHOSTDOWN
        | libc::ENONET
        | libc::EPERM
        | libc::EACCES
        | libc::EADDRNOTAVAIL => &mut drops.unreachable,
        _ => &mut drops.other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::TRAIN_BYTES_MAX;

    /// A kernel that answers by script, then takes everything; it writes down the datagrams that it took.
    struct Script {
        answers: Vec<Result<usize, i32>>,
        taken: Vec<(usize, usize, usize)>,
    }

    fn send(
        sender: &mut Sender,
        messages: &[Outgoing<'_>],
        answers: &[Result<usize, i32>],
    ) -> (SendOutcome, IoStats, Script) {
        let mut stats = IoStats::default();
        let mut script = Script {
            answers: answers.iter().rev().copied().collect(),
            taken: Vec::new(),
        };
        let outcome = sender.send(messages, &mut stats, |units| {
            let answer = script.answers.pop().unwrap_or(Ok(units.len()));
            let count = answer.map_err(io::Error::from_raw_os_error)?;
            script.taken.extend(
                units[..count]
                    .iter()
                    .map(|unit| (unit.message, unit.offset, unit.len)),
            );
            Ok(count)
        });
        (outcome, stats, script)
    }

    fn sender(connected: bool) -> Sender {
        Sender::new(64, TRAIN_BYTES_MAX, connected)
    }

    #[test]
    fn trains_and_lone_datagrams_go_in_one_call() {
        let train = Outgoing::connected(&[0; 2500], 1000);
        let lone = Outgoing::connected(&[0; 10], 1000);
        let empty = Outgoing::connected(&[], 0);
        let (outcome, stats, script) = send(&mut sender(true), &[train, lone, empty], &[]);
        assert_eq!(script.taken, [(0, 0, 2500), (1, 0, 10), (2, 0, 0)]);
        assert_eq!(
            (outcome.messages, outcome.segments, outcome.blocked),
            (3, 5, false)
        );
        assert_eq!((stats.sends, stats.messages_sent, stats.gso_messages), (1, 3, 1));
        assert_eq!((stats.segments_sent, stats.bytes_sent), (5, 2510));
    }

    #[test]
    fn a_train_beyond_the_kernels_limits_goes_in_parts() {
        let many = Outgoing::connected(&[0; 100], 1);
        assert_eq!(
            send(&mut sender(true), &[many], &[]).2.taken,
            [(0, 0, 64), (0, 64, 36)]
        );
        let large = vec![0; 100_000];
        let large = Outgoing::connected(&large, 30_000);
        assert_eq!(
            send(&mut sender(true), &[large], &[]).2.taken,
            [(0, 0, 60_000), (0, 60_000, 40_000)]
        );
    }

    #[test]
    fn without_gso_segments_go_one_by_one_in_few_calls() {
        let train = Outgoing::connected(&[0; 250], 1);
        let (outcome, stats, script) = send(&mut Sender::new(1, TRAIN_BYTES_MAX, true), &[train], &[]);
        assert_eq!(
            (script.taken.len(), outcome.segments, stats.gso_messages),
            (250, 250, 0)
        );
        assert_eq!(stats.sends, 250_u64.div_ceil(SEND_UNITS_MAX as u64));
    }

    #[test]
    fn a_refused_train_is_split_and_its_path_steps_down() {
        for errno in [libc::EIO, libc::EINVAL] {
            let mut sender = sender(false);
            let path = "192.0.2.1:1".parse().unwrap();
            let train = Outgoing::to(path, &[0; 25], 10);
            let elsewhere = Outgoing::to("192.0.2.2:1".parse().unwrap(), &[0; 20], 10);
            let (outcome, stats, script) =
                send(&mut sender, &[train, train, elsewhere], &[Ok(1), Err(errno)]);
            let singles = [(1, 0, 10), (1, 10, 10), (1, 20, 5)];
            assert_eq!(
                script.taken,
                [&[(0, 0, 25)], &singles[..], &[(2, 0, 20)]].concat()
            );
            assert_eq!((outcome.messages, outcome.segments), (3, 8));
            assert_eq!(outcome.dropped, SendDrops::default());
            assert_eq!((stats.split_resends, stats.gso_step_downs), (1, 1));
            // From here on the path does without, others do not.
            assert_eq!(send(&mut sender, &[train, elsewhere], &[]).2.taken.len(), 4);
            sender.stepped_down[0].1 = Instant::now();
            assert_eq!(send(&mut sender, &[train, elsewhere], &[]).2.taken.len(), 2);
        }
    }

    #[test]
    fn a_train_of_datagrams_that_are_too_large_is_dropped_and_gso_stays() {
        let mut sender = sender(false);
        let train = Outgoing::to("192.0.2.1:1".parse().unwrap(), &[0; 25], 10);
        let answers = [Err(libc::EMSGSIZE), Err(libc::EMSGSIZE), Ok(1)];
        let (outcome, stats, script) = send(&mut sender, &[train], &answers);
        // The shorter last one passes, which shows nothing about GSO.
        assert_eq!(script.taken, [(0, 20, 5)]);
        assert_eq!(
            (outcome.messages, outcome.segments, outcome.dropped.too_large),
            (1, 1, 2)
        );
        assert_eq!((stats.split_resends, stats.gso_step_downs), (1, 0));
        let train = Outgoing::to("192.0.2.1:1".parse().unwrap(), &[0; 30], 10);
        let (outcome, stats, _) = send(&mut sender, &[train], &answers[..2]);
        assert_eq!(
            (outcome.segments, outcome.dropped.too_large, stats.gso_step_downs),
            (0, 3, 0)
        );
        assert_eq!(send(&mut sender, &[train], &[]).2.taken.len(), 1);
    }

    #[test]
    fn a_block_in_mid_split_tells_the_segment_to_go_on_from() {
        let mut sender = sender(true);
        let train = Outgoing::connected(&[0; 35], 10);
        let answers = [Ok(1), Err(libc::EIO), Ok(2), Err(libc::EAGAIN)];
        let (outcome, stats, _) = send(&mut sender, &[train, train, train], &answers);
        assert_eq!((outcome.messages, outcome.partial_segments), (1, 2));
        assert_eq!(
            (outcome.segments, outcome.blocked, stats.would_block),
            (6, true, 1)
        );
        let rest = Outgoing {
            payload: &train.payload[20..],
            ..train
        };
        let (outcome, _, script) = send(&mut sender, &[rest, train], &[]);
        assert_eq!((outcome.segments, outcome.partial_segments), (6, 0));
        assert_eq!(script.taken[..2], [(0, 0, 10), (0, 10, 5)]);
    }

    #[test]
    fn a_full_socket_disposes_of_nothing() {
        for errno in [libc::EAGAIN, libc::ENOBUFS] {
            let train = Outgoing::connected(&[0; 35], 10);
            let (outcome, _, _) = send(&mut sender(true), &[train], &[Err(errno)]);
            assert_eq!(
                outcome,
                SendOutcome {
                    blocked: true,
                    ..SendOutcome::default()
                }
            );
        }
    }

    #[test]
    fn an_error_of_an_earlier_datagram_costs_the_innocent_one_nothing() {
        let train = Outgoing::connected(&[0; 35], 10);
        for errno in [libc::ECONNREFUSED, libc::EMSGSIZE, libc::EHOSTUNREACH] {
            let (outcome, stats, script) = send(&mut sender(true), &[train], &[Err(errno)]);
            assert_eq!((outcome.segments, outcome.dropped), (4, SendDrops::default()));
            assert_eq!(
                (script.taken.len(), stats.stale_errors, stats.split_resends),
                (1, 1, 0)
            );
        }
    }

    #[test]
    fn one_bad_message_is_dropped_by_its_reason_and_the_rest_goes() {
        let lone = Outgoing::connected(&[0; 10], 10);
        let cases = [
            libc::EMSGSIZE,
            libc::ECONNREFUSED,
            libc::EPERM,
            libc::ENETUNREACH,
            libc::ENOMEM,
        ];
        let drops = cases.map(|errno| {
            // The first answer could be stale; the same again is not.
            let answers = [Ok(1), Err(libc::EINTR), Err(errno), Err(errno)];
            let retried = may_be_stale(errno);
            let answers = if retried { &answers[..] } else { &answers[..3] };
            let (outcome, _, script) = send(&mut sender(true), &[lone; 3], answers);
            assert_eq!(script.taken, [(0, 0, 10), (2, 0, 10)]);
            assert_eq!(
                (outcome.messages, outcome.segments, outcome.dropped.total()),
                (3, 2, 1)
            );
            outcome.dropped
        });
        assert_eq!((drops[0].too_large, drops[1].refused), (1, 1));
        assert_eq!(
            (drops[2].unreachable, drops[3].unreachable, drops[4].other),
            (1, 1, 1)
        );
    }

    #[test]
    fn the_paths_without_gso_are_bounded_and_the_oldest_is_forgotten() {
        let mut sender = sender(false);
        let mut stats = IoStats::default();
        for port in 1..=STEPPED_DOWN_PATHS_MAX as u16 + 1 {
            sender.step_down(Some(([192, 0, 2, 1], port).into()), &mut stats);
        }
        assert_eq!(sender.stepped_down.len(), STEPPED_DOWN_PATHS_MAX);
        assert!(!sender.is_stepped_down(Some(([192, 0, 2, 1], 1).into())));
        assert!(sender.is_stepped_down(Some(([192, 0, 2, 1], 2).into())));
    }
}
