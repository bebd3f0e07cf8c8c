//! What is read of a segment, what is refused, and that no bytes make a panic.

use packet::checksum;
use proptest::prelude::*;

use super::*;

/// A SYN over IPv4 with these options.
fn syn(options: &[u8]) -> Vec<u8> {
    let tcp = 20 + options.len();
    let mut packet = vec![0; 20];
    packet[0] = 0x45;
    packet[3] = (20 + tcp) as u8;
    (packet[6], packet[8], packet[9]) = (0x40, 64, PROTOCOL);
    packet[12..20].copy_from_slice(&[192, 0, 2, 1, 198, 51, 100, 2]);
    let sum = !checksum::sum(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend([0x9c, 0x40, 0x01, 0xbb, 1, 2, 3, 4, 5, 6, 7, 8]);
    packet.extend([(tcp << 2) as u8, Flags::SYN.0, 0xfa, 0xf0, 0, 0, 0, 0]);
    packet.extend(options);
    packet
}

#[test]
fn all_fields_are_read() {
    let packet = syn(&[2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 1, 0, 0, 0, 2, 0, 1, 3, 3, 7]);
    let segment = Segment::parse(&packet).unwrap();
    assert_eq!(segment.source, "192.0.2.1:40000".parse().unwrap());
    assert_eq!(segment.destination, "198.51.100.2:443".parse().unwrap());
    assert_eq!(segment.sequence, Sequence(0x0102_0304));
    assert_eq!(segment.acknowledgement, Sequence(0x0506_0708));
    assert_eq!((segment.flags, segment.window), (Flags::SYN, 0xfaf0));
    let expected = Options {
        mss: Some(1_460),
        window_scale: Some(7),
        sack_permitted: true,
        timestamps: Some((256, 512)),
    };
    assert_eq!(segment.options, expected);
    assert_eq!(segment.payload, 60..60);
    assert_eq!(segment.end(), Sequence(0x0102_0305));
}

/// FTCP-19.
#[test]
fn a_segment_that_is_cut_short_is_refused() {
    let packet = syn(&[2, 4, 5, 0xb4]);
    for end in 0..packet.len() {
        assert!(Segment::parse(&packet[..end]).is_err(), "{end}");
        // The IP header agrees with the cut.
        let mut cut = packet[..end].to_vec();
        if end >= 20 {
            cut[3] = end as u8;
            assert!(
                matches!(Segment::parse(&cut), Err(Malformed::HeaderLength { .. })),
                "{end}"
            );
        }
    }
    let mut packet = packet;
    packet[32] = 4 << 4;
    let (claimed, received) = (16, 24);
    assert_eq!(
        Segment::parse(&packet),
        Err(Malformed::HeaderLength { claimed, received })
    );
    packet[32] = 7 << 4;
    let claimed = 28;
    assert_eq!(
        Segment::parse(&packet),
        Err(Malformed::HeaderLength { claimed, received })
    );
}

/// FTCP-4, FTCP-19.
#[test]
fn what_is_no_whole_tcp_segment_is_refused() {
    let whole = syn(&[]);
    let changed = |at: usize, value: u8| {
        let mut packet = whole.clone();
        packet[at] = value;
        Segment::parse(&packet)
    };
    assert_eq!(changed(9, 17), Err(Malformed::Protocol(17)));
    assert_eq!(changed(6, 0x20), Err(Malformed::Fragment));
    assert_eq!(changed(7, 1), Err(Malformed::Fragment));
    let mut no_port = whole.clone();
    no_port[20..22].fill(0);
    assert_eq!(Segment::parse(&no_port), Err(Malformed::Port));
    let wrong: [&[u8]; 8] = [
        &[2, 3, 1, 0],
        &[2, 4, 5],
        &[3, 4, 1, 0],
        &[4, 3, 0, 0],
        &[8, 4, 0, 0],
        &[9, 0, 0, 0],
        &[9, 1, 0, 0],
        &[1, 1, 1, 2],
    ];
    for options in wrong {
        let options = [options, &[0; 4][..(4 - options.len() % 4) % 4]].concat();
        let result = Segment::parse(&syn(&options));
        assert!(
            options[..3] == [2, 4, 5] || result == Err(Malformed::Option),
            "{options:?}"
        );
    }
    // Behind the end of options, and in segments without SYN, anything may stand.
    assert!(Segment::parse(&syn(&[0, 2, 0, 0])).is_ok());
    let mut ack = syn(&[2, 0, 0, 0]);
    ack[33] = Flags::ACK.0;
    assert!(Segment::parse(&ack).is_ok());
    // A scale of over 14 means 14 (RFC 7323 section 2.3).
    let scaled = Segment::parse(&syn(&[1, 3, 3, 200])).unwrap();
    assert_eq!(scaled.options.window_scale, Some(14));
}

proptest! {
    /// FTCP-19.
    #[test]
    fn nothing_panics(mut bytes in prop::collection::vec(any::<u8>(), 0..120), valid: bool) {
        if valid && bytes.len() > 20 {
            (bytes[0], bytes[9]) = (0x45, PROTOCOL);
            (bytes[2], bytes[3], bytes[6], bytes[7]) = (0, bytes.len() as u8, 0, 0);
        }
        if let Ok(segment) = Segment::parse(&bytes) {
            prop_assert!(segment.payload.start <= segment.payload.end);
            prop_assert!(segment.payload.end <= bytes.len());
        }
    }
}
