//! What the path carries.

use std::net::IpAddr;
use std::time::Duration;

use fake_tcp::{Config, Event, Profile, Refused};
use packet::icmp;
use proptest::prelude::*;

use super::data::renumbered;
use super::pair::{CLIENT, Pair, SERVER, delayed, listening};

const IPV4: [&str; 2] = ["192.0.2.1:40000", "198.51.100.2:4433"];
const IPV6: [&str; 2] = ["[2001:db8::1]:40000", "[2001:db8:1::2]:4433"];

fn router(addresses: [&str; 2]) -> IpAddr {
    let text = if addresses == IPV4 {
        "203.0.113.9"
    } else {
        "2001:db8:2::9"
    };
    text.parse().unwrap()
}

/// FTCP-18.
#[test]
fn a_router_that_says_too_big_is_believed_for_ten_minutes() {
    for (addresses, told, most, whole) in [
        (IPV4, 1_300, 1_260, 1_460),
        (IPV4, 68, 536, 1_460),
        (IPV6, 1_300, 1_240, 1_440),
        (IPV6, 1_000, 1_220, 1_440),
    ] {
        let profile = Profile::Linux;
        let configs = [Config::new(profile), listening(profile)];
        let (mut pair, [client, _]) = Pair::with(configs, delayed(10), addresses, 1).connected();
        pair.send(CLIENT, client, &[1; 1_400], 0).unwrap();
        let packet = pair.sent.last().unwrap().bytes.clone();
        let mut error = icmp::packet_too_big(&packet, 65_000, router(addresses)).unwrap();
        // An MTU below what every IPv6 link carries is told by no honest router.
        let (at, header) = if addresses == IPV4 { (26, 20) } else { (46, 40) };
        error[at..at + 2].copy_from_slice(&u16::try_from(told).unwrap().to_be_bytes());
        repair_checksum(&mut error, header);
        let now = pair.now();
        assert_eq!(pair.stacks[CLIENT].receive(now, &error, None), None);
        pair.flush();
        let event = Event::PathMtu {
            connection: client,
            segment_bytes_max: most,
        };
        assert_eq!(pair.events[CLIENT], [event], "{told}");
        let refused = Refused::TooLarge {
            segment_bytes_max: most,
        };
        assert_eq!(pair.send(CLIENT, client, &[1; 1_400], 0), Err(refused));
        assert_eq!(pair.send(CLIENT, client, &vec![1; most], 0), Ok(()));
        // A second time it is no news.
        pair.stacks[CLIENT].receive(now, &error, None);
        pair.flush();
        assert_eq!(pair.events[CLIENT].len(), 1);
        pair.run(Duration::from_secs(601));
        let most = pair.stacks[CLIENT].segment_bytes_max(pair.now(), client);
        assert_eq!(most, Some(whole));
    }
}

/// Sets the ICMP checksum of a message that was changed.
fn repair_checksum(packet: &mut [u8], header: usize) {
    let view = packet::ip::IpView::parse(packet).unwrap();
    packet[header + 2..header + 4].fill(0);
    let mut sum = packet::checksum::sum(&packet[header..]);
    if view.source.is_ipv6() {
        let length = packet.len() - header;
        let pseudo = packet::checksum::pseudo_header(view.source, view.destination, view.protocol, length);
        sum = packet::checksum::add(sum, pseudo);
    }
    packet[header + 2..header + 4].copy_from_slice(&(!sum).to_be_bytes());
}

/// FTCP-18.
#[test]
fn a_forged_word_about_the_mtu_has_to_quote_what_is_on_the_way() {
    let (mut pair, [client, _]) = Pair::new().connected();
    pair.send(CLIENT, client, &[1; 1_400], 0).unwrap();
    let sent = pair.sent.last().unwrap().clone();
    let (first, next) = (sent.segment.sequence, sent.segment.end());
    for (sequence, is_believed) in [
        (first.plus(u32::MAX), false),
        (next, false),
        (next.plus(99), false),
        (first, true),
    ] {
        let quoted = renumbered(&sent.bytes, sequence.0, 0);
        let error = icmp::packet_too_big(&quoted, 1_280, router(IPV4)).unwrap();
        let mut damaged = error.clone();
        damaged[27] ^= 1;
        let now = pair.now();
        pair.stacks[CLIENT].receive(now, &damaged, None);
        pair.flush();
        assert!(pair.events[CLIENT].is_empty(), "a wrong checksum");
        pair.stacks[CLIENT].receive(now, &error, None);
        pair.flush();
        assert_eq!(!pair.events[CLIENT].is_empty(), is_believed, "{sequence:?}");
    }
    // A quote of the first eight bytes is enough.
    let (mut pair, [client, _]) = Pair::new().connected();
    pair.send(CLIENT, client, &[1; 1_400], 0).unwrap();
    let quoted = pair.sent.last().unwrap().bytes.clone();
    let mut error = icmp::packet_too_big(&quoted, 1_280, router(IPV4)).unwrap();
    error.truncate(20 + 8 + 28);
    error[3] = error.len() as u8;
    error[2] = 0;
    repair_checksum(&mut error, 20);
    pair.stacks[CLIENT].receive(pair.now(), &error, None);
    pair.flush();
    assert_eq!(pair.events[CLIENT].len(), 1);
}

/// FTCP-18.
#[test]
fn the_peers_mss_and_our_link_bound_a_segment() {
    for (mtus, most) in [([1_500, 1_400], [1_360, 1_360]), ([9_000, 9_000], [8_960, 8_960])] {
        let profile = Profile::Linux;
        let configs = [
            Config {
                mtu: mtus[0],
                ..Config::new(profile)
            },
            Config {
                mtu: mtus[1],
                ..listening(profile)
            },
        ];
        let (mut pair, ids) = Pair::with(configs, delayed(10), IPV4, 1).connected();
        for end in [CLIENT, SERVER] {
            assert_eq!(
                pair.stacks[end].segment_bytes_max(pair.now(), ids[end]),
                Some(most[end])
            );
            let refused = pair.send(end, ids[end], &vec![0; most[end] + 1], 0);
            assert!(matches!(refused, Err(Refused::TooLarge { .. })));
        }
    }
}

proptest! {
    /// FTCP-19.
    #[test]
    fn no_icmp_message_breaks_a_stack(bytes in prop::collection::vec(any::<u8>(), 0..200), cut in 0_usize..100) {
        let (mut pair, [client, _]) = Pair::new().connected();
        pair.send(CLIENT, client, &[1; 1_400], 0).unwrap();
        let quoted = pair.sent.last().unwrap().bytes.clone();
        let mut error = icmp::packet_too_big(&quoted, 1_280, router(IPV4)).unwrap();
        let at = bytes.len().min(error.len());
        let tail = error.len() - at;
        error[tail..].copy_from_slice(&bytes[..at]);
        error.truncate(error.len().saturating_sub(cut));
        if error.len() >= 28 {
            let total = error.len() as u16;
            error[2..4].copy_from_slice(&total.to_be_bytes());
            repair_checksum(&mut error, 20);
        }
        let now = pair.now();
        prop_assert_eq!(pair.stacks[CLIENT].receive(now, &error, None), None);
    }
}
