//! Steering: the kernel delivers a datagram to the socket of the shard that its QUIC connection ID names.
//!
//! The sockets of a group share one port ([`UdpSocket::bind_group`]). For each received message the kernel runs a
//! small program of ours over the UDP payload. It deciphers the first 8 bytes of the first packet's destination
//! connection ID (one block of Speck64/128), and where the clear text has our mark and an existing shard, its
//! answer is that shard's socket; a client may change its address and stays where it was. Any other answer makes
//! the kernel choose by the addresses and ports, as it would without us. Classic BPF needs no privileges and about
//! 200 ns.
//!
//! A message that the kernel coalesced from several datagrams goes where its first one belongs. Who makes the IDs
//! decides on key, mark and layout of the clear text: a byte for the shard, three for the mark, four that do not matter
//! here.

use std::io;
use std::os::fd::AsFd;

use crate::classic_bpf::{
    TO_ACCUMULATOR, TO_INDEX, answer, combine, compute, jump, load, load_byte, recall, recall_index,
    statement, store,
};
use crate::socket::UdpSocket;
use crate::sys::options;

/// Rounds of the cipher, and so its round keys.
pub const STEERING_ROUNDS: usize = 27;

/// An index that no group has, so that the kernel chooses by addresses and ports.
const NO_SOCKET: u32 = u32::MAX;

/// A long header up to the length of its destination connection ID, in bytes (RFC 8999 section 5.1). Payloads that end
/// before the ID would end are not parsed: every QUIC packet is longer, and loads beyond the end would answer
/// "socket 0".
const LONG_HEADER_BYTES: u32 = 6;

/// Where the halves of the block are kept: `x` is the first four bytes of an ID, `y` the others.
const X: u32 = 0;
const Y: u32 = 1;

/// How the connection IDs are made.
#[derive(Clone, Copy)]
pub struct ConnectionIds<'a> {
    /// The cipher's, in the order of enciphering.
    pub round_keys: &'a [u32; STEERING_ROUNDS],
    /// The 24 bits behind the shard.
    pub mark: u32,
    /// Bytes of an ID, at least 8.
    pub bytes: u8,
}

/// Lets the kernel spread what arrives at the group of `socket` over its `shards` sockets, in the order in which they
/// were bound, by connection IDs made as `ids` says. To be called again where sockets join or leave.
///
/// # Errors
/// The kernel's refusal, e.g. because `socket` does not share its port.
pub fn attach(socket: &UdpSocket, ids: ConnectionIds<'_>, shards: u8) -> io::Result<()> {
    let program = program(ids, shards);
    options::attach_program(
        socket.as_fd(),
        libc::SOL_SOCKET,
        libc::SO_ATTACH_REUSEPORT_CBPF,
        &program,
    )
    .map_err(|error| io::Error::new(error.kind(), format!("cannot steer by connection ID: {error}")))
}

/// The program's instructions: code, jumps where true and where false, operand.
#[doc(hidden)]
#[must_use]
pub fn instructions(ids: ConnectionIds<'_>, shards: u8) -> Vec<(u16, u8, u8, u32)> {
    let program = program(ids, shards).into_iter();
    program
        .map(|step| (step.code, step.jt, step.jf, step.k))
        .collect()
}

/// The program. Loads of words are big-endian, as the IDs are.
fn program(ids: ConnectionIds<'_>, shards: u8) -> Vec<libc::sock_filter> {
    let (equal, at_least, any_bit) = (
        libc::BPF_JMP | libc::BPF_JEQ,
        libc::BPF_JMP | libc::BPF_JGE,
        libc::BPF_JMP | libc::BPF_JSET,
    );
    let mut program = vec![
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_LEN, 0),
        jump(at_least, LONG_HEADER_BYTES + u32::from(ids.bytes), 1, 0),
        answer(NO_SOCKET),
        load_byte(0),
        jump(any_bit, 0x80, 4, 0),
        // A short header: the ID begins at byte 1 (RFC 8999 section 5.2).
        load(1),
        store(X),
        load(5),
        statement(libc::BPF_JMP | libc::BPF_JA, 6),
        // A long header: its length is in byte 5 (RFC 8999 section 5.1).
        load_byte(5),
        jump(equal, u32::from(ids.bytes), 1, 0),
        answer(NO_SOCKET),
        load(6),
        store(X),
        load(10),
        // Both come here with y in the accumulator.
        recall_index(X),
    ];
    for key in ids.round_keys.iter().rev() {
        // y = (y ^ x) rotated right by 3; at the start x is in the index register too.
        program.extend([
            combine(libc::BPF_XOR),
            TO_INDEX,
            compute(libc::BPF_RSH, 3),
            store(Y),
            TO_ACCUMULATOR,
            compute(libc::BPF_LSH, 29),
            recall_index(Y),
            combine(libc::BPF_OR),
            store(Y),
            TO_INDEX,
        ]);
        // x = ((x ^ key) - y) rotated left by 8.
        program.extend([
            recall(X),
            compute(libc::BPF_XOR, *key),
            combine(libc::BPF_SUB),
            TO_INDEX,
            compute(libc::BPF_LSH, 8),
            store(X),
            TO_ACCUMULATOR,
            compute(libc::BPF_RSH, 24),
            recall_index(X),
            combine(libc::BPF_OR),
            store(X),
            TO_INDEX,
            recall(Y),
        ]);
    }
    program.extend([
        TO_ACCUMULATOR,
        compute(libc::BPF_AND, 0xff_ffff),
        jump(equal, ids.mark, 1, 0),
        answer(NO_SOCKET),
        TO_ACCUMULATOR,
        compute(libc::BPF_RSH, 24),
        jump(at_least, u32::from(shards), 0, 1),
        answer(NO_SOCKET),
        statement(libc::BPF_RET | libc::BPF_A, 0),
    ]);
    program
}
