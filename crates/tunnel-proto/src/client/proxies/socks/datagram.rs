//! Datagrams of an association: each names its target before its payload, and answers name whom they come from
//! (RFC 1928 section 7). Fragments are none of ours, as the RFC permits.

use std::borrow::Borrow;

use masque::{Target, TargetError};

use super::address::Address;

/// Two reserved bytes and the number of the fragment, which come before the address.
const HEAD_BYTES: usize = 3;
const FRAGMENT: usize = 2;

/// One datagram to or from a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocksDatagram<'a> {
    /// The target as the program wrote it: what [`SocksAddress::new`] takes.
    pub address: &'a [u8],
    /// What the target gets.
    pub payload: &'a [u8],
}

/// Bytes that are no datagram of an association, or a fragment of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no whole datagram of SOCKS5")]
pub struct NotWhole;

impl<'a> SocksDatagram<'a> {
    /// Reads a datagram that came from a program. The reserved bytes may be anything.
    ///
    /// # Errors
    /// `NotWhole`.
    pub fn read(datagram: &'a [u8]) -> Result<Self, NotWhole> {
        let (head, rest) = datagram.split_at_checked(HEAD_BYTES).ok_or(NotWhole)?;
        if head[FRAGMENT] != 0 {
            return Err(NotWhole);
        }
        let (_, payload) = Address::read(rest).map_err(|_| NotWhole)?;
        let address = &rest[..rest.len() - payload.len()];
        Ok(Self { address, payload })
    }
}

/// A target's address in the bytes in which a program wrote it, so that answers name it in the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SocksAddress(Box<[u8]>);

impl SocksAddress {
    /// Keeps the address of a datagram.
    ///
    /// # Errors
    /// `NotWhole` where the bytes are not one address.
    pub fn new(address: &[u8]) -> Result<Self, NotWhole> {
        match Address::read(address) {
            Ok((_, [])) => Ok(Self(address.into())),
            _ => Err(NotWhole),
        }
    }

    /// Where it leads.
    ///
    /// # Errors
    /// [`TargetError`]: the name is none, or the port is 0.
    pub fn target(&self) -> Result<Target, TargetError> {
        let (address, _) = Address::read(&self.0).expect("it was read before it was kept");
        address.target()
    }

    /// What an answer's payload follows.
    #[must_use]
    pub fn header(&self) -> Box<[u8]> {
        [&[0; HEAD_BYTES][..], &self.0].concat().into()
    }
}

/// Found by the bytes that a datagram has.
impl Borrow<[u8]> for SocksAddress {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_datagram_names_its_target_and_its_answer_the_same() {
        for (address, target) in [
            (&b"\x01\xc6\x33\x64\x09\x00\x35"[..], "198.51.100.9:53"),
            (b"\x03\x0bExample.org\x00\x35", "example.org:53"),
            (
                b"\x04\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x09\x00\x35",
                "[2001:db8::9]:53",
            ),
        ] {
            let datagram = [&[0, 0, 0], address, b"question"].concat();
            let read = SocksDatagram::read(&datagram).unwrap();
            let payload = &b"question"[..];
            assert_eq!(read, SocksDatagram { address, payload });
            let kept = SocksAddress::new(address).unwrap();
            assert_eq!(kept.target(), Ok(target.parse().unwrap()));
            assert_eq!([&kept.header(), payload].concat(), datagram);
            assert!(HashMap::from([(kept, ())]).contains_key(address));
        }
    }

    #[test]
    fn a_fragment_a_strange_kind_and_what_is_cut_are_no_datagrams() {
        let whole = b"\0\0\0\x03\x04host\x00\x35";
        assert_eq!(SocksDatagram::read(whole).unwrap().payload, b"");
        for cut in 0..whole.len() {
            assert_eq!(SocksDatagram::read(&whole[..cut]), Err(NotWhole), "{cut}");
        }
        for (at, byte) in [(2, 1), (2, 0x80), (3, 2), (3, 0)] {
            let mut broken = *whole;
            broken[at] = byte;
            assert_eq!(SocksDatagram::read(&broken), Err(NotWhole), "{broken:?}");
        }
    }

    #[test]
    fn an_address_may_be_whole_and_lead_nowhere() {
        for address in [
            &b"\x01\x7f\0\0\x01\0\0"[..],
            b"\x03\x02\xff\xff\0\x35",
            b"\x03\x00\0\x35",
        ] {
            assert!(
                SocksAddress::new(address).unwrap().target().is_err(),
                "{address:?}"
            );
        }
        assert_eq!(SocksAddress::new(b"\x01\x7f\0\0\x01\0\x35x"), Err(NotWhole));
    }

    proptest! {
        #[test]
        fn what_is_read_is_all_of_the_datagram(
            head in prop::sample::select(vec![&b"\0\0\0\x01"[..], b"\0\0\0\x03", b"\0\0\0\x04", b"\0\0\x01", b""]),
            rest in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            let datagram = [head, &rest].concat();
            if let Ok(read) = SocksDatagram::read(&datagram) {
                prop_assert_eq!(&[&datagram[..3], read.address, read.payload].concat(), &datagram);
                prop_assert!(SocksAddress::new(read.address).is_ok());
            }
        }
    }
}
