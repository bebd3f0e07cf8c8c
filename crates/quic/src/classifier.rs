//! What becomes of received datagrams before QUIC reads them: [`Classifier`] is the one door that all of them pass.
//!
//! A message of the socket is one datagram, or several of equal size that the kernel coalesced. The classifier says of each
//! run of them, from the front, what it is: ours, another shard's, to be dropped, or the caller's to take elsewhere. Only
//! what is ours reaches QUIC, which then bounds new connections by itself ([`crate::Event::Incoming`]). [`ByShard`] is what
//! an endpoint has where nothing else is given.

mod kin;
mod only_ours;

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::time::Instant;

use packet::Ecn;
use serde::Serialize;

use crate::connection_id::{Block, Generation, Shard, SteerKey, destination_block};
use crate::limits;
pub use kin::Kin;
pub use only_ours::OnlyOurs;
use packet::Path;

/// What a received datagram is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// QUIC reads it.
    Ours,
    /// Another shard of this process has its connection: it goes to [`crate::Receiver::foreign_segment`], and is never
    /// answered here.
    OtherShard(u8),
    /// A process that had the sockets before this one may have its connection, in this shard: it goes to
    /// [`crate::Receiver::predecessor_datagrams`], and is never answered here.
    Predecessor(u8),
    /// It goes to [`crate::Receiver::given_away`], unread.
    GivenAway,
    /// It is dropped, and counted under this reason.
    Dropped(&'static str),
}

/// The class of the first datagrams of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// What they are.
    pub class: Class,
    /// How many, at least 1; more than there are means all.
    pub segments: usize,
}

impl Run {
    /// All datagrams of the message.
    #[must_use]
    pub fn all(class: Class) -> Self {
        Self {
            class,
            segments: usize::MAX,
        }
    }

    /// Bytes of the run at the front of a message of `length` bytes.
    pub(crate) fn bytes(self, segment_size: usize, length: usize) -> usize {
        self.segments.max(1).saturating_mul(segment_size).min(length)
    }
}

/// What is left of one received message.
#[derive(Clone, Copy, Debug)]
pub struct Arrived<'a> {
    /// When it was received.
    pub now: Instant,
    /// From whom, and to which of our addresses.
    pub path: Path,
    /// Its mark.
    pub ecn: Ecn,
    /// Bytes of every datagram but the last, which may be shorter; at least 1.
    pub segment_size: usize,
    /// The datagrams, at least one.
    pub bytes: &'a [u8],
}

impl<'a> Arrived<'a> {
    /// The datagrams one by one.
    pub fn segments(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        packet::segments(self.bytes, self.segment_size)
    }
}

/// Decides what received datagrams are. It is asked for every message, so that what it does is paid for by all traffic.
///
/// ```
/// use quic::{Arrived, ByShard, Class, Classifier, Run};
///
/// /// Takes nothing from ports that only forged answers come from.
/// struct NoReflection(ByShard);
///
/// impl Classifier for NoReflection {
///     fn classify(&mut self, arrived: &Arrived<'_>) -> Run {
///         match arrived.path.remote.port() {
///             53 | 123 | 1900 => Run::all(Class::Dropped("reflected")),
///             _ => self.0.classify(arrived),
///         }
///     }
/// }
/// ```
pub trait Classifier: Send {
    /// The class of the first datagrams of `arrived`; it is asked again for those behind them.
    fn classify(&mut self, arrived: &Arrived<'_>) -> Run;
}

/// What was received, by class; every datagram that is not empty is counted once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Classified {
    /// Read by QUIC.
    pub ours: u64,
    /// Given to [`crate::Receiver::foreign_segment`].
    pub other_shard: u64,
    /// Given to [`crate::Receiver::predecessor_datagrams`].
    pub predecessor: u64,
    /// Given to [`crate::Receiver::given_away`].
    pub given_away: u64,
    /// Of [`Self::ours`], given there afterwards, because QUIC knew nothing of them ([`crate::EndpointParameters::is_covered`]).
    pub returned: u64,
    /// Dropped, by reason; beyond [`limits::CLASSIFIER_REASONS_MAX`] reasons under `other`.
    pub dropped: BTreeMap<&'static str, u64>,
}

impl Classified {
    pub(crate) fn count(&mut self, class: Class, segments: u64) {
        match class {
            Class::Ours => self.ours += segments,
            Class::OtherShard(_) => self.other_shard += segments,
            Class::Predecessor(_) => self.predecessor += segments,
            Class::GivenAway => self.given_away += segments,
            Class::Dropped(reason) => {
                if let Some(count) = self.dropped.get_mut(reason) {
                    *count += segments;
                    return;
                }
                let has_room = self.dropped.len() < limits::CLASSIFIER_REASONS_MAX;
                let reason = if has_room { reason } else { "other" };
                *self.dropped.entry(reason).or_default() += segments;
            }
        }
    }
}

/// What several endpoints received whose classifiers name the same reasons.
impl AddAssign for Classified {
    fn add_assign(&mut self, other: Self) {
        self.ours += other.ours;
        self.other_shard += other.other_shard;
        self.predecessor += other.predecessor;
        self.given_away += other.given_away;
        self.returned += other.returned;
        for (reason, segments) in other.dropped {
            *self.dropped.entry(reason).or_default() += segments;
        }
    }
}

/// Tells segments of other shards of this process, and of processes before and after it, from all others, which are ours.
/// In the only shard of a process that is alone it looks at nothing.
pub struct ByShard {
    key: SteerKey,
    shard: Shard,
    generation: Generation,
    kin: Kin,
    /// The last ID, and which shard of which process it names: a train has one, which is deciphered once. What becomes of
    /// it is decided each time, because other processes come and go.
    last: (Block, Option<(u8, Generation)>),
}

impl ByShard {
    /// For one shard of those that share `key`.
    #[must_use]
    pub fn new(key: SteerKey, shard: Shard) -> Self {
        Self::with_kin(key, shard, Generation::default(), Kin::default())
    }

    /// The same where other processes may have the same sockets.
    #[must_use]
    pub fn with_kin(key: SteerKey, shard: Shard, generation: Generation, kin: Kin) -> Self {
        Self {
            key,
            shard,
            generation,
            kin,
            last: (Block::default(), None),
        }
    }

    /// QUIC would answer the segment of another shard or process with a stateless reset, which the peer would believe.
    fn class(&mut self, segment: &[u8]) -> Class {
        let Some(id) = destination_block(segment, self.key.id_length()) else {
            return Class::Ours;
        };
        if id != self.last.0 {
            self.last = (id, self.key.names(id));
        }
        self.last.1.map_or(Class::Ours, |(shard, generation)| {
            self.class_of(shard, generation)
        })
    }

    fn class_of(&self, shard: u8, generation: Generation) -> Class {
        let Shard { index, count } = self.shard;
        if generation == self.generation {
            let is_other = shard != index && shard < count;
            return if is_other {
                Class::OtherShard(shard)
            } else {
                Class::Ours
            };
        }
        if self.kin.successor() == Some(generation) {
            // It reads the socket, too.
            Class::Dropped("successor")
        } else if self.kin.has_predecessor() && shard < count {
            // The predecessor may have one as well, and hands on what is not its own.
            Class::Predecessor(shard)
        } else {
            Class::Ours
        }
    }
}

impl Classifier for ByShard {
    fn classify(&mut self, arrived: &Arrived<'_>) -> Run {
        if self.shard.count == 1 && self.kin.is_alone() {
            return Run::all(Class::Ours);
        }
        let mut segments = arrived.segments();
        let class = segments.next().map_or(Class::Ours, |segment| self.class(segment));
        let more = segments
            .take_while(|segment| self.class(segment) == class)
            .count();
        Run {
            class,
            segments: 1 + more,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection_id::{Generator, IdLength};

    fn key() -> SteerKey {
        SteerKey::derive(&[3; 64], IdLength::default())
    }

    fn segment(shard: u8) -> Vec<u8> {
        segment_of(shard, Generation::default())
    }

    fn segment_of(shard: u8, generation: Generation) -> Vec<u8> {
        let id = Generator::new(key(), shard, generation, &[1; 32]).next_id();
        let mut packet = vec![0x40];
        packet.extend_from_slice(&id);
        packet.resize(40, 0);
        packet
    }

    fn stranger() -> Vec<u8> {
        let mut packet = vec![0xc0, 0, 0, 0, 1, 20];
        packet.resize(40, 1);
        packet
    }

    fn runs(classifier: &mut ByShard, segments: &[Vec<u8>]) -> Vec<Run> {
        let message = segments.concat();
        let mut bytes = &message[..];
        let mut runs = Vec::new();
        while !bytes.is_empty() {
            let run = classifier.classify(&Arrived {
                // tidy-allow(pure): first instant of virtual time
                now: Instant::now(),
                path: Path {
                    remote: ([192, 0, 2, 1], 4_000).into(),
                    local: None,
                },
                ecn: Ecn::NotEct,
                segment_size: 40,
                bytes,
            });
            bytes = &bytes[run.bytes(40, bytes.len())..];
            runs.push(run);
        }
        runs
    }

    fn run(class: Class, segments: usize) -> Run {
        Run { class, segments }
    }

    #[test]
    fn only_segments_of_other_living_shards_are_sorted_out() {
        let mut classifier = ByShard::new(key(), Shard { index: 1, count: 3 });
        let (other, ours) = (Class::OtherShard, Class::Ours);
        for _ in 0..2 {
            assert_eq!(runs(&mut classifier, &[segment(0)]), [run(other(0), 1)]);
            assert_eq!(runs(&mut classifier, &[segment(1)]), [run(ours, 1)]);
            assert_eq!(runs(&mut classifier, &[segment(2)]), [run(other(2), 1)]);
            assert_eq!(runs(&mut classifier, &[segment(3)]), [run(ours, 1)]);
            assert_eq!(runs(&mut classifier, &[stranger()]), [run(ours, 1)]);
        }
    }

    #[test]
    fn a_message_is_cut_into_runs_of_one_class() {
        let mut classifier = ByShard::new(key(), Shard { index: 1, count: 3 });
        let message = [0, 0, 1, 3, 2, 0].map(segment);
        let found = runs(&mut classifier, &message);
        let (other, ours) = (Class::OtherShard, Class::Ours);
        let expected = [run(other(0), 2), run(ours, 2), run(other(2), 1), run(other(0), 1)];
        assert_eq!(found, expected);
    }

    #[test]
    fn the_only_shard_looks_at_nothing() {
        let mut classifier = ByShard::new(key(), Shard::SOLE);
        let message = [segment(0), segment(3), stranger()];
        assert_eq!(runs(&mut classifier, &message), [Run::all(Class::Ours)]);
    }

    fn class(classifier: &mut ByShard, generation: Generation) -> Class {
        runs(classifier, &[segment_of(0, generation)])[0].class
    }

    #[test]
    fn a_process_that_took_over_sockets_hands_back_what_is_not_its_own_and_answers_none_of_its_successors() {
        let [first, own, next] = [4, 5, 6].map(Generation::new);
        for count in [1, 2] {
            let kin = Kin::default();
            let shard = Shard { index: 0, count };
            let mut classifier = ByShard::with_kin(key(), shard, own, kin.clone());
            let mut class = |generation| class(&mut classifier, generation);
            assert_eq!(class(first), Class::Ours, "it may get a reset");
            kin.set_predecessor(true);
            assert_eq!(class(first), Class::Predecessor(0));
            assert_eq!(class(next), Class::Predecessor(0));
            kin.set_successor(Some(next));
            assert_eq!(class(next), Class::Dropped("successor"));
            assert_eq!(class(own), Class::Ours);
            assert_eq!(class(first), Class::Predecessor(0));
            kin.set_predecessor(false);
            assert_eq!(class(first), Class::Ours);
            assert_eq!(class(next), Class::Dropped("successor"));
            kin.set_successor(None);
            assert_eq!(class(next), Class::Ours);
        }
    }

    #[test]
    fn of_three_processes_each_gets_its_own_along_the_chain() {
        let generations = [15, 0, 1].map(Generation::new);
        let kins = [Kin::default(), Kin::default(), Kin::default()];
        for (index, kin) in kins.iter().enumerate() {
            kin.set_predecessor(index > 0);
            kin.set_successor(generations.get(index + 1).copied());
        }
        let shard = Shard { index: 0, count: 1 };
        let mut processes: Vec<_> = generations
            .iter()
            .zip(&kins)
            .map(|(generation, kin)| ByShard::with_kin(key(), shard, *generation, kin.clone()))
            .collect();
        let mut handed_back = |generation| {
            let mut classes = processes
                .iter_mut()
                .rev()
                .map(|process| class(process, generation));
            let taken = classes.position(|class| class != Class::Predecessor(0));
            taken.expect("the first process hands nothing back")
        };
        assert_eq!(generations.map(&mut handed_back), [2, 1, 0]);
        assert_eq!(
            handed_back(Generation::new(9)),
            2,
            "the first one answers what is nobody's"
        );
        kins[1].set_predecessor(false);
        assert_eq!(handed_back(generations[0]), 1);
    }

    #[test]
    fn a_run_is_at_least_one_segment_and_at_most_what_there_is() {
        assert_eq!(run(Class::Ours, 0).bytes(40, 100), 40);
        assert_eq!(run(Class::Ours, 2).bytes(40, 100), 80);
        assert_eq!(run(Class::Ours, 9).bytes(40, 100), 100);
        assert_eq!(Run::all(Class::Ours).bytes(40, 100), 100);
    }

    #[test]
    fn reasons_without_end_take_no_memory_without_end() {
        const MANY: [&str; 40] = [
            "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "16", "17",
            "18", "19", "20", "21", "22", "23", "24", "25", "26", "27", "28", "29", "30", "31", "32", "33",
            "34", "35", "36", "37", "38", "39",
        ];
        let mut counted = Classified::default();
        for _ in 0..2 {
            for reason in MANY {
                counted.count(Class::Dropped(reason), 3);
            }
        }
        assert_eq!(counted.dropped.len(), limits::CLASSIFIER_REASONS_MAX + 1);
        assert_eq!(counted.dropped.values().sum::<u64>(), 2 * 3 * 40);
        assert_eq!(counted.dropped["0"], 6);
    }
}
