//! The classifier of a server that shows itself to nobody (specs/qr1.md, "Everyone else"): QUIC reads what carries one of
//! our connection IDs in a short header, and everything else is given away.
//!
//! Packets with a long header are given away whatever their ID: while a handshake goes on, their keys are public, and who
//! watches it can forge them. The caller, who knows the handshakes that it let in, hands those to
//! [`Endpoint::handle_admitted`](crate::Endpoint::handle_admitted).

use super::{Arrived, Class, Classifier, Run};
use crate::connection_id::{Block, Shard, SteerKey, destination_block};
use crate::initial;

/// Gives away whatever is not a packet with a short header and an ID of this shard (QR1-20).
pub struct OnlyOurs {
    key: SteerKey,
    shard: Shard,
    /// The last ID, and the shard that it names: a train has one, which is deciphered once.
    last: (Block, Option<u8>),
}

impl OnlyOurs {
    /// For one shard of those that share `key`.
    #[must_use]
    pub fn new(key: SteerKey, shard: Shard) -> Self {
        let nobody = Block::default();
        let named = key.shard(nobody);
        Self {
            key,
            shard,
            last: (nobody, named),
        }
    }

    fn class(&mut self, segment: &[u8]) -> Class {
        let named = destination_block(segment, self.key.id_length()).and_then(|id| {
            if id != self.last.0 {
                self.last = (id, self.key.shard(id));
            }
            self.last.1
        });
        match named {
            Some(other) if other != self.shard.index && other < self.shard.count => Class::OtherShard(other),
            Some(own) if own == self.shard.index && !initial::is_long_header(segment) => Class::Ours,
            _ => Class::GivenAway,
        }
    }
}

impl Classifier for OnlyOurs {
    fn classify(&mut self, arrived: &Arrived<'_>) -> Run {
        let mut segments = arrived.segments();
        let class = segments
            .next()
            .map_or(Class::GivenAway, |segment| self.class(segment));
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
    use std::time::Instant;

    use packet::Ecn;

    use super::*;
    use crate::connection_id::{Generation, Generator, IdLength};
    use packet::Path;

    fn key(length: usize) -> SteerKey {
        SteerKey::derive(&[3; 64], IdLength::new(length).unwrap())
    }

    /// A packet with a short header, padded to 60 bytes.
    fn short(key: &SteerKey, shard: u8) -> Vec<u8> {
        let id = Generator::new(key.clone(), shard, Generation::default(), &[1; 32]).next_id();
        let mut packet = [&[0x40], &id[..]].concat();
        packet.resize(60, 0);
        packet
    }

    /// One with a long header of this first byte.
    fn long(key: &SteerKey, first: u8, shard: u8) -> Vec<u8> {
        let id = Generator::new(key.clone(), shard, Generation::default(), &[1; 32]).next_id();
        let mut packet = [&[first, 0, 0, 0, 1, id.len() as u8], &id[..]].concat();
        packet.resize(60, 0);
        packet
    }

    fn classes(classifier: &mut OnlyOurs, message: &[Vec<u8>]) -> Vec<(Class, usize)> {
        let bytes = message.concat();
        let (mut rest, mut found) = (&bytes[..], Vec::new());
        while !rest.is_empty() {
            let run = classifier.classify(&Arrived {
                // tidy-allow(pure): first instant of virtual time
                now: Instant::now(),
                path: Path {
                    remote: "192.0.2.1:1".parse().unwrap(),
                    local: None,
                },
                ecn: Ecn::NotEct,
                segment_size: 60,
                bytes: rest,
            });
            let bytes = run.bytes(60, rest.len());
            found.push((run.class, bytes / 60));
            rest = &rest[bytes..];
        }
        found
    }

    /// QR1-20.
    #[test]
    fn only_short_headers_with_an_id_of_ours_reach_quic_whatever_its_length() {
        for length in [8, 20] {
            let key = key(length);
            let mut classifier = OnlyOurs::new(key.clone(), Shard::SOLE);
            let message = [
                short(&key, 0),
                short(&key, 0),
                // Of a shard that there is not, or no more.
                short(&key, 1),
                long(&key, 0xc0, 0),
                long(&key, 0xe0, 0),
                vec![0x40; 60],
                vec![0; 60],
                short(&key, 0),
            ];
            let found = classes(&mut classifier, &message);
            assert_eq!(found, [(Class::Ours, 2), (Class::GivenAway, 5), (Class::Ours, 1)]);
            let tiny = short(&key, 0)[..length].to_vec();
            assert_eq!(classifier.class(&tiny), Class::GivenAway);
        }
    }

    #[test]
    fn what_names_another_shard_goes_there_whatever_its_header() {
        let key = key(8);
        let mut classifier = OnlyOurs::new(key.clone(), Shard { index: 1, count: 2 });
        let message = [
            short(&key, 0),
            long(&key, 0xe0, 0),
            short(&key, 1),
            short(&key, 2),
        ];
        let found = classes(&mut classifier, &message);
        assert_eq!(
            found,
            [(Class::OtherShard(0), 2), (Class::Ours, 1), (Class::GivenAway, 1)]
        );
    }
}
