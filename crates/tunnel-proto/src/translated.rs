//! IPv6 addresses that stand for IPv4 ones: a translator or a relay carries packets to them on to an IPv4 address, maybe
//! back to the server itself.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use masque::ip::Prefix;

/// The lengths of NAT64 prefixes, in bits (RFC 6052 section 2.2).
const NAT64_LENGTHS: [u8; 6] = [32, 40, 48, 56, 64, 96];

/// What `ipv4only.arpa` has for IPv4 (RFC 7050 section 2.2).
const WELL_KNOWN: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 0, 170), Ipv4Addr::new(192, 0, 0, 171)];

/// Only one of these stands for the IPv4 address itself and nothing else: a permission for it is one for them.
#[must_use]
pub(crate) fn canonical(ip: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = ip else { return ip };
    let v4 = match v6.segments() {
        // Mapped (RFC 4291 section 2.5.5.2), translated by SIIT (RFC 2765 section 2.1), NAT64 (RFC 6052 section 2.1).
        [0, 0, 0, 0, 0, 0xffff, ..] | [0, 0, 0, 0, 0xffff, 0, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => {
            at(v6, 12)
        }
        // Compatible (RFC 4291 section 2.5.5.1); below are `::`, `::1` and their neighbours.
        [0, 0, 0, 0, 0, 0, high, _] if high != 0 => at(v6, 12),
        // 6to4 (RFC 3056 section 2).
        [0x2002, ..] => at(v6, 2),
        _ => return ip,
    };
    IpAddr::V4(v4)
}

/// The IPv4 addresses that packets to `ip` may be carried on to, where `nat64` are the prefixes of the network's
/// translators; none for an address that is only itself.
pub(crate) fn embedded(ip: IpAddr, nat64: &[Prefix]) -> Vec<Ipv4Addr> {
    let IpAddr::V6(v6) = ip else {
        return Vec::new();
    };
    if let IpAddr::V4(v4) = canonical(ip) {
        return vec![v4];
    }
    let mut found = Vec::new();
    match v6.segments() {
        // Teredo (RFC 4380 section 4): its server, and the client's address with all bits turned over.
        [0x2001, 0, ..] => found.extend([at(v6, 4), Ipv4Addr::from(!u32::from(at(v6, 12)))]),
        // Prefixes for translators of a site (RFC 8215), of whatever length.
        [0x64, 0xff9b, 1, ..] => {
            let lengths = NAT64_LENGTHS.into_iter().filter(|length| *length >= 48);
            // With another length than the translator's some bits are the prefix's.
            found.extend(
                lengths
                    .map(|length| nat64_embedded(v6, length))
                    .filter(is_somebody),
            );
        }
        _ => {}
    }
    let others = nat64.iter().filter(|prefix| prefix.contains(ip));
    found.extend(others.map(|prefix| nat64_embedded(v6, prefix.length())));
    found
}

/// The prefix of a translator by one of the addresses that it gives `ipv4only.arpa` (RFC 7050 section 3).
#[must_use]
pub fn nat64_prefix(answer: Ipv6Addr) -> Option<Prefix> {
    // The shortest suffix first: prefixes of 96 bits are what is in use.
    let mut lengths = NAT64_LENGTHS.into_iter().rev();
    let length = lengths.find(|length| WELL_KNOWN.contains(&nat64_embedded(answer, *length)))?;
    Prefix::around(IpAddr::V6(answer), length).ok()
}

/// The IPv4 address behind a prefix of this length: bits 64 to 71 belong to neither (RFC 6052 section 2.2).
fn nat64_embedded(v6: Ipv6Addr, length: u8) -> Ipv4Addr {
    const RESERVED: usize = 8;
    let octets = v6.octets();
    let behind = (usize::from(length / 8)..octets.len()).filter(|index| length == 96 || *index != RESERVED);
    let mut found = [0; 4];
    for (to, from) in found.iter_mut().zip(behind) {
        *to = octets[from];
    }
    found.into()
}

fn is_somebody(v4: &Ipv4Addr) -> bool {
    v4.octets()[0] != 0
}

fn at(v6: Ipv6Addr, start: usize) -> Ipv4Addr {
    let octets = v6.octets();
    Ipv4Addr::new(
        octets[start],
        octets[start + 1],
        octets[start + 2],
        octets[start + 3],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, nat64: &[&str]) -> Vec<String> {
        let nat64: Vec<Prefix> = nat64.iter().map(|one| one.parse().unwrap()).collect();
        let found = embedded(text.parse().unwrap(), &nat64);
        found.iter().map(Ipv4Addr::to_string).collect()
    }

    #[test]
    fn every_form_gives_its_ipv4_address() {
        for form in [
            "::ffff:192.0.2.33",
            "::192.0.2.33",
            "::ffff:0:192.0.2.33",
            "64:ff9b::192.0.2.33",
            "2002:c000:221::1",
            "64:ff9b:1::192.0.2.33",
        ] {
            assert_eq!(of(form, &[]), ["192.0.2.33"], "{form}");
        }
        assert_eq!(
            of("2001:0:c000:221:8000:63bf:3fff:fdd2", &[]),
            ["192.0.2.33", "192.0.2.45"]
        );
        for form in [
            "2001:db8::c000:221",
            "2001:1::c000:221",
            "fd00::c000:221",
            "::1",
            "::",
            "192.0.2.33",
        ] {
            assert_eq!(of(form, &[]), [""; 0], "{form}");
        }
    }

    /// The table of RFC 6052 section 2.4.
    #[test]
    fn nat64_prefixes_of_every_length_are_read_and_discovered() {
        for (prefix, address, answer) in [
            ("2001:db8::/32", "2001:db8:c000:221::", "2001:db8:c000:aa::"),
            ("2001:db8:100::/40", "2001:db8:1c0:2:21::", "2001:db8:1c0:0:aa::"),
            (
                "2001:db8:122::/48",
                "2001:db8:122:c000:2:2100::",
                "2001:db8:122:c000:0:aa00::",
            ),
            (
                "2001:db8:122:300::/56",
                "2001:db8:122:3c0:0:221::",
                "2001:db8:122:3c0:0:aa::",
            ),
            (
                "2001:db8:122:344::/64",
                "2001:db8:122:344:c0:2:2100::",
                "2001:db8:122:344:c0:0:ab00::",
            ),
            (
                "2001:db8:122:344::/96",
                "2001:db8:122:344::192.0.2.33",
                "2001:db8:122:344::192.0.0.170",
            ),
        ] {
            assert_eq!(of(address, &[prefix]), ["192.0.2.33"], "{prefix}");
            let found = nat64_prefix(answer.parse().unwrap());
            assert_eq!(
                found.map(|found| found.to_string()).as_deref(),
                Some(prefix),
                "{answer}"
            );
        }
        assert_eq!(nat64_prefix("2001:db8::1".parse().unwrap()), None);
    }
}
