//! What stands below IP: the interface that a packet leaves by, and the header before it.

use crate::sys::addr::{HARDWARE_BYTES, LinkName};

/// EtherTypes (`linux/if_ether.h`).
pub(super) const IPV4: u16 = 0x0800;
pub(super) const IPV6: u16 = 0x86dd;
pub(super) const ARP: u16 = 0x0806;

const ETHERNET: u16 = 1;
const LOOPBACK: u16 = 772;
const NONE: u16 = 0xfffe;
const RAW_IP: u16 = 519;
const PPP: u16 = 512;
const TUNNEL: u16 = 768;
const TUNNEL6: u16 = 769;
const SIT: u16 = 776;

/// The header before the IP packets of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkKind {
    /// Ethernet's; on the loopback interface its addresses are zero.
    Ethernet,
    /// None: the packet begins with its IP header.
    Bare,
}

impl LinkKind {
    pub(super) const ETHERNET_HEADER_BYTES: usize = 14;
    /// Kinds of interfaces (`linux/if_arp.h`) of either sort; others are not used.
    pub(super) const WITH_ETHERNET_HEADER: [u16; 2] = [ETHERNET, LOOPBACK];
    pub(super) const WITHOUT_HEADER: [u16; 6] = [NONE, RAW_IP, PPP, TUNNEL, TUNNEL6, SIT];

    /// That of a kind of interface, where it is known.
    pub(super) fn of(interface: u16) -> Option<Self> {
        if Self::WITH_ETHERNET_HEADER.contains(&interface) {
            Some(Self::Ethernet)
        } else {
            Self::WITHOUT_HEADER.contains(&interface).then_some(Self::Bare)
        }
    }

    pub(super) fn header_bytes(self) -> usize {
        match self {
            Self::Ethernet => Self::ETHERNET_HEADER_BYTES,
            Self::Bare => 0,
        }
    }
}

/// Whether neighbours of this kind of interface are found by asking for them.
pub(super) fn asks_for_neighbours(interface: u16) -> bool {
    interface == ETHERNET
}

/// How packets to a peer leave: by which interface, and behind which header. That of an answer is what its question
/// came with, turned around.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Index of the interface.
    pub(super) index: u32,
    /// Destination and source; `None` where the interface has no header.
    pub(super) hardware: Option<[[u8; HARDWARE_BYTES]; 2]>,
}

impl Link {
    /// The way back to who sent a frame.
    pub(super) fn answering(name: &LinkName, frame: &[u8]) -> Option<Self> {
        let hardware = match LinkKind::of(name.kind)? {
            LinkKind::Bare => None,
            LinkKind::Ethernet => {
                let (addresses, _) = frame
                    .split_at_checked(2 * HARDWARE_BYTES)?
                    .0
                    .as_chunks::<HARDWARE_BYTES>();
                Some([addresses[1], addresses[0]])
            }
        };
        Some(Self {
            index: name.index,
            hardware,
        })
    }

    /// Index of the interface.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }

    pub(super) fn header_bytes(&self) -> usize {
        if self.hardware.is_some() {
            LinkKind::ETHERNET_HEADER_BYTES
        } else {
            0
        }
    }

    /// Appends the header, for a packet of this EtherType.
    pub(super) fn write(&self, ethertype: u16, out: &mut Vec<u8>) {
        if let Some([destination, source]) = self.hardware {
            out.extend(destination);
            out.extend(source);
            out.extend(ethertype.to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_link_of_an_answer_is_that_of_its_question_turned_around() {
        let name = LinkName {
            index: 3,
            kind: ETHERNET,
            hardware: None,
        };
        let frame: Vec<u8> = (1..=14).collect();
        let link = Link::answering(&name, &frame).unwrap();
        let mut header = Vec::new();
        link.write(IPV6, &mut header);
        assert_eq!(header, [7, 8, 9, 10, 11, 12, 1, 2, 3, 4, 5, 6, 0x86, 0xdd]);
        assert_eq!(header.len(), link.header_bytes());
        assert_eq!(Link::answering(&name, &frame[..11]), None);
        let bare = LinkName { kind: NONE, ..name };
        let link = Link::answering(&bare, &[]).unwrap();
        assert_eq!((link.index(), link.header_bytes()), (3, 0));
        assert_eq!(Link::answering(&LinkName { kind: 801, ..name }, &frame), None);
    }
}
