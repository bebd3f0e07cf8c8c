//! Which targets a server connects to for an authenticated user.
//!
//! The rules look at the resolved, canonical address that is then connected, never at a name. Public and private
//! addresses are open; what could reach the server itself or its cloud's metadata needs an explicit permission.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

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
}

/// The rules of one server.
#[derive(Clone, Debug, Default)]
pub struct TargetRules {
    allowed: Vec<AllowedTarget>,
}

impl TargetRules {
    /// Rules with these explicit permissions.
    #[must_use]
    pub fn new(allowed: Vec<AllowedTarget>) -> Self {
        Self { allowed }
    }

    /// Decides on one resolved address; `own` are the server's interface addresses at this moment.
    ///
    /// # Errors
    /// The reason why the address needs an explicit permission and has none.
    pub fn check(&self, target: SocketAddr, own: &[IpAddr]) -> Result<(), Prohibited> {
        if self.allowed.iter().any(|allowed| allowed.covers(target)) {
            return Ok(());
        }
        let ip = canonical(target.ip());
        let reason = match ip {
            IpAddr::V4(v4) => prohibited_v4(v4),
            IpAddr::V6(v6) => prohibited_v6(v6),
        };
        match reason {
            Some(reason) => Err(reason),
            None if own.iter().any(|own| canonical(*own) == ip) => Err(Prohibited::OwnAddress),
            None => Ok(()),
        }
    }
}

/// The IPv4 address inside mapped, compatible, NAT64 (RFC 6052, RFC 8215) and 6to4 forms; other addresses as they are.
#[must_use]
pub(crate) fn canonical(ip: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = ip else { return ip };
    let segments = v6.segments();
    let low = Ipv4Addr::from(u32::from(segments[6]) << 16 | u32::from(segments[7]));
    match segments {
        [0, 0, 0, 0, 0, 0xffff, _, _] | [0x64, 0xff9b, 0, 0, 0, 0, _, _] | [0x64, 0xff9b, 1, ..] => {
            IpAddr::V4(low)
        }
        [0, 0, 0, 0, 0, 0, high, _] if high != 0 => IpAddr::V4(low),
        [0x2002, high, low, ..] => IpAddr::V4(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low))),
        _ => ip,
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
        TargetRules::new(allowed).check(target.parse().unwrap(), &["203.0.113.9".parse().unwrap()])
    }

    #[test]
    fn public_and_private_addresses_are_open() {
        for target in [
            "8.8.8.8:53",
            "10.1.2.3:80",
            "192.168.1.1:1",
            "[2001:db8::1]:443",
            "[fd00::1]:1",
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
        ] {
            assert_eq!(check(&[], target), Err(reason), "{target}");
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
