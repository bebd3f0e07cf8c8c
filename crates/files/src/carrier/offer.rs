//! A port that the other end offers (FILE-19, FILE-36): where it is reached, once there is a way to it. Pure.

use std::net::SocketAddr;

use files_proto::message::TcpOffer;
use peer::PeerPath;

/// What has become of the one offer that counts.
#[derive(Default)]
pub(crate) enum Offered {
    #[default]
    NotYet,
    /// There is no way to it so far: the other end is relayed.
    Waiting(TcpOffer),
    TakenUp,
}

/// A port that can be tried.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OfferedPort {
    /// At which QUIC reaches the other end.
    pub(crate) address: SocketAddr,
    pub(crate) port: u16,
    /// The other end's, for this transfer.
    pub(crate) key: [u8; 32],
}

impl Offered {
    /// The other end offers a port; of several offers the first one counts.
    pub(crate) fn offer(&mut self, offer: TcpOffer) {
        if matches!(self, Self::NotYet) && !offer.addresses.is_empty() {
            *self = Self::Waiting(offer);
        }
    }

    /// The offer, once, as soon as the path is direct; `path` is asked for only where an offer waits.
    pub(crate) fn take_up(&mut self, path: impl FnOnce() -> Option<PeerPath>) -> Option<OfferedPort> {
        let Self::Waiting(offer) = self else {
            return None;
        };
        let Some(PeerPath::Direct(address)) = path() else {
            return None;
        };
        let (port, key) = (offer.addresses.first()?.port(), offer.key);
        *self = Self::TakenUp;
        Some(OfferedPort { address, port, key })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(port: u16) -> TcpOffer {
        TcpOffer {
            key: [7; 32],
            addresses: vec![SocketAddr::from(([0, 0, 0, 0], port))],
        }
    }

    /// FILE-36.
    #[test]
    fn an_offer_that_comes_while_the_path_is_relayed_is_taken_up_once_it_is_direct() {
        let mut offered = Offered::default();
        let address = "192.0.2.1:9".parse().unwrap();
        let direct = || Some(PeerPath::Direct(address));
        assert_eq!(offered.take_up(direct), None, "nothing is offered");
        offered.offer(TcpOffer {
            addresses: Vec::new(),
            ..offer(0)
        });
        assert_eq!(offered.take_up(direct), None, "that was none");
        offered.offer(offer(1_000));
        for path in [
            Some(PeerPath::Relayed(address)),
            None,
            Some(PeerPath::Relayed(address)),
        ] {
            assert_eq!(offered.take_up(|| path), None);
        }
        offered.offer(offer(2_000));
        let port = OfferedPort {
            address,
            port: 1_000,
            key: [7; 32],
        };
        assert_eq!(offered.take_up(direct), Some(port), "the first one counts");
        offered.offer(offer(2_000));
        assert_eq!(offered.take_up(direct), None, "it counts once");
    }
}
