//! The ranges that one end routes for the other (RFC 9484 section 4.7.3): ordered, without overlap.

use std::net::IpAddr;

use super::prefix::{Prefix, address_of, bits, low_bits, number};

/// IP protocol numbers of ICMP and ICMPv6, which no range excludes (RFC 9484 section 4.7.3).
const ICMP: [u8; 2] = [1, 58];

/// Addresses from `start` to `end`, both included, for one IP protocol or, with 0, for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IpRange {
    start: IpAddr,
    end: IpAddr,
    protocol: u8,
}

/// Why ranges are no routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// It ends before it starts, or in another IP version.
    #[error("range ends before it starts")]
    Backwards,
    /// Not ordered by IP version, protocol and address, or two of one protocol overlap.
    #[error("ranges are not in order, or overlap")]
    Order,
    /// A range for one protocol overlaps a range for all.
    #[error("range for one protocol overlaps a range for all")]
    Overlap,
}

impl IpRange {
    /// A range for `protocol`; 0 stands for all.
    ///
    /// # Errors
    /// [`RouteError::Backwards`].
    pub fn new(start: IpAddr, end: IpAddr, protocol: u8) -> Result<Self, RouteError> {
        if start.is_ipv6() != end.is_ipv6() || start > end {
            return Err(RouteError::Backwards);
        }
        Ok(Self { start, end, protocol })
    }

    /// The first address.
    #[must_use]
    pub const fn start(&self) -> IpAddr {
        self.start
    }

    /// The last address.
    #[must_use]
    pub const fn end(&self) -> IpAddr {
        self.end
    }

    /// The IP protocol; 0 for all.
    #[must_use]
    pub const fn protocol(&self) -> u8 {
        self.protocol
    }

    /// Whether `address` lies in it.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        // Versions do not mix: every IPv4 address is below every IPv6 address.
        self.start <= address && address <= self.end
    }

    /// The fewest prefixes that cover exactly this range, in order: at most 62 for IPv4, 254 for IPv6.
    pub fn prefixes(&self) -> impl Iterator<Item = Prefix> + use<> {
        let (width, is_ipv6) = (u32::from(bits(self.start)), self.start.is_ipv6());
        let last = number(self.end);
        let mut next = Some(number(self.start));
        std::iter::from_fn(move || {
            let first = next?;
            // The largest block that begins here and does not pass the end.
            let host_bits = (0..=width.min(first.trailing_zeros()))
                .rev()
                .find(|count| low_bits(*count) <= last - first)?;
            let block_last = first + low_bits(host_bits);
            next = (block_last < last).then(|| block_last + 1);
            Prefix::new(address_of(first, is_ipv6), (width - host_bits) as u8).ok()
        })
    }

    /// What ranges are ordered by.
    const fn key(&self) -> (bool, u8, IpAddr) {
        (self.start.is_ipv6(), self.protocol, self.start)
    }
}

impl From<Prefix> for IpRange {
    fn from(prefix: Prefix) -> Self {
        Self {
            start: prefix.address(),
            end: prefix.last(),
            protocol: 0,
        }
    }
}

/// Ranges in the order of a ROUTE_ADVERTISEMENT capsule.
///
/// ```
/// use masque::ip::Routes;
/// let routes = Routes::of(&["10.0.1.0/24".parse().unwrap(), "10.0.0.0/24".parse().unwrap()]);
/// assert_eq!(routes.ranges().len(), 1);
/// assert!(routes.allows("10.0.1.7".parse().unwrap(), 6));
/// assert_eq!(routes.prefixes().collect::<Vec<_>>(), ["10.0.0.0/23".parse().unwrap()]);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Routes {
    ranges: Vec<IpRange>,
}

impl Routes {
    /// No routes.
    #[must_use]
    pub const fn none() -> Self {
        Self { ranges: Vec::new() }
    }

    /// These prefixes for all protocols, in any order; neighbours and overlapping ones become one range.
    #[must_use]
    pub fn of(prefixes: &[Prefix]) -> Self {
        let mut sorted: Vec<IpRange> = prefixes.iter().copied().map(IpRange::from).collect();
        sorted.sort_unstable_by_key(IpRange::key);
        let mut ranges: Vec<IpRange> = Vec::with_capacity(sorted.len());
        for range in sorted {
            match ranges.last_mut() {
                Some(last)
                    if last.start.is_ipv6() == range.start.is_ipv6()
                        && number(range.start) <= number(last.end).saturating_add(1) =>
                {
                    last.end = last.end.max(range.end);
                }
                _ => ranges.push(range),
            }
        }
        Self { ranges }
    }

    /// Ranges that are in order already.
    ///
    /// # Errors
    /// [`RouteError::Order`], [`RouteError::Overlap`].
    pub fn checked(ranges: Vec<IpRange>) -> Result<Self, RouteError> {
        let in_order = ranges.windows(2).all(|pair| {
            let group = |range: &IpRange| (range.start.is_ipv6(), range.protocol);
            let (before, after) = (pair[0], pair[1]);
            group(&before) < group(&after) || (group(&before) == group(&after) && before.end < after.start)
        });
        if !in_order {
            return Err(RouteError::Order);
        }
        let routes = Self { ranges };
        let overlaps = routes
            .ranges
            .iter()
            .filter(|range| range.protocol != 0)
            .any(|range| {
                routes
                    .at_or_before(range.end, 0)
                    .is_some_and(|all| all.end >= range.start)
            });
        if overlaps {
            return Err(RouteError::Overlap);
        }
        Ok(routes)
    }

    /// The ranges, in order.
    #[must_use]
    pub fn ranges(&self) -> &[IpRange] {
        &self.ranges
    }

    /// Whether a packet of `protocol` may go to `address`. ICMP may go wherever any protocol may.
    #[must_use]
    pub fn allows(&self, address: IpAddr, protocol: u8) -> bool {
        let holds = |protocol| {
            self.at_or_before(address, protocol)
                .is_some_and(|range| address <= range.end)
        };
        holds(0)
            || (protocol != 0 && holds(protocol))
            || (ICMP.contains(&protocol) && self.ranges.iter().any(|range| range.contains(address)))
    }

    /// The prefixes that cover them, for a routing table; protocols are not told apart. A hostile peer can make a
    /// great many of them: take no more than is of use.
    pub fn prefixes(&self) -> impl Iterator<Item = Prefix> {
        self.ranges.iter().flat_map(IpRange::prefixes)
    }

    /// The last range of this protocol and version that starts at `address` or before.
    fn at_or_before(&self, address: IpAddr, protocol: u8) -> Option<&IpRange> {
        let key = (address.is_ipv6(), protocol, address);
        let after = self.ranges.partition_point(|range| range.key() <= key);
        self.ranges[..after]
            .last()
            .filter(|range| (range.start.is_ipv6(), range.protocol) == (key.0, key.1))
    }
}
