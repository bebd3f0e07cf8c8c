//! A limit to the UDP super-packets that wait in each queue of a TUN device, so that places stay free for others.
//!
//! A full queue drops whatever comes next, and a sender of super-packets fills every place at once, because nothing
//! but loss holds up who sends into a TUN. The kernel runs a program of ours in the sender's own call, before the
//! packet is queued: a UDP super-packet passes while those that wait in its queue amount to less than
//! [`TUN_FLOOD_UNITS_MAX`] units of 4 KiB, each begun one counted whole, so that bytes and places are limited at once.
//! Everything else always passes: TCP does not send more than its window, and packets that come one by one cost their
//! sender as much as us. No packet overtakes another of its flow.
//!
//! Each queue has two numbers that wrap, in memory that the program shares: how many units it *admitted*, which it
//! counts itself, and how many are *allowed*. What is read allows as much again. What was admitted and then dropped by
//! a queue full of other packets is never read; so where nothing waits any more, the whole limit is allowed anew.
//!
//! Programs need CAP_BPF or CAP_SYS_ADMIN, mostly (`kernel.unprivileged_bpf_disabled`).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use packet::ip::claimed_bytes_and_protocol;

use crate::limits::{TUN_FLOOD_UNITS_MAX, TUN_QUEUES_MAX};
use crate::sys::bpf::{self, SharedNumbers};

/// `VIRTIO_NET_HDR_GSO_UDP_L4` (virtio 1.2, section 5.1.6).
const GSO_UDP: u8 = 5;

/// Of each queue's numbers, the one that the program counts, and the one that readers set.
const NUMBERS: usize = 2;
const ADMITTED: usize = 0;
const ALLOWED: usize = 1;

/// A program that the kernel has verified, and its numbers. For one device.
#[derive(Clone, Debug)]
pub struct TunFloodLimit {
    loaded: Arc<Loaded>,
}

#[derive(Debug)]
struct Loaded {
    program: OwnedFd,
    numbers: SharedNumbers,
    /// The device's attached queues, in the order of the kernel's indices: it appends one that is attached, and puts
    /// the last one in the place of one that is detached.
    attached: Mutex<Vec<usize>>,
    /// The kernel's index by the order in which queues were made; only of attached ones.
    indices: [AtomicUsize; TUN_QUEUES_MAX],
}

impl TunFloodLimit {
    /// Loads the program. It does nothing before [`super::TunDevice::limit_floods`].
    ///
    /// # Errors
    /// The kernel's refusal: without the privilege, or before Linux 5.7.
    pub fn load() -> io::Result<Self> {
        let numbers = SharedNumbers::new(TUN_QUEUES_MAX * NUMBERS)?;
        for pair in numbers.as_slice().chunks_exact(NUMBERS) {
            pair[ALLOWED].store(TUN_FLOOD_UNITS_MAX, Ordering::Relaxed);
        }
        let program = bpf::load_socket_filter(&instructions(numbers.map()))?;
        Ok(Self {
            loaded: Arc::new(Loaded {
                program,
                numbers,
                attached: Mutex::new(Vec::new()),
                indices: std::array::from_fn(AtomicUsize::new),
            }),
        })
    }

    pub(super) fn program(&self) -> BorrowedFd<'_> {
        self.loaded.program.as_fd()
    }

    /// The side of those who read the queues of a device that has so many, all attached, in their order.
    pub(super) fn readers(&self, queues: usize) -> impl Iterator<Item = QueueLimit> + '_ {
        *self.attached() = (0..queues).collect();
        (0..queues).map(|queue| QueueLimit {
            limit: self.clone(),
            queue,
        })
    }

    fn attached(&self) -> std::sync::MutexGuard<'_, Vec<usize>> {
        self.loaded
            .attached
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// The limit of one queue, as its reader has it.
#[derive(Debug)]
pub(super) struct QueueLimit {
    limit: TunFloodLimit,
    queue: usize,
}

impl QueueLimit {
    /// A packet with this kind of super-packet in its header was read, or its start.
    pub(super) fn handle_read(&self, gso_type: u8, start: &[u8]) {
        if gso_type != GSO_UDP {
            return;
        }
        let numbers = self.numbers();
        let admitted = numbers[ADMITTED].load(Ordering::Relaxed);
        let allowed = numbers[ALLOWED].load(Ordering::Relaxed);
        // What the program does not take for UDP, as behind extension headers of IPv6, allows nothing beyond the limit.
        let ahead = allowed.wrapping_add(units(start)).wrapping_sub(admitted) as i32;
        let ahead = ahead.min(TUN_FLOOD_UNITS_MAX as i32) as u32;
        numbers[ALLOWED].store(admitted.wrapping_add(ahead), Ordering::Relaxed);
    }

    /// Nothing waits any more: the whole limit is allowed anew.
    pub(super) fn refill(&self) {
        let numbers = self.numbers();
        let admitted = numbers[ADMITTED].load(Ordering::Relaxed);
        let allowed = admitted.wrapping_add(TUN_FLOOD_UNITS_MAX);
        if numbers[ALLOWED].load(Ordering::Relaxed) != allowed {
            numbers[ALLOWED].store(allowed, Ordering::Relaxed);
        }
    }

    /// Attaches or detaches the queue by `change`, one at a time.
    pub(super) fn switch(&self, attach: bool, change: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut attached = self.limit.attached();
        change()?;
        if attach {
            attached.push(self.queue);
        } else if let Some(index) = attached.iter().position(|queue| *queue == self.queue) {
            attached.swap_remove(index);
        }
        for (index, queue) in attached.iter().enumerate() {
            self.limit.loaded.indices[*queue].store(index, Ordering::Relaxed);
        }
        Ok(())
    }

    fn numbers(&self) -> &[AtomicU32] {
        let loaded = &self.limit.loaded;
        let index = loaded.indices[self.queue].load(Ordering::Relaxed);
        &loaded.numbers.as_slice()[index * NUMBERS..][..NUMBERS]
    }
}

/// What a super-packet that starts so counts, by the length in its header.
fn units(start: &[u8]) -> u32 {
    let bytes = claimed_bytes_and_protocol(start).map_or(0, |(bytes, _)| bytes);
    (bytes as u32 >> UNIT_SHIFT) + 1
}

/// A unit of 4 KiB, as a shift.
const UNIT_SHIFT: u32 = 12;

/// What the program asks of a packet (`struct __sk_buff` of `linux/bpf.h`): offsets in bytes.
const LENGTH: i16 = 0;
const QUEUE_MAPPING: i16 = 12;
const GSO_SIZE: i16 = 176;

/// Where IPv4 and IPv6 have the protocol, in bytes.
const PROTOCOL_V4: i32 = 9;
const PROTOCOL_V6: i32 = 6;

const UDP: i32 = libc::IPPROTO_UDP;

/// Registers: of the answer, of scratch, and those that loads of the packet leave alone.
const ANSWER: u8 = 0;
const NUMBERS_AT: u8 = 1;
const LEFT: u8 = 2;
const COUNT: u8 = 3;
const PACKET: u8 = 6;
const QUEUE: u8 = 7;

/// The program, with jumps over as many instructions as are told. Operations are named as in the kernel's
/// `instruction-set.rst`.
fn instructions(map: i32) -> [u64; 28] {
    let step = |operation: u8, destination: u8, source: u8, offset: i16, operand: i32| {
        u64::from(operation)
            | u64::from(source << 4 | destination) << 8
            | u64::from(offset as u16) << 16
            | u64::from(operand as u32) << 32
    };
    let load = |to, offset| step(0x61, to, PACKET, offset, 0);
    let load_packet_byte = |at| step(0x30, 0, 0, 0, at);
    let number = |to, which: usize| step(0x61, to, NUMBERS_AT, 4 * which as i16, 0);
    let jump = |over| step(0x05, 0, 0, over, 0);
    let jump_equal = |register, operand, over| step(0x15, register, 0, over, operand);
    let jump_unequal = |register, operand, over| step(0x55, register, 0, over, operand);
    let set = |register, operand| step(0xb7, register, 0, 0, operand);
    let exit = step(0x95, 0, 0, 0, 0);
    [
        // The packet comes in register 1.
        step(0xbf, PACKET, 1, 0, 0),
        load(LEFT, GSO_SIZE),
        jump_equal(LEFT, 0, 21),
        load(QUEUE, QUEUE_MAPPING),
        step(0x35, QUEUE, 0, 19, TUN_QUEUES_MAX as i32),
        load_packet_byte(0),
        step(0x77, ANSWER, 0, 0, 4),
        jump_equal(ANSWER, 6, 2),
        load_packet_byte(PROTOCOL_V4),
        jump(1),
        load_packet_byte(PROTOCOL_V6),
        jump_unequal(ANSWER, UDP, 12),
        // The address of the map's value, and of this queue's numbers in it.
        step(0x18, NUMBERS_AT, 2, 0, map),
        0,
        step(0x67, QUEUE, 0, 0, 3),
        step(0x0f, NUMBERS_AT, QUEUE, 0, 0),
        number(LEFT, ALLOWED),
        number(COUNT, ADMITTED),
        step(0x1c, LEFT, COUNT, 0, 0),
        // As a signed number of 32 bits, not above 0: drop.
        step(0xd6, LEFT, 0, 6, 0),
        load(COUNT, LENGTH),
        step(0x77, COUNT, 0, 0, UNIT_SHIFT as i32),
        step(0x07, COUNT, 0, 0, 1),
        step(0xc3, NUMBERS_AT, COUNT, 4 * ADMITTED as i16, 0),
        // Keep as much as there is.
        set(ANSWER, -1),
        exit,
        set(ANSWER, 0),
        exit,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_super_packet_counts_each_unit_that_it_begins() {
        let v4 = |bytes: u16| units(&[&[0x45, 0][..], &bytes.to_be_bytes(), &[0; 16]].concat());
        assert_eq!([28, 4_095, 4_096, 65_535].map(v4), [1, 1, 2, 16]);
        let v6 = |bytes: u16| units(&[&[0x60, 0, 0, 0][..], &bytes.to_be_bytes(), &[0; 34]].concat());
        assert_eq!([8, 4_055, 4_056, 65_495].map(v6), [1, 1, 2, 16]);
        assert_eq!([units(&[]), units(&[0x60; 5])], [1, 1], "nonsense");
    }

    #[test]
    fn a_queue_has_its_eight_bytes_of_the_shared_numbers() {
        assert_eq!(
            NUMBERS * size_of::<AtomicU32>(),
            1 << 3,
            "the shift in the program"
        );
    }
}
