//! Text without addresses: what is logged above the debug level names no IP address, no HOST:PORT, and none of the
//! hosts that the settings name.
//!
//! Sentences come from many places and name addresses wherever people need them. This file looks for addresses in the
//! finished sentence, so that no sentence can leak one.

use std::borrow::Cow;
use std::net::IpAddr;

/// What stands in place of an address.
pub(super) const PLACEHOLDER: &str = "[address]";

/// The text with [`PLACEHOLDER`] for each address, and for each of these hosts.
pub(super) fn without_addresses<'a>(text: &'a str, hosts: &[String]) -> Cow<'a, str> {
    let mut shown = String::new();
    let mut copied = 0;
    for (start, token) in tokens(text) {
        // Full stops and colons also end parts of a sentence; "::" ends an address.
        let trimmed = token.trim_end_matches(['.', ':', '-']);
        let found = [trimmed, token]
            .into_iter()
            .find(|word| is_address(word) || hosts.iter().any(|host| is_same_host(host, word)));
        if let Some(word) = found {
            shown.push_str(&text[copied..start]);
            shown.push_str(PLACEHOLDER);
            copied = start + word.len();
        }
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    shown.push_str(&text[copied..]);
    Cow::Owned(shown)
}

/// The longest runs of characters that addresses consist of, with where they start.
fn tokens(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_part = |c: char| c.is_alphanumeric() || ".:-_%[]".contains(c);
    let mut rest = 0;
    std::iter::from_fn(move || {
        let start = rest + text[rest..].find(is_part)?;
        let end = text[start..]
            .find(|c| !is_part(c))
            .map_or(text.len(), |length| start + length);
        rest = end;
        Some((start, &text[start..end]))
    })
}

fn is_address(word: &str) -> bool {
    is_ip(word) || is_endpoint(word) || word.split('-').all(is_ip)
}

/// An address, in brackets or with its zone too.
fn is_ip(word: &str) -> bool {
    let bare = word.strip_prefix('[').and_then(|word| word.strip_suffix(']'));
    let bare = bare.unwrap_or(word);
    let without_zone = bare.split_once('%').map_or(bare, |(address, _)| address);
    without_zone.parse::<IpAddr>().is_ok()
}

/// HOST:PORT, or HOST:FIRST-LAST of a range of ports.
fn is_endpoint(word: &str) -> bool {
    let Some((host, ports)) = word.rsplit_once(':') else {
        return false;
    };
    let is_port = |text: &str| text.parse::<u16>().is_ok();
    let are_ports = match ports.split_once('-') {
        Some((first, last)) => is_port(first) && is_port(last),
        None => is_port(ports),
    };
    are_ports && (is_ip(host) || (!host.contains(':') && host.contains(char::is_alphabetic)))
}

fn is_same_host(host: &str, word: &str) -> bool {
    !host.is_empty() && host.eq_ignore_ascii_case(word)
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, SocketAddrV6};

    use proptest::prelude::*;

    use super::*;

    fn shown(text: &str) -> String {
        without_addresses(text, &["vpn.example.org".to_owned()]).into_owned()
    }

    #[test]
    fn addresses_and_known_hosts_are_replaced_and_the_sentence_stays() {
        for (text, expected) in [
            (
                "connected to 192.0.2.1:443, round trip 0.34 ms, udp 127.0.0.1:53 -> web:80",
                "connected to [address], round trip 0.34 ms, udp [address] -> [address]",
            ),
            ("listening on [::]:443", "listening on [address]"),
            (
                "metrics on http://[::1]:9464/metrics",
                "metrics on http://[address]/metrics",
            ),
            (
                "TUN gw0: routes 10.0.0.0/8, fe80::1%eth0.",
                "TUN gw0: routes [address]/8, [address].",
            ),
            ("pool 10.0.0.1-10.0.0.9: exhausted", "pool [address]: exhausted"),
            ("ports of web.test:80-90", "ports of [address]"),
            ("the net fd00:: is known", "the net [address] is known"),
            ("VPN.example.org: no answer", "[address]: no answer"),
            (
                "cannot use /var/lib/users.db: the disk is full",
                "cannot use /var/lib/users.db: the disk is full",
            ),
            (
                "2 of 3 connections lost at 12:30:01: no answer",
                "2 of 3 connections lost at 12:30:01: no answer",
            ),
            ("version 1.2.3 gets 1.5 Gbit/s", "version 1.2.3 gets 1.5 Gbit/s"),
            ("", ""),
        ] {
            assert_eq!(shown(text), expected);
        }
    }

    proptest! {
        #[test]
        fn no_address_stays_wherever_it_stands(
            v4: u32, v6: u128, port: u16, zone in 0..3_u32,
            before in "[ a-z(\"=/,]{0,8}[ (\"=/,]", after in "[ )\",;/][ a-z(\",]{0,8}",
        ) {
            let (v4, v6) = (IpAddr::V4(v4.into()), IpAddr::V6(v6.into()));
            let IpAddr::V6(bare) = v6 else { unreachable!() };
            let zoned = SocketAddrV6::new(bare, port, 0, zone);
            for address in [
                v4.to_string(),
                v6.to_string(),
                format!("[{v6}]"),
                SocketAddr::new(v4, port).to_string(),
                SocketAddr::new(v6, port).to_string(),
                zoned.to_string(),
                format!("some-host.test:{port}"),
            ] {
                for end in ["", ".", ":"] {
                    let text = format!("{before}{address}{end}{after}");
                    let found = shown(&text);
                    prop_assert_eq!(found, format!("{}{}{}{}", before, PLACEHOLDER, end, after));
                }
            }
        }

        #[test]
        fn any_text_is_taken(text: String) {
            let _ = shown(&text);
        }
    }
}
