//! The kernel's steering program and its twin in Rust choose the same shard for every datagram.
//!
//! The program runs in an interpreter of the instructions that it has, as Linux defines them
//! (Documentation/networking/filter.rst); `packet-io/tests/steering.rs` runs it in the kernel.

use std::sync::LazyLock;

use packet_io::steering::ConnectionIds;
use quic::{IdLength, STEER_MARK, SteerKey, shard_of};

use crate::input::Input;

/// The answer by which the kernel chooses itself.
const NO_SOCKET: u32 = u32::MAX;

/// By the length of IDs, from 8 bytes on.
static KEYS: LazyLock<Vec<SteerKey>> = LazyLock::new(|| {
    let lengths = (8..=20).filter_map(IdLength::new);
    lengths.map(|length| SteerKey::derive(&[7; 64], length)).collect()
});

/// Length of IDs; shards; 0 for a datagram as it is and else where to put an ID of ours; shard and rest of that ID; a
/// datagram.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let key = &KEYS[usize::from(input.byte()) % KEYS.len()];
    let shards = input.byte().max(1);
    let place = usize::from(input.byte());
    let [_, mark @ ..] = STEER_MARK.to_be_bytes();
    let (shard, count) = (input.byte(), [input.byte(), input.byte(), 0, 1]);
    let clear = [shard, mark[0], mark[1], mark[2], count[0], count[1], 0, 1];
    let mut datagram = input.0.to_vec();
    if let Some(room) = datagram.get_mut(place..place + 8).filter(|_| place > 0) {
        room.copy_from_slice(&enciphered(key, u64::from_be_bytes(clear)).to_be_bytes());
    }
    let ids = ConnectionIds {
        round_keys: key.round_keys(),
        mark: STEER_MARK,
        bytes: key.id_length().bytes() as u8,
    };
    let program = packet_io::fuzzing::steering_instructions(ids, shards);
    let expected = shard_of(key, &datagram).filter(|shard| *shard < shards);
    assert_eq!(
        interpret(&program, &datagram),
        expected.map_or(NO_SOCKET, u32::from)
    );
}

/// Speck64/128 with the round keys of `key`.
fn enciphered(key: &SteerKey, block: u64) -> u64 {
    let words = ((block >> 32) as u32, block as u32);
    let (x, y) = key.round_keys().iter().fold(words, |(x, y), round_key| {
        let x = x.rotate_right(8).wrapping_add(y) ^ round_key;
        (x, y.rotate_left(3) ^ x)
    });
    u64::from(x) << 32 | u64::from(y)
}

/// What a program of classic BPF answers for a packet. Loads beyond its end answer 0; every jump leads forwards.
fn interpret(program: &[(u16, u8, u8, u32)], packet: &[u8]) -> u32 {
    let (mut accumulator, mut index, mut memory) = (0_u32, 0_u32, [0_u32; 16]);
    let mut next = 0;
    loop {
        let (code, if_true, if_false, operand) = program[next];
        next += 1;
        let place = operand as usize;
        let jump = |holds: bool| usize::from(if holds { if_true } else { if_false });
        match code {
            // LD W ABS, LD B ABS, LD W LEN.
            0x20 => match packet.get(place..).and_then(|rest| rest.first_chunk()) {
                Some(word) => accumulator = u32::from_be_bytes(*word),
                None => return 0,
            },
            0x30 => match packet.get(place) {
                Some(byte) => accumulator = u32::from(*byte),
                None => return 0,
            },
            0x80 => accumulator = packet.len() as u32,
            // LD MEM, LDX MEM, ST.
            0x60 => accumulator = memory[place],
            0x61 => index = memory[place],
            0x02 => memory[place] = accumulator,
            // TAX, TXA.
            0x07 => index = accumulator,
            0x87 => accumulator = index,
            // ALU with a constant: RSH, LSH, AND, XOR; with the index: XOR, OR, SUB.
            0x74 => accumulator >>= operand,
            0x64 => accumulator <<= operand,
            0x54 => accumulator &= operand,
            0xa4 => accumulator ^= operand,
            0xac => accumulator ^= index,
            0x4c => accumulator |= index,
            0x1c => accumulator = accumulator.wrapping_sub(index),
            // JA, JEQ, JGE, JSET.
            0x05 => next += place,
            0x15 => next += jump(accumulator == operand),
            0x35 => next += jump(accumulator >= operand),
            0x45 => next += jump(accumulator & operand != 0),
            // RET K, RET A.
            0x06 => return operand,
            0x16 => return accumulator,
            _ => panic!("the interpreter has no instruction {code:#x}"),
        }
    }
}

/// Short and long headers with IDs of ours, of shards that are there and not, and of other lengths.
pub fn seeds() -> Vec<Vec<u8>> {
    let short = [&[0x40][..], &[0; 40]].concat();
    let long = |length: u8| [&[0xc0, 0, 0, 0, 1, length][..], &[0; 40]].concat();
    let with = |head: [u8; 6], datagram: &[u8]| [&head[..], datagram].concat();
    vec![
        with([0, 4, 1, 2, 3, 4], &short),
        with([0, 4, 1, 9, 3, 4], &short),
        with([0, 4, 6, 3, 0, 0], &long(8)),
        with([0, 4, 6, 3, 0, 0], &long(9)),
        with([12, 4, 6, 3, 0, 0], &long(20)),
        with([12, 4, 1, 3, 0, 0], &short),
        with([12, 4, 1, 3, 0, 0], &short[..25]),
        with([0, 4, 6, 3, 0, 0], &long(0)),
        with([0, 1, 0, 0, 0, 0], &short[..13]),
        with([0, 255, 1, 254, 0, 0], &short),
        with([0, 4, 0, 0, 0, 0], &[]),
    ]
}
