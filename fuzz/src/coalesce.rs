//! Joining packets: all that were taken come out, unchanged, in the order of their flow; a wrong checksum stays wrong.
//!
//! The input is a list of instructions, each making one packet: mostly ones that continue their flow, some damaged.

use bytes::BytesMut;
use packet::checksum::{self, ChecksumState};
use packet::coalesce::{Coalescer, MergeRules, PushError};
use packet::ip::{self, IpView};
use packet::segmentation::Segmenter;
use packet::vnet::GsoType;

use crate::input::Input;
use crate::packets::{self, Transport};

/// Packets made from one input, at most.
const PACKETS_MAX: usize = 300;
/// Flows among them.
const FLOWS: usize = 8;

/// A packet, and what its checksum field is said to hold.
type Made = (Vec<u8>, ChecksumState);

/// One byte of rules, then instructions.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let rules = input.byte();
    let mut coalescer = Coalescer::new(MergeRules {
        tcp: rules & 0x80 == 0,
        udp_datagrams_max: usize::from(rules & 0x7f),
    });
    let mut sequences = [0; FLOWS];
    let mut taken = Vec::new();
    for _ in 0..PACKETS_MAX {
        if input.is_empty() {
            break;
        }
        let made = make(&mut input, &mut sequences);
        match coalescer.push(&made.0, made.1) {
            Ok(()) => taken.push(made),
            Err(PushError::Full) => {
                check(&mut coalescer, &taken);
                taken.clear();
                coalescer
                    .push(&made.0, made.1)
                    .expect("there is room after draining");
                taken.push(made);
            }
            Err(_) => {}
        }
    }
    check(&mut coalescer, &taken);
}

/// One packet from five bytes.
fn make(input: &mut Input<'_>, sequences: &mut [u32; FLOWS]) -> Made {
    let (kind, size, flags, damage_at, damage) = (
        input.byte(),
        input.byte(),
        input.byte(),
        input.byte(),
        input.byte(),
    );
    let flow = usize::from(kind >> 1 & 7);
    let is_ipv6 = kind & 1 != 0;
    let payload = vec![size; [0, 1, 40, 100, 100, 100, 1300, 9000][usize::from(size & 7)]];
    let mut packet = if kind & 0x10 == 0 {
        let sequence = sequences[flow].wrapping_add(u32::from(size >> 7));
        sequences[flow] = sequence.wrapping_add(payload.len() as u32);
        // Most segments have ACK alone.
        let flags = if flags & 0x20 == 0 { 0x10 } else { flags };
        packets::packet(is_ipv6, &Transport::Tcp(sequence, flags), flow as u16, &payload)
    } else {
        packets::packet(is_ipv6, &Transport::Udp, flow as u16, &payload)
    };
    let state = if kind & 0x20 == 0 {
        ChecksumState::Full
    } else {
        packets::make_partial(&mut packet);
        ChecksumState::Partial
    };
    if kind & 0xc0 == 0xc0 {
        let at = usize::from(damage_at) % packet.len();
        packet[at] ^= damage;
    }
    (packet, state)
}

fn check(coalescer: &mut Coalescer, taken: &[Made]) {
    let mut restored: Vec<Vec<u8>> = Vec::new();
    let expected: Vec<Vec<u8>> = taken
        .iter()
        .map(|(packet, state)| comparable(packet, *state))
        .collect();
    coalescer.drain(|packet| {
        let view = IpView::parse(packet.bytes).expect("what comes out is a packet");
        assert_eq!(view.total_bytes, packet.bytes.len());
        if view.fragment {
            assert_eq!(
                expected[restored.len()],
                comparable(packet.bytes, ChecksumState::Full),
                "overtaken"
            );
        }
        if packet.packets == 1 {
            assert_eq!(packet.header.gso, GsoType::None);
            let state = match packet.header.needs_checksum {
                true => ChecksumState::Partial,
                false => ChecksumState::Full,
            };
            restored.push(comparable(packet.bytes, state));
            return;
        }
        let mut segmenter = Segmenter::new(&packet.header, packet.bytes, usize::MAX)
            .expect("a super-packet can be taken apart");
        assert_eq!(segmenter.count(), packet.packets);
        let mut out = BytesMut::new();
        while segmenter.next_into(&mut out, ChecksumState::Full).is_some() {
            let packet = out.split();
            assert!(checksum::verify(&packet));
            restored.push(comparable(&packet, ChecksumState::Full));
        }
    });
    assert!(coalescer.is_empty());
    assert_eq!(restored.len(), expected.len());
    for packet in &expected {
        let of_flow = |all: &[Vec<u8>]| -> Vec<Vec<u8>> {
            all.iter()
                .filter(|other| flow_of(other) == flow_of(packet))
                .cloned()
                .collect()
        };
        assert_eq!(of_flow(&restored), of_flow(&expected));
    }
}

fn flow_of(packet: &[u8]) -> ip::FlowKey {
    ip::flow_key(&IpView::parse(packet).expect("it was taken"), packet)
}

/// A packet as it may be compared: cut to its length, its checksum full, and without the ID that has no meaning in a
/// packet that is never fragmented.
fn comparable(packet: &[u8], state: ChecksumState) -> Vec<u8> {
    let view = IpView::parse(packet).expect("it was taken");
    let mut packet = packet[..view.total_bytes].to_vec();
    if state == ChecksumState::Partial {
        checksum::complete(&mut packet).expect("it was taken as partial");
    }
    if view.source.is_ipv4() && packet[6] & 0x40 != 0 {
        let sum = u16::from_be_bytes([packet[10], packet[11]]);
        let id = u16::from_be_bytes([packet[4], packet[5]]);
        packet[4..6].fill(0);
        packet[10..12].copy_from_slice(&checksum::update(sum, id, 0).to_be_bytes());
    }
    packet
}

/// Runs of each kind, alternating flows, a damaged packet in between.
pub fn seeds() -> Vec<Vec<u8>> {
    let run = |kinds: &[u8], size: u8| {
        let mut seed = vec![0x40];
        for index in 0..12 {
            seed.extend([kinds[index % kinds.len()], size, 0, 0, 0]);
        }
        seed.extend([kinds[0], 2, 0, 0, 0]);
        seed
    };
    let mut all = vec![
        run(&[0x00], 3),
        run(&[0x01], 3),
        run(&[0x10], 6),
        run(&[0x11], 6),
        run(&[0x20, 0x22], 6),
        run(&[0x30, 0x31, 0x00, 0x01], 7),
    ];
    let mut damaged = run(&[0x10], 3);
    damaged.extend([0xd0, 3, 0, 6, 0x60, 0x10, 3, 0, 0, 0]);
    all.push(damaged);
    all
}
