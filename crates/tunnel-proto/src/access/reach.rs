//! The networks that a user may reach, within what its server lets everybody reach.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::target_rules::AllowedTarget;

/// What a user may reach; a clone is the same list. It opens nothing that the server's own rules close.
///
/// ```
/// use tunnel_proto::Reach;
///
/// let reach = Reach::only(vec!["10.0.0.0/8:443".parse().unwrap()]);
/// assert!(reach.covers("10.1.2.3:443".parse().unwrap()));
/// assert!(!reach.covers("10.1.2.3:22".parse().unwrap()));
/// assert!(Reach::default().covers("192.0.2.1:22".parse().unwrap()));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reach(Option<Arc<[AllowedTarget]>>);

impl Reach {
    /// These and nothing else; an empty list is nothing at all. The default is everything.
    #[must_use]
    pub fn only(networks: Vec<AllowedTarget>) -> Self {
        Self(Some(networks.into()))
    }

    /// Whether a resolved address lies in it.
    #[must_use]
    pub fn covers(&self, target: SocketAddr) -> bool {
        let Some(networks) = &self.0 else {
            return true;
        };
        networks.iter().any(|network| network.covers(target))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_covers_what_it_names_and_an_empty_one_nothing() {
        let networks = ["10.0.0.0/8", "192.0.2.1:80", "[fd00::/8]:53"].map(|text| text.parse().unwrap());
        let reach = Reach::only(networks.to_vec());
        for (target, expected) in [
            ("10.9.9.9:1", true),
            ("[::ffff:10.9.9.9]:1", true),
            ("192.0.2.1:80", true),
            ("192.0.2.1:81", false),
            ("192.0.2.2:80", false),
            ("[fd00::1]:53", true),
            ("[fd00::1]:0", false),
            // Translated, it is the same target.
            ("[64:ff9b::10.9.9.9]:1", true),
            ("[64:ff9b::192.0.2.1]:81", false),
        ] {
            let target = target.parse().unwrap();
            assert_eq!(reach.covers(target), expected, "{target}");
            assert!(Reach::default().covers(target));
            assert!(!Reach::only(Vec::new()).covers(target));
        }
    }
}
