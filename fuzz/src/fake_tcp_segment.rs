//! A packet with a TCP segment, as one worker gets it: what is read lies in the packet, and what is written of it is
//! read the same again; an empty stack takes it without keeping more than one connection.

use std::time::Instant;

use fake_tcp::segment::{Flags, Segment};
use fake_tcp::{Config, Profile, Stack};

use crate::packets::{Transport, ip, packet};

pub fn run(data: &[u8]) {
    let now = Instant::now();
    for profile in [Profile::Linux, Profile::Phantun] {
        let listen = Segment::parse(data).map_or(443, |segment| segment.destination.port());
        let config = Config {
            listen: Some(listen),
            ..Config::new(profile)
        };
        let mut stack = Stack::new(config, [7; 32]);
        assert_eq!(stack.receive(now, data, None), None);
        assert!(stack.connections() <= 1);
        let mut answers = 0;
        while let Some(answer) = stack.poll_segment() {
            let written = Segment::parse(answer.headers.bytes()).expect("what we write is a segment");
            assert_eq!(
                (written.source, written.destination),
                (answer.local, answer.remote)
            );
            answers += 1;
        }
        assert!(answers <= 1);
    }
    let Ok(segment) = Segment::parse(data) else {
        return;
    };
    assert!(segment.payload.start <= segment.payload.end && segment.payload.end <= data.len());
    let controls = [Flags::SYN, Flags::FIN].map(|flag| u32::from(segment.flags.has(flag)));
    let length = segment.payload.len() as u32 + controls[0] + controls[1];
    assert_eq!(segment.end().since(segment.sequence), length);
    assert!(segment.options.window_scale.is_none_or(|scale| scale <= 14));
}

pub fn seeds() -> Vec<Vec<u8>> {
    // A SYN of Linux, and the same with options that are wrong.
    let mut syn = vec![
        0x9c, 0x40, 0x01, 0xbb, 0, 0, 0, 0, 0, 0, 0, 0, 0xa0, 0x02, 0xfa, 0xf0, 0, 0, 0, 0,
    ];
    syn.extend([2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 1, 0, 0, 0, 0, 0, 1, 3, 3, 10]);
    let mut wrong = syn.clone();
    wrong[21] = 40;
    let flags = [0x02, 0x12, 0x10, 0x18, 0x11, 0x04, 0x14, 0xff];
    [false, true]
        .into_iter()
        .flat_map(|is_ipv6| {
            let of_flags = flags.map(|flags| packet(is_ipv6, &Transport::Tcp(7, flags), 1, b"payload"));
            let others = [
                ip(is_ipv6, 6, &syn),
                ip(is_ipv6, 6, &wrong),
                packet(is_ipv6, &Transport::Udp, 1, b""),
            ];
            of_flags.into_iter().chain(others)
        })
        .collect()
}
