//! What is near this machine: the networks that a user means by "local".

use crate::error::HostError;
use crate::network::Network;
use crate::prefix::Prefix;

/// Networks that routers do not carry to the internet: private and unique local ones (RFC 1918, RFC 4193), link-local
/// ones (RFC 3927, RFC 4291), multicast on the link and within a site (RFC 5771, RFC 2365, RFC 7346), broadcast.
const NEAR: [&str; 12] = [
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "169.254.0.0/16",
    "224.0.0.0/24",
    "239.0.0.0/8",
    "255.255.255.255/32",
    "fc00::/7",
    "fe80::/10",
    "ff01::/16",
    "ff02::/16",
    "ff05::/16",
];

/// A network on a link that is wider is not taken for local: whoever runs the link chooses its length, and could name
/// half of the internet.
const ON_LINK_LENGTH_MIN_V4: u8 = 20;
const ON_LINK_LENGTH_MIN_V6: u8 = 64;

/// Private, link-local and multicast networks, and those that this machine has an address in, other than by the
/// interface `tun`.
///
/// # Errors
/// The kernel does not answer.
pub fn near_networks(network: &mut Network, tun: u32) -> Result<Vec<Prefix>, HostError> {
    let mut near: Vec<Prefix> = NEAR
        .iter()
        .map(|text| text.parse().expect("the networks above are written as such"))
        .collect();
    let addresses = network.addresses(None)?;
    let others = addresses.into_iter().filter(|address| address.index != tun);
    for prefix in others.map(|address| address.prefix.network()) {
        if is_of_a_link(&prefix) && !near.iter().any(|known| known.overlaps(&prefix)) {
            near.push(prefix);
        }
    }
    // The same network gives the same list, whatever the order of the links.
    near[NEAR.len()..].sort_unstable();
    Ok(near)
}

fn is_of_a_link(prefix: &Prefix) -> bool {
    let least = if prefix.address().is_ipv4() {
        ON_LINK_LENGTH_MIN_V4
    } else {
        ON_LINK_LENGTH_MIN_V6
    };
    prefix.length() >= least && !prefix.address().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_of_links_are_near_unless_they_are_loopback_or_too_wide() {
        for (text, is_near) in [
            ("203.0.113.0/24", true),
            ("203.0.112.0/20", true),
            ("203.0.0.0/19", false),
            ("0.0.0.0/1", false),
            ("127.0.0.0/8", false),
            ("::1/128", false),
            ("2001:db8::/64", true),
            ("2001:db8::/48", false),
        ] {
            assert_eq!(is_of_a_link(&text.parse().unwrap()), is_near, "{text}");
        }
    }

    #[test]
    fn what_is_near_is_listed_once() {
        let near = near_networks(&mut Network::open().unwrap(), 0).unwrap();
        assert!(near.len() >= NEAR.len());
        for (position, prefix) in near.iter().enumerate() {
            assert_eq!(prefix.network(), *prefix);
            assert!(
                !near[..position].iter().any(|other| other.overlaps(prefix)),
                "{prefix}"
            );
        }
    }
}
