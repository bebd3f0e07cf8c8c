//! The addresses and ports of the server at which a user may listen.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::Arc;

/// Where a user may listen; a clone is the same list. By default nowhere.
///
/// ```
/// use tunnel_proto::ListenRights;
///
/// let rights = ListenRights::only(vec!["8000-8010".parse().unwrap()]);
/// assert!(rights.covers("127.0.0.1:8005".parse().unwrap()));
/// assert!(!rights.covers("0.0.0.0:8005".parse().unwrap()));
/// assert!(!ListenRights::default().covers("127.0.0.1:8005".parse().unwrap()));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenRights(Option<Arc<[ListenRange]>>);

/// Nowhere.
impl Default for ListenRights {
    fn default() -> Self {
        Self::only(Vec::new())
    }
}

impl ListenRights {
    /// Everywhere.
    pub const ALL: Self = Self(None);

    /// At these and nowhere else.
    #[must_use]
    pub fn only(ranges: Vec<ListenRange>) -> Self {
        Self(Some(ranges.into()))
    }

    /// Whether the user may listen there.
    #[must_use]
    pub fn covers(&self, address: SocketAddr) -> bool {
        let Some(ranges) = &self.0 else {
            return true;
        };
        ranges.iter().any(|range| range.covers(address))
    }
}

/// Ports of one address of the server, or of all of them. Its text is `PORT` or `FIRST-LAST` on loopback, behind
/// `ADDR:` or `[V6]:` on that address, and behind `:` on all addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenRange {
    /// The unspecified address stands for all.
    address: Address,
    ports: RangeInclusive<u16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Address {
    All,
    Loopback,
    One(IpAddr),
}

/// The text is no range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{0}\" is not [ADDRESS]:PORTS; write PORT or FIRST-LAST (on loopback), ADDRESS:PORTS, [V6]:PORTS or :PORTS (on all \
     addresses)"
)]
pub struct NotAListenRange(String);

impl ListenRange {
    fn covers(&self, address: SocketAddr) -> bool {
        let ip = address.ip();
        let is_there = match self.address {
            Address::All => true,
            Address::Loopback => ip == Ipv4Addr::LOCALHOST || ip == Ipv6Addr::LOCALHOST,
            Address::One(one) => one == ip,
        };
        is_there && self.ports.contains(&address.port())
    }
}

impl FromStr for ListenRange {
    type Err = NotAListenRange;

    fn from_str(text: &str) -> Result<Self, NotAListenRange> {
        let wrong = || NotAListenRange(text.to_owned());
        let (address, ports) = text.rsplit_once(':').unwrap_or(("localhost", text));
        let address = match address {
            "" => Address::All,
            "localhost" => Address::Loopback,
            _ => {
                let bracketed = address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
                let ip = match bracketed {
                    Some(address) => address.parse().map(IpAddr::V6),
                    None => address.parse().map(IpAddr::V4),
                };
                let ip = ip.map_err(|_| wrong())?;
                if ip.is_unspecified() {
                    Address::All
                } else {
                    Address::One(ip)
                }
            }
        };
        let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
        let port = |text: &str| {
            let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse::<u16>().ok().filter(|port| is_plain && *port > 0)
        };
        match (port(first), port(last)) {
            (Some(first), Some(last)) if first <= last => Ok(Self {
                address,
                ports: first..=last,
            }),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for ListenRange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Address::All => formatter.write_str(":")?,
            Address::Loopback => {}
            Address::One(IpAddr::V4(address)) => write!(formatter, "{address}:")?,
            Address::One(IpAddr::V6(address)) => write!(formatter, "[{address}]:")?,
        }
        write!(formatter, "{}", self.ports.start())?;
        if self.ports.len() > 1 {
            write!(formatter, "-{}", self.ports.end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_covers_its_ports_at_its_address_alone() {
        for (range, inside, outside) in [
            (
                "8000-8010",
                &["127.0.0.1:8000", "[::1]:8010"][..],
                &[
                    "127.0.0.1:8011",
                    "127.0.0.2:8000",
                    "0.0.0.0:8000",
                    "[::]:8000",
                    "192.0.2.1:8000",
                ][..],
            ),
            (
                ":80",
                &["0.0.0.0:80", "[::]:80", "192.0.2.1:80", "127.0.0.1:80"],
                &["0.0.0.0:81"],
            ),
            ("192.0.2.1:80", &["192.0.2.1:80"], &["0.0.0.0:80", "127.0.0.1:80"]),
            (
                "[2001:db8::1]:80-81",
                &["[2001:db8::1]:81"],
                &["[::]:80", "[::1]:80"],
            ),
        ] {
            let rights = ListenRights::only(vec![range.parse().unwrap()]);
            for address in inside {
                assert!(rights.covers(address.parse().unwrap()), "{range} {address}");
            }
            for address in outside {
                assert!(!rights.covers(address.parse().unwrap()), "{range} {address}");
                assert!(ListenRights::ALL.covers(address.parse().unwrap()));
            }
        }
    }

    #[test]
    fn a_range_survives_its_text_and_others_are_refused() {
        for text in ["80", "8000-8010", ":80", "192.0.2.1:80", "[2001:db8::1]:80-81"] {
            assert_eq!(text.parse::<ListenRange>().unwrap().to_string(), text);
        }
        for (text, same) in [
            ("localhost:80", "80"),
            ("0.0.0.0:80", ":80"),
            ("[::]:80-80", ":80"),
        ] {
            assert_eq!(text.parse::<ListenRange>().unwrap().to_string(), same);
        }
        for text in [
            "",
            ":",
            "0",
            "81-80",
            "+80",
            "a:80",
            "::1:80",
            "[192.0.2.1]:80",
            "80-",
            "70000",
            "10.0.0.0/8:80",
        ] {
            assert!(text.parse::<ListenRange>().is_err(), "{text}");
        }
    }
}
