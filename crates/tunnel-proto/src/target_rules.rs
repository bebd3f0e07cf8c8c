//! Which targets a server connects to for an authenticated user.
//!
//! The rules look at the resolved, canonical address that is then connected, never at a name. Public and private
//! addresses are open; what could reach the server itself or its cloud's metadata needs an explicit permission.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use masque::ip::Prefix;

use crate::own_addresses::OwnAddresses;
use crate::translated::{canonical, embedded};

/// An explicitly allowed range: `CIDR[:PORT]`, IPv6 in brackets where a port follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllowedTarget {
    network: IpAddr,
    prefix: u8,
    port: Option<u16>,
}

/// The text is not `CIDR[:PORT]`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not CIDR[:PORT]; examples: 127.0.0.1/32:53, 10.0.0.0/8, [::1/128]:80, ::1")]
pub struct NotATarget(String);

impl AllowedTarget {
    /// Whether `address` lies in the range.
    #[must_use]
    pub fn covers(&self, address: SocketAddr) -> bool {
        if self.port.is_some_and(|port| port != address.port()) {
            return false;
        }
        match (self.network, canonical(address.ip())) {
            (IpAddr::V4(network), IpAddr::V4(ip)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0);
                u32::from(network) & mask == u32::from(ip) & mask
            }
            (IpAddr::V6(network), IpAddr::V6(ip)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix)).unwrap_or(0);
                u128::from(network) & mask == u128::from(ip) & mask
            }
            _ => false,
        }
    }
}

impl FromStr for AllowedTarget {
    type Err = NotATarget;

    fn from_str(text: &str) -> Result<Self, NotATarget> {
        let wrong = || NotATarget(text.to_owned());
        let (range, port) = if let Some(rest) = text.strip_prefix('[') {
            let (range, rest) = rest.split_once(']').ok_or_else(wrong)?;
            (
                range,
                if rest.is_empty() {
                    None
                } else {
                    Some(rest.strip_prefix(':').ok_or_else(wrong)?)
                },
            )
        } else if text.matches(':').count() > 1 {
            (text, None)
        } else {
            text.split_once(':')
                .map_or((text, None), |(range, port)| (range, Some(port)))
        };
        let port = port.map(str::parse::<u16>).transpose().map_err(|_| wrong())?;
        let (address, prefix) = range.split_once('/').map_or((range, None), |(a, p)| (a, Some(p)));
        let network: IpAddr = address.parse().map_err(|_| wrong())?;
        let bits = if network.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.map_or(Ok(bits), str::parse::<u8>).map_err(|_| wrong())?;
        if prefix > bits {
            return Err(wrong());
        }
        Ok(Self {
            network,
            prefix,
            port,
        })
    }
}

impl fmt::Display for AllowedTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.network, self.port) {
            (IpAddr::V6(_), Some(port)) => write!(f, "[{}/{}]:{port}", self.network, self.prefix),
            (_, Some(port)) => write!(f, "{}/{}:{port}", self.network, self.prefix),
            (_, None) => write!(f, "{}/{}", self.network, self.prefix),
        }
    }
}

/// Why a target is closed without an explicit permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Prohibited {
    /// 127.0.0.0/8 or ::1.
    #[error("it is a loopback address of the server")]
    Loopback,
    /// 0.0.0.0/8 or ::.
    #[error("it is the unspecified address")]
    Unspecified,
    /// 169.254.0.0/16 or fe80::/10.
    #[error("it is a link-local address")]
    LinkLocal,
    /// 224.0.0.0/4 or ff00::/8.
    #[error("it is a multicast address")]
    Multicast,
    /// 255.255.255.255, or reserved 240.0.0.0/4.
    #[error("it is a broadcast or reserved address")]
    Broadcast,
    /// An address that clouds serve instance metadata on.
    #[error("it is a cloud metadata address")]
    Metadata,
    /// An address of this server.
    #[error("it is an address of the server itself")]
    OwnAddress,
    /// An address that the server leases to clients.
    #[error("it is an address of another client")]
    Client,
    /// The server does not know which addresses are its own.
    #[error("the server cannot tell at present whether it is an address of its own")]
    Unknown,
}

/// The rules of one server.
#[derive(Clone, Debug, Default)]
pub struct TargetRules {
    allowed: Vec<AllowedTarget>,
    clients: Vec<Prefix>,
}

impl TargetRules {
    /// Rules with these explicit permissions.
    #[must_use]
    pub fn new(allowed: Vec<AllowedTarget>) -> Self {
        Self {
            allowed,
            clients: Vec::new(),
        }
    }

    /// Clients have addresses of these networks, and do not reach each other.
    #[must_use]
    pub fn without_clients(mut self, pools: &[Prefix]) -> Self {
        self.clients = pools.to_vec();
        self
    }

    /// Replaces the explicit permissions.
    pub fn allow(&mut self, allowed: Vec<AllowedTarget>) {
        self.allowed = allowed;
    }

    /// Whether `target` has an explicit permission.
    #[must_use]
    pub fn permits(&self, target: SocketAddr) -> bool {
        self.allowed.iter().any(|allowed| allowed.covers(target))
    }

    /// Decides on one resolved address; `own` are the addresses that lead to the server at this moment.
    ///
    /// # Errors
    /// The reason why the address needs an explicit permission and has none.
    pub fn check(&self, target: SocketAddr, own: &OwnAddresses) -> Result<(), Prohibited> {
        if self.permits(target) {
            return Ok(());
        }
        let ip = target.ip();
        let translated = embedded(ip, own.nat64());
        for address in translated.into_iter().map(IpAddr::V4).chain([ip]) {
            let reason = match address {
                IpAddr::V4(v4) => prohibited_v4(v4),
                IpAddr::V6(v6) => prohibited_v6(v6),
            };
            let reason = reason.or_else(|| match own.holds(address) {
                None => Some(Prohibited::Unknown),
                Some(true) => Some(Prohibited::OwnAddress),
                Some(false) => None,
            });
            if let Some(reason) = reason {
                return Err(reason);
            }
            if self.clients.iter().any(|pool| pool.contains(address)) {
                return Err(Prohibited::Client);
            }
        }
        Ok(())
    }
}

fn prohibited_v4(ip: Ipv4Addr) -> Option<Prohibited> {
    let octets = ip.octets();
    if ip.is_loopback() {
        Some(Prohibited::Loopback)
    } else if octets[0] == 0 {
        Some(Prohibited::Unspecified)
    } else if octets == [169, 254, 169, 254] || octets == [100, 100, 100, 200] || octets == [192, 0, 0, 192] {
        Some(Prohibited::Metadata)
    } else if ip.is_link_local() {
        Some(Prohibited::LinkLocal)
    } else if ip.is_multicast() {
        Some(Prohibited::Multicast)
    } else if octets[0] >= 240 {
        Some(Prohibited::Broadcast)
    } else {
        None
    }
}

fn prohibited_v6(ip: Ipv6Addr) -> Option<Prohibited> {
    /// The instance metadata service of a large cloud.
    const METADATA: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);
    if ip.is_loopback() {
        Some(Prohibited::Loopback)
    } else if ip.is_unspecified() {
        Some(Prohibited::Unspecified)
    } else if ip == METADATA {
        Some(Prohibited::Metadata)
    } else if ip.is_unicast_link_local() {
        Some(Prohibited::LinkLocal)
    } else if ip.is_multicast() {
        Some(Prohibited::Multicast)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rules: &[&str], target: &str) -> Result<(), Prohibited> {
        let allowed = rules.iter().map(|rule| rule.parse().unwrap()).collect();
        let own = ["203.0.113.9/32", "198.51.100.0/24", "2001:db8:5::/48"].map(|one| one.parse().unwrap());
        let own = OwnAddresses::of(&own).with_nat64(&["2001:db8:64::/96".parse().unwrap()]);
        let rules = TargetRules::new(allowed).without_clients(&["10.9.0.0/24".parse().unwrap()]);
        rules.check(target.parse().unwrap(), &own)
    }

    #[test]
    fn public_and_private_addresses_are_open() {
        for target in [
            "8.8.8.8:53",
            "10.1.2.3:80",
            "192.168.1.1:1",
            "[2001:db8::1]:443",
            "[fd00::1]:1",
            "[64:ff9b::808:808]:53",
            "[64:ff9b:1::808:808]:53",
            "[2001:db8:64::808:808]:53",
            "[2002:808:808::1]:53",
        ] {
            assert_eq!(check(&[], target), Ok(()), "{target}");
        }
    }

    #[test]
    fn what_reaches_the_server_itself_is_closed_in_every_spelling() {
        for (target, reason) in [
            ("127.0.0.1:1", Prohibited::Loopback),
            ("[::1]:1", Prohibited::Loopback),
            ("[::ffff:127.0.0.1]:1", Prohibited::Loopback),
            ("[::127.0.0.1]:1", Prohibited::Loopback),
            ("[64:ff9b::7f00:1]:1", Prohibited::Loopback),
            ("[2002:7f00:1::]:1", Prohibited::Loopback),
            ("0.0.0.0:1", Prohibited::Unspecified),
            ("0.1.2.3:1", Prohibited::Unspecified),
            ("[::]:1", Prohibited::Unspecified),
            ("169.254.1.1:1", Prohibited::LinkLocal),
            ("[fe80::1]:1", Prohibited::LinkLocal),
            ("169.254.169.254:80", Prohibited::Metadata),
            ("[fd00:ec2::254]:80", Prohibited::Metadata),
            ("224.0.0.1:1", Prohibited::Multicast),
            ("[ff02::1]:1", Prohibited::Multicast),
            ("255.255.255.255:1", Prohibited::Broadcast),
            ("203.0.113.9:22", Prohibited::OwnAddress),
            ("[::ffff:203.0.113.9]:22", Prohibited::OwnAddress),
            ("[::ffff:0:203.0.113.9]:22", Prohibited::OwnAddress),
            ("[64:ff9b::203.0.113.9]:22", Prohibited::OwnAddress),
            ("[64:ff9b:1::203.0.113.9]:22", Prohibited::OwnAddress),
            // The same prefix with 48 bits.
            ("[64:ff9b:1:cb00:71:900::]:22", Prohibited::OwnAddress),
            ("[2001:db8:64::203.0.113.9]:22", Prohibited::OwnAddress),
            ("[2001:db8:64::127.0.0.1]:22", Prohibited::Loopback),
            ("[2002:cb00:7109::1]:22", Prohibited::OwnAddress),
            ("[2001:0:cb00:7109::1]:22", Prohibited::OwnAddress),
            // Teredo turns the bits of 203.0.113.9 over.
            ("[2001:0:808:808:0:0:34ff:8ef6]:22", Prohibited::OwnAddress),
            ("198.51.100.77:22", Prohibited::OwnAddress),
            ("[2001:db8:5::7]:22", Prohibited::OwnAddress),
            ("10.9.0.7:22", Prohibited::Client),
            ("[64:ff9b::10.9.0.7]:22", Prohibited::Client),
        ] {
            assert_eq!(check(&[], target), Err(reason), "{target}");
        }
    }

    #[test]
    fn nothing_but_what_is_permitted_is_open_while_the_own_addresses_are_unknown() {
        let rules = TargetRules::new(vec!["192.0.2.1:80".parse().unwrap()]);
        for (target, expected) in [
            ("8.8.8.8:53", Err(Prohibited::Unknown)),
            ("[2001:db8::1]:80", Err(Prohibited::Unknown)),
            ("192.0.2.1:81", Err(Prohibited::Unknown)),
            ("192.0.2.1:80", Ok(())),
        ] {
            let found = rules.check(target.parse().unwrap(), &OwnAddresses::unknown());
            assert_eq!(found, expected, "{target}");
        }
    }

    #[test]
    fn a_permission_opens_its_range_and_port_only() {
        assert_eq!(check(&["127.0.0.0/8"], "127.9.9.9:1"), Ok(()));
        assert_eq!(check(&["127.0.0.0/8"], "[::ffff:127.0.0.1]:1"), Ok(()));
        assert_eq!(check(&["127.0.0.1:53"], "127.0.0.1:53"), Ok(()));
        assert_eq!(
            check(&["127.0.0.1:53"], "127.0.0.1:54"),
            Err(Prohibited::Loopback)
        );
        assert_eq!(check(&["[::1/128]:80"], "[::1]:80"), Ok(()));
        assert_eq!(check(&["::1"], "[::1]:9"), Ok(()));
        assert_eq!(check(&["0.0.0.0/0"], "127.0.0.1:9"), Ok(()));
        assert_eq!(check(&["::/0"], "127.0.0.1:9"), Err(Prohibited::Loopback));
    }

    #[test]
    fn texts_that_are_no_range_are_refused_with_an_example() {
        for text in [
            "",
            "x",
            "1.2.3.4/33",
            "1.2.3.4:x",
            "[::1",
            "[::1]80",
            "::1/129",
            "1.2.3.4/",
            "1.2.3.4:70000",
        ] {
            let error = text.parse::<AllowedTarget>().unwrap_err();
            assert!(error.to_string().contains("CIDR[:PORT]"), "{text}");
        }
        for text in ["127.0.0.1/32:53", "10.0.0.0/8", "[::1/128]:80", "::1/128"] {
            assert_eq!(text.parse::<AllowedTarget>().unwrap().to_string(), text);
        }
    }
}
