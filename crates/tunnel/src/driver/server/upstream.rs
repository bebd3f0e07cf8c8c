//! A server's sockets towards UDP targets.
//!
//! UDP has no handshake that addresses could race by, and a datagram that is sent to two of them may be acted on twice.
//! So a session begins with the first address of its target, and goes on to the next one where it has asked and nobody
//! has answered for a while; what its client sends again goes there. The first address that answers stays, and so does
//! the last.

use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use packet_io::{DatagramSocket, Interest, ReceiveBatch, UdpSocket};
use tunnel_proto::RequestId;

use super::upstream_buffers::{Load, UpstreamBuffer, UpstreamBuffers};
use super::{Server, ServerInner};
use crate::driver::{Inner, PollToken, Shard, outer};
use crate::limits;
use crate::snapshot::IoCounters;

/// The socket of a session.
pub(in crate::driver) struct Upstream {
    pub(in crate::driver) socket: UdpSocket,
    buffer: UpstreamBuffer,
    /// Addresses of the target that were not tried.
    rest: std::vec::IntoIter<SocketAddr>,
    /// When it is to be seen whether somebody has answered.
    next_due: Option<Instant>,
    /// It was asked before that was last looked at.
    was_asked: bool,
}

impl Upstream {
    /// One batch of the target's answers; how many messages, and what they show.
    pub(in crate::driver) fn receive(
        &mut self,
        batch: &mut ReceiveBatch,
        buffers: &mut UpstreamBuffers,
    ) -> io::Result<(usize, Load)> {
        let slots = batch.capacity();
        let receive = |socket: &mut UdpSocket| socket.receive(batch);
        let (count, load) = Load::of_receive(&mut self.socket, slots, receive)?;
        buffers.adapt(&mut self.socket, &mut self.buffer, load);
        Ok((count, load))
    }

    /// The session is over.
    pub(super) fn close(mut self, buffers: &mut UpstreamBuffers) -> IoCounters {
        buffers.release(&self.buffer);
        IoCounters::of_socket(&mut self.socket).closed()
    }
}

impl Shard<Server> {
    /// Opens the session's socket to this address.
    pub(super) fn open_udp(&mut self, now: Instant, id: RequestId, address: SocketAddr) -> io::Result<()> {
        let socket = self.upstream_socket(id, address)?;
        let rest = match self.inner.get_mut(id.index()) {
            Some(Some(Inner::Role(ServerInner::Opening(opening)))) => std::mem::take(&mut opening.addresses),
            _ => Vec::new().into_iter(),
        };
        let next_due = self.judge_later(now, id, &rest);
        let upstream = Upstream {
            buffer: UpstreamBuffer::of(self.engine.user_of_request(id), &socket),
            socket,
            rest,
            next_due,
            was_asked: false,
        };
        self.insert_inner(id, Inner::Role(ServerInner::Upstream(Box::new(upstream))));
        self.engine.accept(now, id, &mut self.delivery);
        Ok(())
    }

    fn upstream_socket(&mut self, id: RequestId, address: SocketAddr) -> io::Result<UdpSocket> {
        let options = packet_io::SocketOptions {
            receive_ecn: false,
            receive_buffer_bytes: 0,
            ..outer::options(&self.io.common)
        };
        let socket = UdpSocket::connect(None, address, &options)?;
        self.io.watch(&socket, PollToken::of(id), Interest::READABLE)?;
        Ok(socket)
    }

    /// Has the session looked at again where there is another address to go to.
    fn judge_later(
        &mut self,
        now: Instant,
        id: RequestId,
        rest: &std::vec::IntoIter<SocketAddr>,
    ) -> Option<Instant> {
        let queue = &mut self.role.upstreams_due;
        let has_room = queue.len() < limits::UPSTREAMS_DUE_MAX;
        let due = (has_room && !rest.as_slice().is_empty()).then(|| now + limits::UDP_TARGET_SILENCE);
        queue.extend(due.map(|due| (due, id)));
        due
    }

    /// Lets sessions go on to the next address that have asked, and heard nothing for a while.
    pub(super) fn judge_upstreams(&mut self, now: Instant) {
        while let Some((due, id)) = self.role.upstreams_due.pop_front_if(|(due, _)| *due <= now) {
            let Some(Some(Inner::Role(ServerInner::Upstream(upstream)))) = self.inner.get_mut(id.index())
            else {
                continue;
            };
            let stats = upstream.socket.stats();
            let (has_asked, has_answer) = (stats.messages_sent > 0, stats.segments_received > 0);
            if upstream.next_due != Some(due) || has_answer {
                continue;
            }
            let mut rest = std::mem::take(&mut upstream.rest);
            // Since the last look: who was asked just now may still answer.
            let is_silent = std::mem::replace(&mut upstream.was_asked, has_asked);
            let next = if is_silent {
                self.next_upstream(now, id, &mut rest)
            } else {
                None
            };
            let next_due = self.judge_later(now, id, &rest);
            if let Some(Some(Inner::Role(ServerInner::Upstream(upstream)))) = self.inner.get_mut(id.index()) {
                if let Some(next) = next {
                    upstream.was_asked = false;
                    self.role.upstream_buffers.release(&upstream.buffer);
                    upstream.buffer = upstream.buffer.replaced_by(&next);
                    let mut silent = std::mem::replace(&mut upstream.socket, next);
                    self.io.inner_io_past += IoCounters::of_socket(&mut silent).closed();
                }
                (upstream.rest, upstream.next_due) = (rest, next_due);
            }
        }
    }

    /// A socket to the first of these addresses that can be had.
    fn next_upstream(
        &mut self,
        now: Instant,
        id: RequestId,
        rest: &mut std::vec::IntoIter<SocketAddr>,
    ) -> Option<UdpSocket> {
        rest.find_map(|address| {
            let address = SocketAddr::new(address.ip().to_canonical(), address.port());
            let is_allowed = self.is_allowed(now, address);
            is_allowed.then(|| self.upstream_socket(id, address).ok())?
        })
    }
}
