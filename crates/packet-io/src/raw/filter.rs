//! Which packets a raw socket receives, and which socket of a group receives them: programs of classic BPF.
//!
//! A socket gets whole TCP packets to its port, and the ICMP errors "fragmentation needed" and "packet too big"
//! (RFC 1191, RFC 8201) about packets from it. Both programs read a quoted packet as they read one that goes the other
//! way, so that an error comes to the socket of its flow.

use std::net::{IpAddr, SocketAddr};

use super::link::LinkKind;
use crate::classic_bpf::{
    TO_ACCUMULATOR, TO_INDEX, answer, combine, compute, jump, load_at, load_byte, load_byte_at, load_half_at,
    recall_index, set_index, statement, store,
};

type Program = Vec<libc::sock_filter>;

const TCP: u32 = 6;
const ICMP_V4: u32 = 1;
const ICMP_V6: u32 = 58;
/// Type and code of "fragmentation needed" (RFC 1191 section 4).
const FRAGMENTATION_NEEDED: u32 = 0x0304;
/// Type of "packet too big" (RFC 4443 section 3.2).
const PACKET_TOO_BIG: u32 = 2;
/// Bytes of an ICMP header before the quoted packet, in both versions.
const ICMP_BYTES: u32 = 8;
/// "More fragments", and the offset of a fragment.
const FRAGMENT: u32 = 0x3fff;

const V4_FRAGMENT: u32 = 6;
const V4_PROTOCOL: u32 = 9;
const V4_SOURCE: u32 = 12;
const V4_DESTINATION: u32 = 16;
const V6_NEXT_HEADER: u32 = 6;
const V6_SOURCE: u32 = 8;
const V6_DESTINATION: u32 = 24;
const V6_BYTES: u32 = 40;

/// Where a load of the kernel's own facts about a packet begins.
const FACTS: u32 = libc::SKF_AD_OFF as u32;

/// A jump that [`Assembly::finish`] leads to the end, where the packet is dropped.
const TO_DROP: u8 = u8::MAX;
const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ;
const ANY_BIT: u32 = libc::BPF_JMP | libc::BPF_JSET;

/// Which flows a socket receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flows {
    /// The IP version.
    pub(super) v4: bool,
    /// The only address of this machine, or all.
    pub(super) local: Option<IpAddr>,
    /// The only port of this machine, or all.
    pub(super) port: Option<u16>,
    /// The only peer, or all.
    pub(super) remote: Option<SocketAddr>,
}

/// Drops every packet.
pub(super) fn nothing() -> Program {
    vec![answer(0)]
}

/// Keeps the packets of `flows`.
pub(super) fn keep(flows: &Flows) -> Program {
    let mut assembly = Assembly::default();
    assembly.push(statement(
        libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
        FACTS + libc::SKF_AD_PKTTYPE as u32,
    ));
    assembly.demand(libc::PACKET_HOST.into());
    assembly.skip_link_header();
    if flows.v4 {
        assembly.keep_v4(flows);
    } else {
        assembly.keep_v6(flows);
    }
    assembly.finish()
}

/// Keeps the neighbour advertisements (RFC 4861 section 4.4) of an interface with Ethernet headers.
pub(super) fn keep_neighbour_advertisements() -> Program {
    const ADVERTISEMENT: u32 = 136;
    let mut assembly = Assembly::default();
    assembly.push(set_index(LinkKind::ETHERNET_HEADER_BYTES as u32));
    assembly.push(load_byte_at(V6_NEXT_HEADER));
    assembly.demand(ICMP_V6);
    assembly.push(load_byte_at(V6_BYTES));
    assembly.demand(ADVERTISEMENT);
    assembly.push(answer(u32::MAX));
    assembly.finish()
}

#[derive(Default)]
struct Assembly(Program);

impl Assembly {
    fn push(&mut self, step: libc::sock_filter) {
        self.0.push(step);
    }

    /// Drops the packet unless the accumulator has this value.
    fn demand(&mut self, value: u32) {
        self.push(jump(EQUAL, value, 0, TO_DROP));
    }

    /// Leads the index register to the IP header, by the kind of the interface.
    fn skip_link_header(&mut self) {
        self.push(statement(
            libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
            FACTS + libc::SKF_AD_HATYPE as u32,
        ));
        let (with, without) = (LinkKind::WITH_ETHERNET_HEADER, LinkKind::WITHOUT_HEADER);
        let count = (with.len() + without.len()) as u8;
        for (index, kind) in with.into_iter().chain(without).enumerate() {
            let left = count - 1 - index as u8;
            // Behind the comparisons stand a drop, and two ways of two steps each.
            let way = if index < with.len() { 1 } else { 3 };
            self.push(jump(EQUAL, kind.into(), left + way, 0));
        }
        self.push(answer(0));
        self.push(set_index(LinkKind::ETHERNET_HEADER_BYTES as u32));
        self.push(statement(libc::BPF_JMP | libc::BPF_JA, 1));
        self.push(set_index(0));
    }

    /// Leads the index register behind the IPv4 header at `offset` from it.
    fn skip_v4_header(&mut self, offset: u32) {
        self.0.extend([
            load_byte_at(offset),
            compute(libc::BPF_AND, 0xf),
            compute(libc::BPF_LSH, 2),
            combine(libc::BPF_ADD),
            TO_INDEX,
        ]);
    }

    fn demand_address(&mut self, offset: u32, address: Option<IpAddr>) {
        let words: Vec<u32> = match address {
            None => return,
            Some(IpAddr::V4(address)) => vec![address.to_bits()],
            Some(IpAddr::V6(address)) => (0..4)
                .map(|word| (address.to_bits() >> (96 - 32 * word)) as u32)
                .collect(),
        };
        for (index, word) in words.into_iter().enumerate() {
            self.push(load_at(offset + 4 * index as u32));
            self.demand(word);
        }
    }

    /// The ports at `here` and `there` from the index register are those of this machine and of the peer.
    fn demand_ports(&mut self, flows: &Flows, here: u32, there: u32) {
        if let Some(port) = flows.port {
            self.push(load_half_at(here));
            self.demand(port.into());
        }
        if let Some(remote) = flows.remote {
            self.push(load_half_at(there));
            self.demand(remote.port().into());
        }
        self.push(answer(u32::MAX));
    }

    fn keep_v4(&mut self, flows: &Flows) {
        let peer = flows.remote.map(|remote| remote.ip());
        self.push(load_half_at(V4_FRAGMENT));
        self.push(jump(ANY_BIT, FRAGMENT, TO_DROP, 0));
        self.push(load_byte_at(V4_PROTOCOL));
        let branch = self.0.len();
        self.push(jump(EQUAL, ICMP_V4, 0, 0));
        self.demand(TCP);
        self.demand_address(V4_DESTINATION, flows.local);
        self.demand_address(V4_SOURCE, peer);
        self.skip_v4_header(0);
        self.demand_ports(flows, 2, 0);
        self.0[branch].jt = (self.0.len() - branch - 1) as u8;
        self.skip_v4_header(0);
        self.push(load_half_at(0));
        self.demand(FRAGMENTATION_NEEDED);
        self.push(load_byte_at(ICMP_BYTES + V4_PROTOCOL));
        self.demand(TCP);
        self.demand_address(ICMP_BYTES + V4_SOURCE, flows.local);
        self.demand_address(ICMP_BYTES + V4_DESTINATION, peer);
        self.skip_v4_header(ICMP_BYTES);
        self.demand_ports(flows, ICMP_BYTES, ICMP_BYTES + 2);
    }

    fn keep_v6(&mut self, flows: &Flows) {
        let peer = flows.remote.map(|remote| remote.ip());
        self.push(load_byte_at(V6_NEXT_HEADER));
        let branch = self.0.len();
        self.push(jump(EQUAL, ICMP_V6, 0, 0));
        self.demand(TCP);
        self.demand_address(V6_DESTINATION, flows.local);
        self.demand_address(V6_SOURCE, peer);
        self.demand_ports(flows, V6_BYTES + 2, V6_BYTES);
        self.0[branch].jt = (self.0.len() - branch - 1) as u8;
        let quoted = V6_BYTES + ICMP_BYTES;
        self.push(load_byte_at(V6_BYTES));
        self.demand(PACKET_TOO_BIG);
        self.push(load_byte_at(quoted + V6_NEXT_HEADER));
        self.demand(TCP);
        self.demand_address(quoted + V6_SOURCE, flows.local);
        self.demand_address(quoted + V6_DESTINATION, peer);
        self.demand_ports(flows, quoted + V6_BYTES, quoted + V6_BYTES + 2);
    }

    /// The program, with a drop at its end.
    fn finish(mut self) -> Program {
        let end = self.0.len();
        for (index, step) in self.0.iter_mut().enumerate() {
            let distance = (end - index - 1) as u8;
            for way in [&mut step.jt, &mut step.jf] {
                if *way == TO_DROP {
                    *way = distance;
                }
            }
        }
        self.push(answer(0));
        self.0
    }
}

/// What the program that spreads flows remembers: where its packet begins, and what it has of addresses and ports.
const START: u32 = 0;
const ADDRESSES: u32 = 1;
const PORT: u32 = 2;

/// Two odd multipliers of MurmurHash3, which bring all bits to those that the kernel takes.
const MIX_PORTS: u32 = 0x85eb_ca6b;
const MIX_ALL: u32 = 0xc2b2_ae35;

/// Which of `count` sockets of a group receives the flow between two addresses.
pub(super) fn place(one: SocketAddr, other: SocketAddr, count: usize) -> usize {
    let words = |address: SocketAddr| match address.ip() {
        IpAddr::V4(ip) => ip.to_bits(),
        IpAddr::V6(ip) => (0..4).fold(0, |sum, word| sum ^ (ip.to_bits() >> (32 * word)) as u32),
    };
    let ports = u32::from(one.port() ^ other.port()).wrapping_mul(MIX_PORTS);
    let mixed = (ports ^ words(one) ^ words(other)).wrapping_mul(MIX_ALL);
    (mixed >> 16) as usize % count.max(1)
}

/// Spreads flows over the sockets of a group as [`place`] does: a number that is equal for both directions of a flow
/// and for errors about it, which the kernel takes modulo the sockets. Here a packet begins with its IP header.
pub(super) fn spread(v4: bool) -> Program {
    let mut program = vec![set_index(0)];
    // Of an error the quoted packet counts.
    if v4 {
        program.extend([load_byte(V4_PROTOCOL), jump(EQUAL, ICMP_V4, 0, 5)]);
        program.extend([
            load_byte(0),
            compute(libc::BPF_AND, 0xf),
            compute(libc::BPF_LSH, 2),
        ]);
        program.extend([compute(libc::BPF_ADD, ICMP_BYTES), TO_INDEX]);
    } else {
        program.extend([load_byte(V6_NEXT_HEADER), jump(EQUAL, ICMP_V6, 0, 1)]);
        program.push(set_index(V6_BYTES + ICMP_BYTES));
    }
    program.extend([TO_ACCUMULATOR, store(START)]);
    let words = if v4 {
        V4_SOURCE..V4_SOURCE + 8
    } else {
        V6_SOURCE..V6_SOURCE + 32
    };
    for (index, word) in words.step_by(4).enumerate() {
        program.push(load_at(word));
        if index > 0 {
            program.extend([recall_index(ADDRESSES), combine(libc::BPF_XOR)]);
        }
        program.extend([store(ADDRESSES), recall_index(START)]);
    }
    if v4 {
        program.extend([
            load_byte_at(0),
            compute(libc::BPF_AND, 0xf),
            compute(libc::BPF_LSH, 2),
        ]);
    } else {
        program.push(statement(libc::BPF_LD | libc::BPF_IMM, V6_BYTES));
    }
    program.extend([combine(libc::BPF_ADD), TO_INDEX]);
    program.extend([load_half_at(0), store(PORT), load_half_at(2), recall_index(PORT)]);
    program.extend([
        combine(libc::BPF_XOR),
        compute(libc::BPF_MUL, MIX_PORTS),
        recall_index(ADDRESSES),
    ]);
    program.extend([
        combine(libc::BPF_XOR),
        compute(libc::BPF_MUL, MIX_ALL),
        compute(libc::BPF_RSH, 16),
    ]);
    program.push(statement(libc::BPF_RET | libc::BPF_A, 0));
    program
}
