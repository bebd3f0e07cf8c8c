//! Finding a neighbour's hardware address without the kernel, which asks only for packets of its own: ARP (RFC 826) and
//! neighbour discovery (RFC 4861 section 7.2).

use std::io::{self, Read};
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd};

use packet::checksum;
use socket2::Socket;

use super::filter;
use super::link::{self, Link, asks_for_neighbours};
use super::version::{explain, open_packet_socket};
use crate::limits::{NEIGHBOUR_ANSWER_BYTES, NEIGHBOUR_LOOKS};
use crate::sys::addr::{HARDWARE_BYTES, array};
use crate::sys::{options, packet as sys};

type Hardware = [u8; HARDWARE_BYTES];

const ETHERNET_BYTES: usize = link::LinkKind::ETHERNET_HEADER_BYTES;
const V6_BYTES: usize = 40;
/// Ethernet and IPv4, with addresses of 6 and 4 bytes (RFC 826).
const ARP_START: [u8; 6] = [0, 1, 8, 0, 6, 4];
const ARP_REPLY: [u8; 2] = [0, 2];
const ICMP_V6: u8 = 58;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
const OPTION_SOURCE: u8 = 1;
const OPTION_TARGET: u8 = 2;

/// Asks an interface for the hardware address behind an IP address. Its descriptor becomes readable when something
/// came that may be the answer.
pub struct NeighbourSearch {
    socket: Socket,
    index: u32,
    own: Hardware,
    source: IpAddr,
    target: IpAddr,
    found: Option<Link>,
}

impl NeighbourSearch {
    /// A search on interface `index`, by its address `source`, for the address `target` on the link. Where the
    /// interface needs no hardware addresses, the answer is there at once.
    ///
    /// # Errors
    /// The capability CAP_NET_RAW is missing, there is no such interface, or it is of a kind that is not known.
    pub fn open(index: u32, source: IpAddr, target: IpAddr) -> io::Result<Self> {
        let socket = open_packet_socket()?;
        let ethertype = if target.is_ipv4() { link::ARP } else { link::IPV6 };
        let set = || {
            let descriptor = socket.as_fd();
            if target.is_ipv6() {
                let program = filter::keep_neighbour_advertisements();
                options::attach_program(descriptor, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)?;
            }
            sys::bind(descriptor, index, ethertype)?;
            sys::name(descriptor)
        };
        let name = set().map_err(|error| explain(&error, "ask for neighbours"))?;
        let unknown = || {
            let text = format!(
                "interface {index} is of a kind ({}) that TCP of our own does not know",
                name.kind
            );
            io::Error::new(io::ErrorKind::Unsupported, text)
        };
        let kind = link::LinkKind::of(name.kind).ok_or_else(unknown)?;
        let own = name.hardware.unwrap_or_default();
        let found = (!asks_for_neighbours(name.kind)).then_some(Link {
            index,
            hardware: (kind == link::LinkKind::Ethernet).then_some([own, own]),
        });
        Ok(Self {
            socket,
            index,
            own,
            source,
            target,
            found,
        })
    }

    /// The way to a neighbour whose hardware address is known already.
    #[must_use]
    pub fn link_to(&self, hardware: [u8; 6]) -> Link {
        self.found.unwrap_or(Link {
            index: self.index,
            hardware: Some([hardware, self.own]),
        })
    }

    /// Asks, once more where it was asked before.
    ///
    /// # Errors
    /// The interface is down, or its queue is full.
    pub fn ask(&self) -> io::Result<()> {
        if self.found.is_some() {
            return Ok(());
        }
        let question = match (self.source, self.target) {
            (IpAddr::V4(source), IpAddr::V4(target)) => {
                arp_question(self.own, source.octets(), target.octets())
            }
            (IpAddr::V6(source), IpAddr::V6(target)) => solicitation(self.own, source, target),
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        };
        self.socket.send(&question).map(drop)
    }

    /// What has come of it so far.
    pub fn answer(&mut self) -> Option<Link> {
        let mut bytes = [0; NEIGHBOUR_ANSWER_BYTES];
        for _ in 0..NEIGHBOUR_LOOKS {
            if self.found.is_some() {
                break;
            }
            let Ok(length) = (&self.socket).read(&mut bytes) else {
                break;
            };
            let hardware = match self.target {
                IpAddr::V4(target) => arp_answer(&bytes[..length], target.octets()),
                IpAddr::V6(target) => advertised(&bytes[..length], target),
            };
            self.found = hardware.map(|hardware| self.link_to(hardware));
        }
        self.found
    }
}

impl AsFd for NeighbourSearch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn arp_question(own: Hardware, source: [u8; 4], target: [u8; 4]) -> Vec<u8> {
    let mut frame = vec![0xff; HARDWARE_BYTES];
    frame.extend(own);
    frame.extend(link::ARP.to_be_bytes());
    frame.extend(ARP_START);
    frame.extend([0, 1]);
    frame.extend(own);
    frame.extend(source);
    frame.extend([0; HARDWARE_BYTES]);
    frame.extend(target);
    frame
}

fn arp_answer(frame: &[u8], target: [u8; 4]) -> Option<Hardware> {
    let answer = frame.get(ETHERNET_BYTES..)?;
    let is_answer =
        answer.get(..6)? == ARP_START && answer.get(6..8)? == ARP_REPLY && answer.get(14..18)? == target;
    array(answer, 8).filter(|_| is_answer)
}

/// A neighbour solicitation (RFC 4861 section 4.3) to the target's solicited-node address (RFC 4291 section 2.7.1).
fn solicitation(own: Hardware, source: Ipv6Addr, target: Ipv6Addr) -> Vec<u8> {
    let last = target.octets();
    let mut group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 0).octets();
    group[13..].copy_from_slice(&last[13..]);
    let mut message = vec![SOLICITATION, 0, 0, 0, 0, 0, 0, 0];
    message.extend(last);
    message.extend([OPTION_SOURCE, 1]);
    message.extend(own);
    let pseudo = checksum::pseudo_header(source.into(), group.into(), ICMP_V6, message.len());
    let sum = !checksum::add(pseudo, checksum::sum(&message));
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut frame = vec![0x33, 0x33];
    frame.extend(&group[12..]);
    frame.extend(own);
    frame.extend(link::IPV6.to_be_bytes());
    frame.extend([0x60, 0, 0, 0, 0, message.len() as u8, ICMP_V6, 255]);
    frame.extend(source.octets());
    frame.extend(group);
    frame.extend(message);
    frame
}

/// The target's address in a neighbour advertisement (RFC 4861 section 4.4), which no router may have forwarded.
fn advertised(frame: &[u8], target: Ipv6Addr) -> Option<Hardware> {
    let packet = frame.get(ETHERNET_BYTES..)?;
    let message = packet.get(V6_BYTES..)?;
    let is_answer = packet[6] == ICMP_V6
        && packet[7] == 255
        && *message.first()? == ADVERTISEMENT
        && message.get(8..24)? == target.octets();
    let mut options = message.get(24..).filter(|_| is_answer)?;
    while let [kind, eighths, ..] = *options {
        let bytes = usize::from(eighths) * 8;
        if kind == OPTION_TARGET && bytes == 8 {
            return array(options, 2);
        }
        // An option without length is malformed (RFC 4861 section 4.6).
        options = options.get(bytes..).filter(|_| bytes > 0)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Hardware = [2, 0, 0, 0, 0, 1];
    const OTHER: Hardware = [2, 0, 0, 0, 0, 2];

    #[test]
    fn only_the_targets_own_arp_reply_is_an_answer() {
        let question = arp_question(OWN, [192, 0, 2, 1], [192, 0, 2, 2]);
        assert_eq!(question.len(), 42);
        assert_eq!(arp_answer(&question, [192, 0, 2, 1]), None, "a question");
        let mut reply = arp_question(OTHER, [192, 0, 2, 2], [192, 0, 2, 1]);
        reply[21] = 2;
        assert_eq!(arp_answer(&reply, [192, 0, 2, 2]), Some(OTHER));
        assert_eq!(arp_answer(&reply, [192, 0, 2, 3]), None);
        for length in 0..32 {
            assert_eq!(arp_answer(&reply[..length], [192, 0, 2, 2]), None);
        }
    }

    #[test]
    fn a_neighbour_advertisement_is_read_by_its_options() {
        let (source, target) = ("fe80::1".parse().unwrap(), "fe80::12:3456".parse().unwrap());
        let frame = solicitation(OWN, source, target);
        assert_eq!(frame[..6], [0x33, 0x33, 0xff, 0x12, 0x34, 0x56]);
        assert_eq!(advertised(&frame, target), None, "a question");
        let mut answer = frame.clone();
        answer[54] = ADVERTISEMENT;
        assert_eq!(advertised(&answer, target), None, "the option of a question");
        // Another option before it.
        answer.splice(78..78, [14, 1, 0, 0, 0, 0, 0, 0]);
        answer[86] = OPTION_TARGET;
        answer[88..94].copy_from_slice(&OTHER);
        assert_eq!(advertised(&answer, target), Some(OTHER));
        assert_eq!(advertised(&answer, source), None);
        for length in 0..answer.len() {
            assert_eq!(advertised(&answer[..length], target), None);
        }
        answer[79] = 0;
        assert_eq!(advertised(&answer, target), None, "an option without length");
        answer[79] = 1;
        answer[21] = 254;
        assert_eq!(advertised(&answer, target), None, "a router forwarded it");
    }
}
