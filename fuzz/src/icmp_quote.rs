//! ICMP errors about any packet: well-formed, within the size that the RFCs allow, to the sender, quoting the original,
//! and never about an ICMP error.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use packet::checksum;
use packet::icmp::{self, Unreachable};
use packet::ip::{IpVersion, IpView};

use crate::input::Input;
use crate::packets;

/// Three bytes of parameters, then the original.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let kind = input.byte();
    let mtu = usize::from(input.u16());
    let original = input.0;
    let why = [
        Unreachable::NoRoute,
        Unreachable::Prohibited,
        Unreachable::SourcePolicy,
        Unreachable::Address,
        Unreachable::Port,
    ][usize::from(kind % 5)];
    for from in [
        IpAddr::V4(Ipv4Addr::new(10, 0, 0, 9)),
        IpAddr::V6(Ipv6Addr::LOCALHOST),
    ] {
        let answers = [
            icmp::packet_too_big(original, mtu, from),
            icmp::time_exceeded(original, from),
            icmp::unreachable(original, why, from),
        ];
        for answer in answers.into_iter().flatten() {
            check(&answer, original, from);
        }
    }
}

fn check(answer: &[u8], original: &[u8], from: IpAddr) {
    let asked = IpView::parse(original).expect("only a packet is answered");
    let view = IpView::parse(answer).expect("an answer is a packet");
    assert_eq!(
        (view.total_bytes, view.source, view.destination),
        (answer.len(), from, asked.source)
    );
    assert!(!asked.source.is_unspecified() && !asked.source.is_multicast() && asked.fragment_offset == 0);
    let mut sum = checksum::sum(view.transport(answer));
    let (protocol, bytes_max) = match view.version {
        IpVersion::V4 => {
            assert_eq!(checksum::sum(&answer[..20]), 0xffff);
            (1, 576)
        }
        IpVersion::V6 => {
            let length = answer.len() - 40;
            let pseudo = checksum::pseudo_header(view.source, view.destination, 58, length);
            sum = checksum::add(sum, pseudo);
            (58, 1280)
        }
    };
    assert_eq!((view.protocol, sum), (protocol, 0xffff));
    assert!(answer.len() <= bytes_max);
    let quoted = &answer[view.transport_offset + 8..];
    assert!(original[..asked.total_bytes].starts_with(quoted));
    assert!(quoted.len() == asked.total_bytes || answer.len() == bytes_max);
    for router in [
        IpAddr::V4(Ipv4Addr::new(10, 0, 0, 8)),
        IpAddr::V6(Ipv6Addr::LOCALHOST),
    ] {
        assert_eq!(
            icmp::time_exceeded(answer, router),
            None,
            "an error about an error"
        );
    }
}

/// Every kind of packet.
pub fn seeds() -> Vec<Vec<u8>> {
    let long = packets::packet(true, &packets::Transport::Udp, 1, &[7; 1400]);
    packets::kinds()
        .into_iter()
        .chain([long])
        .map(|packet| [&[0, 5, 0][..], &packet].concat())
        .collect()
}
