//! Reading an IP packet and changing it in place: hop limit, ECN, MSS, checksum.
//!
//! Lengths stay within the input; a change keeps what it must not touch and every checksum that was right before.

use packet::checksum::{self, ChecksumState};
use packet::ip::{self, IpVersion, IpView};
use packet::{Ecn, mss};

use crate::input::Input;
use crate::packets;

/// Two bytes of parameters, then the packet.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let mtu = usize::from(input.u16());
    let mut packet = input.0.to_vec();
    let Ok(view) = IpView::parse(&packet) else {
        assert!(!checksum::verify(&packet) && checksum::complete(&mut packet).is_err());
        let _ = ip::decrement_hop_limit(&mut packet);
        ip::set_ecn(&mut packet, Ecn::Ce);
        let _ = mss::clamp_mss(&mut packet, mtu, ChecksumState::Full);
        return;
    };
    assert!(view.header_bytes <= view.transport_offset && view.transport_offset <= view.total_bytes);
    assert!(view.total_bytes <= packet.len());
    let key = ip::flow_key(&view, &packet);
    assert!(key.ports.is_none() || !view.fragment);
    let _ = key.hash(mtu as u64);

    // A checksum of all ones is right as zero, too, but is not what an update gives back.
    let header_is_right = |packet: &[u8]| {
        view.version == IpVersion::V6 || checksum::sum(&packet[..view.header_bytes]) == 0xffff
    };
    let (header_was_right, was_right) = (header_is_right(&packet), checksum::verify(&packet));

    let before = packet.clone();
    assert_eq!(ip::decrement_hop_limit(&mut packet), view.hop_limit > 1);
    ip::set_ecn(&mut packet, Ecn::from_bits(mtu as u8));
    let changed = IpView::parse(&packet).expect("neither hop limit nor ECN makes a packet unreadable");
    let expected = IpView {
        hop_limit: if view.hop_limit > 1 {
            view.hop_limit - 1
        } else {
            view.hop_limit
        },
        ecn: Ecn::from_bits(mtu as u8),
        ..view
    };
    assert_eq!(changed, expected);
    assert_eq!(packet[view.header_bytes..], before[view.header_bytes..]);
    assert!(!header_was_right || header_is_right(&packet));

    let clamped = mss::clamp_mss(&mut packet, mtu, ChecksumState::Full);
    assert!(
        !clamped || !mss::clamp_mss(&mut packet, mtu, ChecksumState::Full),
        "clamped twice"
    );
    assert!(!was_right || checksum::verify(&packet));

    packets::make_partial(&mut packet);
    if checksum::complete(&mut packet).is_ok() && view.protocol == 6 {
        assert!(checksum::verify(&packet));
    }
}

/// Every kind of packet at a small MTU.
pub fn seeds() -> Vec<Vec<u8>> {
    packets::kinds()
        .into_iter()
        .map(|packet| [&[5, 0][..], &packet].concat())
        .collect()
}
