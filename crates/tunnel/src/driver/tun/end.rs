//! One shard's queue of the TUN device: super-packets in, coalesced packets out, and what became of them.

use bytes::BytesMut;
use packet::checksum::ChecksumState;
use packet::coalesce::{Coalescer, MergeRules, PushError, SuperPacket};
use packet::segmentation::Segmenter;
use packet::vnet::GsoType;
use packet_io::{TUN_READ_BYTES_MAX, TunError, TunQueue, VNET_HEADER_BYTES};
use tunnel_proto::{Account, DropReason};

use super::shedding::Shedding;
use crate::snapshot::TunCounters;

/// A shard's end of the TUN device.
pub(in crate::driver) struct TunEnd {
    pub(in crate::driver) queue: TunQueue,
    /// Where packets are read to.
    pub(in crate::driver) buffer: Vec<u8>,
    /// The poller looks at it.
    pub(in crate::driver) is_watched: bool,
    pub(in crate::driver) shedding: Shedding,
    coalescer: Coalescer,
    rules: MergeRules,
    outcome: Outcome,
}

/// What became of packets for the TUN since it was last asked.
#[derive(Default)]
struct Outcome {
    written: u64,
    malformed: u64,
    refused_by_device: u64,
    /// Super-packets were refused: what is joined no more.
    step_down: Option<GsoType>,
    is_gone: bool,
    /// Finished segments of a refused super-packet.
    scratch: BytesMut,
    step_downs: u64,
}

impl TunEnd {
    /// A queue of the device `name`.
    pub(in crate::driver) fn new(queue: TunQueue, name: &str) -> Self {
        Self {
            queue,
            buffer: vec![0; TUN_READ_BYTES_MAX],
            is_watched: false,
            shedding: Shedding::of(name),
            coalescer: Coalescer::default(),
            rules: MergeRules::default(),
            outcome: Outcome::default(),
        }
    }

    /// Takes a packet that is to be written with the next [`TunEnd::flush`], or before where there is no more room.
    pub(in crate::driver) fn push(&mut self, packet: &[u8], checksum: ChecksumState) {
        match self.coalescer.push(packet, checksum) {
            Ok(()) => {}
            Err(PushError::Full) => {
                self.flush();
                if self.coalescer.push(packet, checksum).is_err() {
                    self.outcome.malformed += 1;
                }
            }
            Err(PushError::Ip(_) | PushError::NoChecksumField { .. }) => self.outcome.malformed += 1,
        }
    }

    /// Writes what was collected.
    pub(in crate::driver) fn flush(&mut self) {
        let Self {
            queue,
            coalescer,
            rules,
            outcome,
            ..
        } = self;
        coalescer.drain(|packet| outcome.write(queue, &packet));
        if let Some(kind) = outcome.step_down.take() {
            outcome.step_downs += 1;
            match kind {
                GsoType::UdpL4 => rules.udp_datagrams_max = 1,
                _ => rules.tcp = false,
            }
            coalescer.set_rules(*rules);
        }
    }

    /// Enters in the account what became of the packets. Whether the device is still there.
    pub(in crate::driver) fn settle(&mut self, account: &mut Account) -> bool {
        let outcome = &mut self.outcome;
        account.sent += std::mem::take(&mut outcome.written);
        account.drop(DropReason::Malformed, std::mem::take(&mut outcome.malformed));
        account.drop(
            DropReason::SocketError,
            std::mem::take(&mut outcome.refused_by_device),
        );
        !outcome.is_gone
    }

    pub(in crate::driver) fn has_failed(&mut self, error: &TunError) {
        self.outcome.is_gone |= matches!(error, TunError::Gone);
    }

    pub(in crate::driver) fn counters(&self) -> TunCounters {
        let stats = self.queue.stats();
        TunCounters {
            reads: stats.reads,
            super_reads: stats.super_reads,
            plain_reads: stats.plain_reads,
            bytes_read: stats.bytes_read,
            writes: stats.writes,
            super_writes: stats.super_writes,
            bytes_written: stats.bytes_written,
            refused: stats.refused,
            errors: stats.errors,
            step_downs: self.outcome.step_downs,
        }
    }
}

impl Outcome {
    fn write(&mut self, queue: &mut TunQueue, packet: &SuperPacket<'_>) {
        match queue.write(&packet.header.encode(), packet.bytes) {
            Ok(()) => self.written += packet.packets as u64,
            Err(TunError::OffloadRefused) => {
                if packet.header.gso != GsoType::None {
                    self.step_down = Some(packet.header.gso);
                }
                self.write_segments(queue, packet);
            }
            Err(error) => {
                self.is_gone |= matches!(error, TunError::Gone);
                self.refused_by_device += packet.packets as u64;
            }
        }
    }

    /// The kernel does not take it as it is: it gets finished packets.
    fn write_segments(&mut self, queue: &mut TunQueue, packet: &SuperPacket<'_>) {
        let mut left = packet.packets as u64;
        if let Ok(mut segmenter) = Segmenter::new(&packet.header, packet.bytes, packet.bytes.len()) {
            self.scratch.clear();
            while left > 0
                && segmenter
                    .next_into(&mut self.scratch, ChecksumState::Full)
                    .is_some()
            {
                if queue.write(&[0; VNET_HEADER_BYTES], &self.scratch).is_ok() {
                    self.written += 1;
                } else {
                    self.refused_by_device += 1;
                }
                left -= 1;
                self.scratch.clear();
            }
        }
        self.refused_by_device += left;
    }
}
