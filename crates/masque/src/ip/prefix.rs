//! An IP prefix as capsules and scopes carry it: no bits set beyond its length.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A network, or a single address where the length is all of its bits. Its text form is `ADDRESS/LENGTH`; read, a
/// bare address is a prefix of full length.
///
/// ```
/// let prefix: masque::ip::Prefix = "10.77.0.0/24".parse().unwrap();
/// assert!(prefix.contains("10.77.0.9".parse().unwrap()));
/// assert_eq!(prefix.last().to_string(), "10.77.0.255");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

/// What is no prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PrefixError {
    /// Not an address, or an address and a number.
    #[error("not of the form ADDRESS/LENGTH")]
    Form,
    /// More bits than the address has.
    #[error("prefix length is above the bits of its address")]
    Length,
    /// The address has bits beyond the prefix length.
    #[error("address has bits set beyond its prefix length")]
    HostBits,
}

impl Prefix {
    /// All IPv4 addresses.
    pub const ALL_V4: Self = Self {
        address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        length: 0,
    };

    /// All IPv6 addresses.
    pub const ALL_V6: Self = Self {
        address: IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        length: 0,
    };

    /// The prefix of `length` bits at `address`.
    ///
    /// # Errors
    /// [`PrefixError::Length`], [`PrefixError::HostBits`].
    pub fn new(address: IpAddr, length: u8) -> Result<Self, PrefixError> {
        if length > bits(address) {
            return Err(PrefixError::Length);
        }
        let prefix = Self { address, length };
        if number(address) & prefix.host_mask() != 0 {
            return Err(PrefixError::HostBits);
        }
        Ok(prefix)
    }

    /// The prefix of `length` bits that `address` lies in.
    ///
    /// # Errors
    /// [`PrefixError::Length`].
    pub fn around(address: IpAddr, length: u8) -> Result<Self, PrefixError> {
        if length > bits(address) {
            return Err(PrefixError::Length);
        }
        let prefix = Self { address, length };
        let first = number(address) & !prefix.host_mask();
        Ok(Self {
            address: address_of(first, address.is_ipv6()),
            length,
        })
    }

    /// This one address.
    #[must_use]
    pub const fn host(address: IpAddr) -> Self {
        Self {
            address,
            length: bits(address),
        }
    }

    /// The first address.
    #[must_use]
    pub const fn address(&self) -> IpAddr {
        self.address
    }

    /// The length in bits: at most 32 or 128.
    #[must_use]
    pub const fn length(&self) -> u8 {
        self.length
    }

    /// Whether it is a single address.
    #[must_use]
    pub const fn is_host(&self) -> bool {
        self.length == bits(self.address)
    }

    /// The last address.
    #[must_use]
    pub fn last(&self) -> IpAddr {
        address_of(number(self.address) | self.host_mask(), self.address.is_ipv6())
    }

    /// Whether `address` lies in it; never across IP versions.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.address.is_ipv6() == address.is_ipv6()
            && number(address) & !self.host_mask() == number(self.address)
    }

    fn host_mask(&self) -> u128 {
        low_bits(u32::from(bits(self.address) - self.length))
    }
}

impl FromStr for Prefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let address = |text: &str| text.parse::<IpAddr>().map_err(|_| PrefixError::Form);
        let Some((network, length)) = text.split_once('/') else {
            return Ok(Self::host(address(text)?));
        };
        // `u8::from_str` also takes a sign.
        if length.is_empty() || length.len() > 3 || !length.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(PrefixError::Form);
        }
        Self::new(
            address(network)?,
            length.parse().map_err(|_| PrefixError::Length)?,
        )
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.address, self.length)
    }
}

impl fmt::Debug for Prefix {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// Bits of an address of this version.
pub(super) const fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// The address as a number.
pub(super) fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// The address of a number, whose upper bits do not count for IPv4.
pub(super) const fn address_of(number: u128, is_ipv6: bool) -> IpAddr {
    if is_ipv6 {
        IpAddr::V6(Ipv6Addr::from_bits(number))
    } else {
        IpAddr::V4(Ipv4Addr::from_bits(number as u32))
    }
}

/// A number with its lowest `count` bits set, 0 to 128.
pub(super) fn low_bits(count: u32) -> u128 {
    1_u128.checked_shl(count).unwrap_or(0).wrapping_sub(1)
}
