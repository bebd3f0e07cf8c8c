//! Receive buffers of a server's sockets towards UDP targets.
//!
//! Each socket begins with the kernel's default. Where one receive shows that it carries much, by a full batch or by a
//! good part of what its buffer holds, its buffer grows, up to the setting: that is before a loss where the shard comes
//! round in time, and else at the first one. Nothing shrinks before the session's end. What the grown buffers of all
//! shards may hold together is a part of what the kernel gives UDP; beyond it sockets keep what they have.

use std::fs;

use packet_io::{DatagramSocket, UdpSocket};
use tunnel_proto::Budget;

use crate::limits;

/// The bounds of all shards together: pages from which the kernel holds UDP back, in the second of three numbers.
const UDP_MEMORY: &str = "/proc/sys/net/ipv4/udp_mem";

/// A buffer may keep twice its size in memory, because the kernel doubles what is asked for.
const KERNEL_FACTOR: usize = 2;

/// One shard's part of what grown buffers may hold.
pub(in crate::driver) struct UpstreamBuffers {
    budget: Budget,
    /// The size up to which one grows, in bytes.
    bytes_max: usize,
}

/// The receive buffer of one socket.
pub(super) struct UpstreamBuffer {
    /// In bytes, as the kernel has granted it.
    bytes: usize,
    /// What the budget has given for it, in bytes.
    charged: usize,
    drops_seen: u64,
    /// The kernel grants no more.
    is_at_limit: bool,
}

/// What one receive has shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// The batch was full: there may be more.
    pub(super) is_full: bool,
    /// Bytes of payload.
    pub(super) bytes: u64,
    /// What the socket has dropped since it exists.
    pub(super) drops: u64,
}

impl UpstreamBuffers {
    /// For each of these shards, buffers up to `bytes_max`.
    pub(super) fn of_shards(count: usize, bytes_max: usize) -> Vec<Self> {
        let total = bytes_of_all(fs::read_to_string(UDP_MEMORY).ok().as_deref());
        let budgets = Budget::divided(total, count).into_iter();
        budgets.map(|budget| Self { budget, bytes_max }).collect()
    }

    /// The size that the buffer should have after this load, if it should grow; the budget has given what it takes.
    fn grow(&mut self, buffer: &mut UpstreamBuffer, load: Load) -> Option<usize> {
        let has_lost = load.drops > std::mem::replace(&mut buffer.drops_seen, load.drops);
        let busy_bytes = (buffer.bytes / limits::UPSTREAM_BUFFER_BUSY_PART) as u64;
        let is_busy = load.is_full || has_lost || load.bytes >= busy_bytes;
        if !is_busy || buffer.is_at_limit || buffer.bytes >= self.bytes_max {
            return None;
        }
        let grown = buffer.bytes.saturating_mul(limits::UPSTREAM_BUFFER_GROWTH);
        let bytes = grown.min(self.bytes_max);
        let more = (KERNEL_FACTOR * bytes).saturating_sub(buffer.charged);
        self.budget.take_many(more).then(|| {
            buffer.charged += more;
            bytes
        })
    }

    /// The kernel has granted `obtained` of `wanted` bytes.
    fn settle(&mut self, buffer: &mut UpstreamBuffer, wanted: usize, obtained: usize) {
        buffer.bytes = obtained;
        buffer.is_at_limit = obtained < wanted;
        let surplus = buffer.charged.saturating_sub(KERNEL_FACTOR * obtained);
        buffer.charged -= surplus;
        self.budget.give_many_back(surplus);
    }

    /// Looks at what a receive has shown of this socket.
    pub(super) fn adapt(&mut self, socket: &mut UdpSocket, buffer: &mut UpstreamBuffer, load: Load) {
        if let Some(wanted) = self.grow(buffer, load) {
            // Where it is refused, the buffer stays as it was.
            let _ = socket.set_receive_buffer(wanted);
            self.settle(buffer, wanted, socket.grants().receive.obtained);
        }
    }

    /// The socket of this buffer is closed.
    pub(super) fn release(&mut self, buffer: &UpstreamBuffer) {
        self.budget.give_many_back(buffer.charged);
    }
}

impl UpstreamBuffer {
    /// The buffer of a new socket.
    pub(super) fn of(socket: &UdpSocket) -> Self {
        Self::with(socket.grants().receive.obtained)
    }

    fn with(bytes: usize) -> Self {
        Self {
            bytes,
            charged: 0,
            drops_seen: 0,
            is_at_limit: false,
        }
    }
}

impl Load {
    /// Receives once, by `receive`; how many messages came, and what that shows.
    pub(super) fn of_receive(
        socket: &mut UdpSocket,
        slots: usize,
        receive: impl FnOnce(&mut UdpSocket) -> std::io::Result<usize>,
    ) -> std::io::Result<(usize, Self)> {
        let before = socket.stats().bytes_received;
        let count = receive(socket)?;
        let stats = socket.stats();
        let load = Self {
            is_full: count == slots,
            bytes: stats.bytes_received - before,
            drops: stats.kernel_drops,
        };
        Ok((count, load))
    }
}

/// What grown buffers may hold together, in bytes, by what the kernel says of its bounds.
fn bytes_of_all(udp_memory: Option<&str>) -> usize {
    let pressure = udp_memory.and_then(|text| text.split_whitespace().nth(1)?.parse::<usize>().ok());
    pressure.map_or(limits::UPSTREAM_BUFFERS_BYTES_UNKNOWN, |pages| {
        pages.saturating_mul(limits::PAGE_BYTES_MIN) / limits::UPSTREAM_BUFFERS_PRESSURE_PART
    })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use packet_io::{Outgoing, ReceiveBatch, SocketOptions};

    use super::*;

    const DEFAULT: usize = 104 << 10;
    const SETTING: usize = 8 << 20;

    const IDLE: Load = Load {
        is_full: false,
        bytes: 1_200,
        drops: 0,
    };

    const FULL: Load = Load {
        is_full: true,
        ..IDLE
    };

    fn buffers(total: usize) -> UpstreamBuffers {
        UpstreamBuffers {
            budget: Budget::whole(total),
            bytes_max: SETTING,
        }
    }

    /// The sizes that a buffer gets where every load is full and the kernel grants everything.
    fn sizes(buffers: &mut UpstreamBuffers, buffer: &mut UpstreamBuffer) -> Vec<usize> {
        std::iter::from_fn(|| {
            let bytes = buffers.grow(buffer, FULL)?;
            buffers.settle(buffer, bytes, bytes);
            Some(bytes)
        })
        .collect()
    }

    #[test]
    fn a_buffer_grows_with_a_full_batch_with_many_bytes_and_with_a_loss_alone() {
        let mut buffers = buffers(usize::MAX / 2);
        let busy = (DEFAULT / limits::UPSTREAM_BUFFER_BUSY_PART) as u64;
        let load = |bytes, drops| Load { bytes, drops, ..IDLE };
        for (load, grows) in [
            (IDLE, false),
            (FULL, true),
            (load(busy - 1, 0), false),
            (load(busy, 0), true),
            (load(0, 1), true),
        ] {
            let mut buffer = UpstreamBuffer::with(DEFAULT);
            assert_eq!(buffers.grow(&mut buffer, load).is_some(), grows, "{load:?}");
            // The same loss asks once.
            buffers.settle(&mut buffer, DEFAULT, DEFAULT);
            assert_eq!(
                buffers.grow(
                    &mut buffer,
                    Load {
                        drops: load.drops,
                        ..IDLE
                    }
                ),
                None
            );
        }
    }

    #[test]
    fn it_grows_up_to_the_setting_and_no_further() {
        let mut buffers = buffers(usize::MAX / 2);
        let mut buffer = UpstreamBuffer::with(DEFAULT);
        assert_eq!(
            sizes(&mut buffers, &mut buffer),
            [8 * DEFAULT, 64 * DEFAULT, SETTING]
        );
        assert_eq!(buffer.charged, 2 * SETTING);
        let mut above = UpstreamBuffer::with(SETTING + 1);
        assert!(sizes(&mut buffers, &mut above).is_empty());
    }

    #[test]
    fn all_of_them_together_stay_below_the_bound_and_what_is_closed_makes_room() {
        let total = 5 * SETTING;
        let mut buffers = buffers(total);
        let mut open: Vec<_> = (0..100).map(|_| UpstreamBuffer::with(DEFAULT)).collect();
        for buffer in &mut open {
            sizes(&mut buffers, buffer);
        }
        let charged = |open: &[UpstreamBuffer]| open.iter().map(|buffer| buffer.charged).sum::<usize>();
        assert!(charged(&open) <= total);
        let whole = open.iter().filter(|buffer| buffer.bytes == SETTING).count();
        assert_eq!(whole, 2, "each may keep twice its size");
        assert_eq!(open[99].bytes, DEFAULT);
        open[..99].iter().for_each(|buffer| buffers.release(buffer));
        assert_eq!(sizes(&mut buffers, &mut open[99]).last(), Some(&SETTING));
    }

    #[test]
    fn what_the_kernel_does_not_grant_is_not_charged_and_not_asked_for_again() {
        let mut buffers = buffers(2 * SETTING);
        let mut buffer = UpstreamBuffer::with(DEFAULT);
        let wanted = buffers.grow(&mut buffer, FULL).unwrap();
        buffers.settle(&mut buffer, wanted, 2 * DEFAULT);
        assert_eq!((buffer.bytes, buffer.charged), (2 * DEFAULT, 4 * DEFAULT));
        assert_eq!(buffers.grow(&mut buffer, FULL), None);
        buffers.release(&buffer);
        assert!(buffers.budget.take_many(2 * SETTING));
    }

    #[test]
    fn the_bound_is_half_of_where_the_kernel_holds_udp_back() {
        assert_eq!(bytes_of_all(Some("575802\t767736\t1151604\n")), 767_736 * 2_048);
        for unknown in [None, Some(""), Some("7"), Some("1 x 3")] {
            assert_eq!(bytes_of_all(unknown), limits::UPSTREAM_BUFFERS_BYTES_UNKNOWN);
        }
    }

    /// Socket and budget after a burst that the kernel's default buffer holds just so.
    fn after_a_burst(total: usize) -> (usize, usize, UpstreamBuffers) {
        let options = SocketOptions {
            receive_buffer_bytes: 0,
            ..SocketOptions::default()
        };
        let local = "127.0.0.1:0".parse().unwrap();
        let mut socket = UdpSocket::bind(local, &options).unwrap();
        let to = socket.local_addr().unwrap();
        let mut sender = UdpSocket::connect(None, to, &options).unwrap();
        let (mut buffers, mut buffer) = (buffers(total), UpstreamBuffer::of(&socket));
        let before = buffer.bytes;
        let payload = vec![1; before / limits::UPSTREAM_BUFFER_BUSY_PART + 1_000];
        // One datagram, so that it comes at once.
        sender.send(&[Outgoing::connected(&payload, 0)]).unwrap();
        let mut batch = ReceiveBatch::new(limits::INNER_RECEIVE_SLOTS, packet_io::SLOT_BYTES_MAX);
        let deadline = Instant::now() + Duration::from_secs(10);
        let received = |socket: &UdpSocket| {
            socket.stats().bytes_received as usize + socket.stats().kernel_drops as usize
        };
        while received(&socket) < payload.len() && Instant::now() < deadline {
            let receive = |socket: &mut UdpSocket| socket.receive(&mut batch);
            let (_, load) = Load::of_receive(&mut socket, limits::INNER_RECEIVE_SLOTS, receive).unwrap();
            buffers.adapt(&mut socket, &mut buffer, load);
        }
        assert_eq!(socket.grants().receive.obtained, buffer.bytes);
        (before, buffer.bytes, buffers)
    }

    #[test]
    fn a_socket_that_gets_much_at_once_has_a_larger_buffer_before_it_loses_anything() {
        let (before, after, _) = after_a_burst(2 * SETTING);
        assert!(after > before, "{after} of {before}");
    }

    #[test]
    fn without_a_place_in_the_budget_it_keeps_the_kernels_default() {
        let (before, after, mut buffers) = after_a_burst(1_000);
        assert_eq!(before, after);
        assert!(buffers.budget.take_many(1_000), "nothing was charged");
    }
}
