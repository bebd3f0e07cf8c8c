//! Whether this machine has moved to another network, where everything may be different: by the address that its
//! packets to the rendezvous leave from, and the one that they come from there.

use std::net::IpAddr;

use packet::CarrierKind;

/// Where packets left from and came from at the last look.
#[derive(Debug, Default)]
pub(super) struct Whereabouts {
    own: Option<IpAddr>,
    observed: Option<(CarrierKind, IpAddr)>,
}

impl Whereabouts {
    /// Packets leave from this address, and come from there over this carrier, as far as that is known. Whether the
    /// network is another one than at the look before. What comes over another carrier may be translated to another
    /// address.
    pub(super) fn look(&mut self, own: Option<IpAddr>, observed: Option<(CarrierKind, IpAddr)>) -> bool {
        let leaves_elsewhere = own.is_some() && self.own.is_some() && own != self.own;
        let comes_from_elsewhere = match (self.observed, observed) {
            (Some((before, from)), Some((now, at))) => before == now && from != at,
            _ => false,
        };
        self.own = own.or(self.own);
        self.observed = observed.or(self.observed);
        leaves_elsewhere || comes_from_elsewhere
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use CarrierKind::{Tcp, Udp};

    #[test]
    fn another_address_here_or_there_is_another_network_and_another_carrier_is_none() {
        let [one, two] = ["192.0.2.1", "192.0.2.2"].map(|text| Some(text.parse::<IpAddr>().unwrap()));
        let over = |carrier, ip: Option<IpAddr>| ip.map(|ip| (carrier, ip));
        let mut whereabouts = Whereabouts::default();
        assert!(!whereabouts.look(one, None));
        assert!(!whereabouts.look(one, over(Tcp, one)));
        // Nothing leaves for a while.
        assert!(!whereabouts.look(None, None));
        assert!(!whereabouts.look(one, over(Udp, two)));
        assert!(!whereabouts.look(one, over(Udp, two)));
        assert!(whereabouts.look(one, over(Udp, one)));
        assert!(whereabouts.look(two, over(Udp, one)));
        assert!(!whereabouts.look(two, over(Udp, one)));
    }
}
