//! IP prefixes as people write them: `10.77.0.0/24`, or an address alone. Host bits are kept, because the same text
//! also names an address on an interface.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// An address with a prefix length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

/// The text is not `ADDRESS/LENGTH`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is no address range; examples: 10.77.0.0/24, fd77::/64, 192.0.2.1")]
pub struct NotAPrefix(String);

impl Prefix {
    /// `None` where the length is more than the address has bits.
    #[must_use]
    pub fn new(address: IpAddr, length: u8) -> Option<Self> {
        (length <= bits(address)).then_some(Self { address, length })
    }

    /// Exactly this address.
    #[must_use]
    pub fn host(address: IpAddr) -> Self {
        Self {
            address,
            length: bits(address),
        }
    }

    /// The address, host bits included.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Its length in bits.
    #[must_use]
    pub fn length(&self) -> u8 {
        self.length
    }

    /// The same prefix with host bits zero.
    #[must_use]
    pub fn network(&self) -> Self {
        let address = match self.address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.length)).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & mask))
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.length)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
            }
        };
        Self { address, ..*self }
    }

    /// Whether the address lies in it; never, where the families differ.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        Self::new(address, self.length).is_some_and(|other| {
            other.address.is_ipv4() == self.address.is_ipv4() && other.network() == self.network()
        })
    }

    /// Whether some address lies in both.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        let (wide, narrow) = if self.length <= other.length {
            (self, other)
        } else {
            (other, self)
        };
        wide.contains(narrow.address)
    }
}

fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

impl fmt::Display for Prefix {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.address, self.length)
    }
}

impl FromStr for Prefix {
    type Err = NotAPrefix;

    fn from_str(text: &str) -> Result<Self, NotAPrefix> {
        let wrong = || NotAPrefix(text.to_owned());
        let (address, length) = text
            .split_once('/')
            .map_or((text, None), |(address, length)| (address, Some(length)));
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        match length {
            None => Ok(Self::host(address)),
            Some(length) => length
                .parse()
                .ok()
                .and_then(|length| Self::new(address, length))
                .ok_or_else(wrong),
        }
    }
}

impl TryFrom<String> for Prefix {
    type Error = NotAPrefix;

    fn try_from(text: String) -> Result<Self, NotAPrefix> {
        text.parse()
    }
}

impl From<Prefix> for String {
    fn from(prefix: Prefix) -> Self {
        prefix.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    #[test]
    fn texts_come_back_and_wrong_ones_are_refused() {
        for text in ["10.77.0.5/24", "0.0.0.0/0", "fd77::1/64", "::/0"] {
            assert_eq!(prefix(text).to_string(), text);
        }
        assert_eq!(prefix("192.0.2.1").to_string(), "192.0.2.1/32");
        for text in [
            "",
            "10.0.0.0/33",
            "::/129",
            "10.0.0.0/",
            "10.0.0/8",
            "a/8",
            "10.0.0.0/-1",
        ] {
            assert!(text.parse::<Prefix>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_network_has_no_host_bits() {
        assert_eq!(prefix("10.77.0.5/24").network(), prefix("10.77.0.0/24"));
        assert_eq!(prefix("fd77::1/0").network(), prefix("::/0"));
        assert_eq!(prefix("10.1.2.3/32").network(), prefix("10.1.2.3"));
    }

    #[test]
    fn ranges_contain_and_overlap_only_their_family() {
        assert!(prefix("10.0.0.0/8").contains("10.255.0.1".parse().unwrap()));
        assert!(!prefix("0.0.0.0/0").contains("::1".parse().unwrap()));
        assert!(!prefix("::/0").contains("10.0.0.1".parse().unwrap()));
        assert!(prefix("10.0.0.0/8").overlaps(&prefix("10.1.0.0/16")));
        assert!(prefix("10.1.0.0/16").overlaps(&prefix("10.0.0.0/8")));
        assert!(!prefix("10.1.0.0/16").overlaps(&prefix("10.2.0.0/16")));
    }
}
