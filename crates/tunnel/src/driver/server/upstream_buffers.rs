//! Receive buffers of a server's sockets towards UDP targets.
//!
//! Each socket begins with the kernel's default. Where one receive shows that it carries much, by a full batch or by a
//! good part of what its buffer holds, its buffer grows, up to the setting: that is before a loss where the shard
//! comes round in time, and else at the first one. Nothing shrinks before the session's end. What the grown buffers of
//! all shards may hold together is a part of what the kernel gives UDP, and no user takes more than a multiple of what
//! is left of it, so that another one always finds some; beyond it sockets keep what they have.

use std::collections::BTreeMap;
use std::fs;

use packet_io::{DatagramSocket, UdpSocket};
use tunnel_proto::{Budget, UserId};

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
    /// What each user's buffers were given on this shard, in bytes.
    given: BTreeMap<Option<UserId>, usize>,
}

/// The receive buffer of one socket.
pub(super) struct UpstreamBuffer {
    user: Option<UserId>,
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
pub(in crate::driver) struct Load {
    /// The batch was full: there may be more.
    pub(in crate::driver) is_full: bool,
    /// Bytes of payload.
    pub(in crate::driver) bytes: u64,
    /// What the socket has dropped since it exists.
    pub(super) drops: u64,
}

impl UpstreamBuffers {
    /// For each of these shards, buffers up to `bytes_max`.
    pub(super) fn of_shards(count: usize, bytes_max: usize) -> Vec<Self> {
        let total = bytes_of_all(fs::read_to_string(UDP_MEMORY).ok().as_deref());
        let budgets = Budget::divided(total, count).into_iter();
        let buffers = budgets.map(|budget| Self {
            budget,
            bytes_max,
            given: BTreeMap::new(),
        });
        buffers.collect()
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
        let given = self.given.get(&buffer.user).copied().unwrap_or(0);
        let left = self.budget.left().saturating_sub(more);
        let is_share = given + more <= limits::UPSTREAM_BUFFERS_SHARES_OF_REST.saturating_mul(left);
        (is_share && self.budget.take_many(more)).then(|| {
            buffer.charged += more;
            *self.given.entry(buffer.user).or_default() += more;
            bytes
        })
    }

    /// The user gives so many bytes back.
    fn give_back(&mut self, user: Option<UserId>, bytes: usize) {
        self.budget.give_many_back(bytes);
        if let Some(given) = self.given.get_mut(&user) {
            *given -= bytes;
            if *given == 0 {
                self.given.remove(&user);
            }
        }
    }

    /// The kernel has granted `obtained` of `wanted` bytes.
    fn settle(&mut self, buffer: &mut UpstreamBuffer, wanted: usize, obtained: usize) {
        buffer.bytes = obtained;
        buffer.is_at_limit = obtained < wanted;
        let surplus = buffer.charged.saturating_sub(KERNEL_FACTOR * obtained);
        buffer.charged -= surplus;
        self.give_back(buffer.user, surplus);
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
        self.give_back(buffer.user, buffer.charged);
    }
}

impl UpstreamBuffer {
    /// The buffer of a user's new socket.
    pub(super) fn of(user: Option<UserId>, socket: &UdpSocket) -> Self {
        Self::with(user, socket.grants().receive.obtained)
    }

    /// That of a socket in the place of this one's.
    pub(super) fn replaced_by(&self, socket: &UdpSocket) -> Self {
        Self::of(self.user, socket)
    }

    fn with(user: Option<UserId>, bytes: usize) -> Self {
        Self {
            user,
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
            given: BTreeMap::new(),
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
            let mut buffer = UpstreamBuffer::with(None, DEFAULT);
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
        let mut buffer = UpstreamBuffer::with(None, DEFAULT);
        assert_eq!(
            sizes(&mut buffers, &mut buffer),
            [8 * DEFAULT, 64 * DEFAULT, SETTING]
        );
        assert_eq!(buffer.charged, 2 * SETTING);
        let mut above = UpstreamBuffer::with(None, SETTING + 1);
        assert!(sizes(&mut buffers, &mut above).is_empty());
    }

    #[test]
    fn all_of_them_together_stay_below_the_bound_and_what_is_closed_makes_room() {
        let total = 5 * SETTING;
        let mut buffers = buffers(total);
        let of_user = |user| UpstreamBuffer::with(Some(UserId([user; 16])), DEFAULT);
        let mut open: Vec<_> = (0..100).map(of_user).collect();
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
    fn a_user_with_many_sockets_leaves_a_quarter_of_the_bound_to_others() {
        let total = 20 * SETTING;
        let mut buffers = buffers(total);
        let mut grown = |user: u8, sockets: usize| {
            let user = Some(UserId([user; 16]));
            let mut open: Vec<_> = (0..sockets)
                .map(|_| UpstreamBuffer::with(user, DEFAULT))
                .collect();
            for buffer in &mut open {
                sizes(&mut buffers, buffer);
            }
            open.iter().map(|buffer| buffer.charged).sum::<usize>()
        };
        let first = grown(1, 1_000);
        assert!(first > total / 2 && first <= total * 3 / 4, "{first}");
        let second = grown(2, 1);
        assert_eq!(second, 2 * SETTING, "one socket gets all that it may have");
        let third = grown(3, 1_000);
        assert!(third > 0 && first + second + third <= total);
    }

    #[test]
    fn what_the_kernel_does_not_grant_is_not_charged_and_not_asked_for_again() {
        let mut buffers = buffers(2 * SETTING);
        let mut buffer = UpstreamBuffer::with(None, DEFAULT);
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
        let (mut buffers, mut buffer) = (buffers(total), UpstreamBuffer::of(None, &socket));
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
