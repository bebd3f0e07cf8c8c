//! IP packets between the engine and the TUN device, and what an IP session needs of the host around it.
//!
//! Every shard has one queue of the device ([`end::TunEnd`]). A client's shards share the device's addresses, routes
//! and MTU ([`super::client::tun::ClientHost`]), a server's its leases and the way to each client's shard
//! ([`super::server::tun::ServerHost`]).

pub(super) mod device;
pub(super) mod end;
pub(super) mod retry;
pub(super) mod setup;
mod shedding;

use std::time::Instant;

use packet_io::{Interest, VNET_HEADER_BYTES};
use tunnel_proto::Prefix;

use super::role::Role;
use super::{PollToken, Shard};
use crate::handle::Failure;
use crate::limits;
use end::TunEnd;

/// As the host writes it.
pub(in crate::driver) fn host_prefix(prefix: &Prefix) -> Option<host::Prefix> {
    host::Prefix::new(prefix.address(), prefix.length())
}

impl<R: Role> Shard<R> {
    /// One batch of the TUN queue.
    pub(in crate::driver) fn read_tun(&mut self, now: Instant) {
        let Some(tun) = &mut self.delivery.tun else {
            return;
        };
        let mut buffer = std::mem::take(&mut tun.buffer);
        let mut bytes = 0;
        for _ in 0..limits::TUN_READS_PER_TURN {
            if bytes >= limits::TUN_READ_BYTES_PER_TURN || self.intake_should_wait() {
                break;
            }
            let Some(tun) = &mut self.delivery.tun else { break };
            match tun.queue.read(&mut buffer) {
                Ok(Some(read)) => {
                    bytes += read.len;
                    R::send_packet(self, now, &read.header, read.packet_mut(&mut buffer));
                }
                Ok(None) => break,
                Err(error) => {
                    tun.has_failed(&error);
                    break;
                }
            }
            if self.engine.queue_is_long() {
                self.more_to_send = self.flush_outer(now);
            }
        }
        if self.engine.queue_is_long() {
            self.shed(now, &mut buffer);
        }
        if let Some(tun) = &mut self.delivery.tun {
            tun.buffer = buffer;
        }
        self.flush_packets();
    }

    /// Where the device overflows, short packets find their way past a flood ([`shedding`]).
    fn shed(&mut self, now: Instant, buffer: &mut [u8]) {
        let start = &mut buffer[..VNET_HEADER_BYTES + limits::SHED_PACKET_BYTES];
        let is_due = |tun: &mut TunEnd| tun.shedding.is_due(now);
        if !self.delivery.tun.as_mut().is_some_and(is_due) {
            return;
        }
        for _ in 0..limits::SHED_READS_PER_TURN {
            let Some(tun) = &mut self.delivery.tun else { return };
            match tun.queue.read_cut(start) {
                Ok(Some(read)) if read.len < limits::SHED_PACKET_BYTES => {
                    R::send_packet(self, now, &read.header, read.packet_mut(start));
                }
                Ok(Some(read)) => {
                    if self.engine.shed_packet(&read.header, read.packet(start)) {
                        tun.shedding.gave_up(now);
                    }
                }
                Ok(None) => return,
                Err(error) => return tun.has_failed(&error),
            }
        }
    }

    /// Writes the packets that were collected for the TUN.
    pub(in crate::driver) fn flush_packets(&mut self) {
        let Some(tun) = &mut self.delivery.tun else {
            return;
        };
        tun.flush();
        if !tun.settle(self.engine.egress()) && self.failure.is_none() {
            self.failure = Some(Failure::Unavailable("the TUN device was removed".to_owned()));
        }
    }

    /// Has the poller watch the TUN queue, or not.
    pub(in crate::driver) fn watch_tun(&mut self, watch: bool) {
        let Some(tun) = &mut self.delivery.tun else {
            return;
        };
        if tun.is_watched == watch {
            return;
        }
        let done = if watch {
            tun.queue.attach().and_then(|()| {
                self.io
                    .poller
                    .add(&tun.queue, PollToken::Tun.encode(), Interest::READABLE)
            })
        } else {
            // A queue that is taken out reports an error without end.
            self.io
                .poller
                .remove(&tun.queue)
                .and_then(|()| tun.queue.detach())
        };
        match done {
            Ok(()) => tun.is_watched = watch,
            Err(error) => {
                self.failure = Some(Failure::Unavailable(format!("the TUN device fails: {error}")));
            }
        }
    }
}
