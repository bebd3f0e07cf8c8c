//! Datagrams from inner sockets: a received batch goes to its sessions piece by piece, QUIC sending in between.
//!
//! A batch of coalesced messages holds up to 4 MiB, more than a peer's queue; given over whole, most of it was dropped
//! while QUIC stood ready to send it.

use std::ops::Range;
use std::time::Instant;

use packet_io::DatagramSocket;

use super::{Inner, Shard};
use crate::core::RequestId;
use crate::limits;

impl Shard {
    /// One batch of a UDP listener: every run of one source goes to its session.
    pub(super) fn receive_at_listener(&mut self, now: Instant, index: usize) {
        if self.intake_should_wait() {
            return;
        }
        let Some(listener) = self.udp_listeners.get_mut(index) else {
            return;
        };
        let Ok(count) = listener.socket.receive(&mut self.inner_batch) else {
            return;
        };
        let mut start = 0;
        while start < count {
            let source = self.inner_batch.get(start).meta.source;
            let mut end = start + 1;
            while end < count && self.inner_batch.get(end).meta.source == source {
                end += 1;
            }
            let id = match self.udp_listeners[index].sessions.get(&source) {
                Some(id) => *id,
                None => self.new_session(now, index, source),
            };
            self.take_in(now, id, start..end);
            start = end;
        }
    }

    /// One batch of a target's answers.
    pub(super) fn receive_upstream(&mut self, now: Instant, id: RequestId) {
        if self.intake_should_wait() {
            return;
        }
        let Some(Some(Inner::Upstream(socket))) = self.inner.get_mut(id.index()) else {
            return;
        };
        // What ICMP reported was about an earlier datagram; its drop is counted where it is sent.
        if let Ok(count) = socket.receive(&mut self.inner_batch) {
            self.take_in(now, id, 0..count);
        }
    }

    /// Whether what has come already should leave first.
    fn intake_should_wait(&self) -> bool {
        self.more_to_send && self.engine.queue_is_long()
    }

    fn take_in(&mut self, now: Instant, id: RequestId, messages: Range<usize>) {
        let mut start = messages.start;
        while start < messages.end {
            let (mut end, mut datagrams) = (start, 0);
            while end < messages.end && datagrams < limits::INTAKE_DATAGRAMS {
                datagrams += self.inner_batch.get(end).meta.segments();
                end += 1;
            }
            let batch = &self.inner_batch;
            let whole = (start..end)
                .map(|index| batch.get(index))
                .filter(|received| !received.meta.truncated);
            self.engine
                .send_datagrams(now, id, whole.flat_map(|received| received.segments()));
            if self.engine.queue_is_long() {
                self.more_to_send = self.flush_outer(now);
            }
            start = end;
        }
    }
}
