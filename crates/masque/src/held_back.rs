//! The payload of HELD_BACK (specs/path.md): how a server fares that had more to send than the path let through.

use packet::varint;

/// Packets of about one second in which the sender never had all sent that it wanted to send.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HeldBack {
    /// QUIC packets sent.
    pub sent: u64,
    /// QUIC packets declared lost.
    pub lost: u64,
}

impl HeldBack {
    pub(crate) fn encode(self) -> Vec<u8> {
        let mut out = Vec::new();
        for count in [self.sent, self.lost] {
            varint::write(count.min(varint::MAX), &mut out);
        }
        out
    }

    /// Two varints and nothing else (PATH-1).
    pub(crate) fn decode(payload: &[u8]) -> Option<Self> {
        let (sent, used) = varint::read(payload)?;
        let (lost, more) = varint::read(&payload[used..])?;
        (used + more == payload.len()).then_some(Self { sent, lost })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PATH-1.
    #[test]
    fn two_counts_survive_and_nothing_else_is_one() {
        for (sent, lost) in [(0, 0), (63, 64), (varint::MAX, 1)] {
            let counts = HeldBack { sent, lost };
            let encoded = counts.encode();
            assert_eq!(HeldBack::decode(&encoded), Some(counts));
            assert_eq!(
                HeldBack::decode(&encoded[1..]).filter(|read| *read == counts),
                None
            );
            assert_eq!(HeldBack::decode(&[&encoded[..], &[0]].concat()), None);
        }
        assert_eq!(HeldBack::decode(&[]), None);
        assert_eq!(HeldBack::decode(&[7]), None);
    }
}
