//! The sending side of one QUIC connection: straight from noq's driver into the kernel.
//!
//! Where the kernel blocks, the sender registers a duplicate of the socket for writing, until the train is out: only
//! then is this process woken when the peer reads. A train goes on from the first segment that was not sent.

use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use noq::UdpSender;
use noq::udp::Transmit;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::limits::SEGMENTS_MAX;
use crate::link::watch;
use crate::socket::{Peer, Peers};

/// See the module.
#[derive(Debug)]
pub(crate) struct UdsSender {
    peers: Arc<Peers>,
    /// Where the last train went.
    peer: Option<Arc<Peer>>,
    /// Segments of the current train that the kernel has.
    sent: usize,
    /// Present while the kernel has no room.
    room: Option<AsyncFd<OwnedFd>>,
}

impl UdsSender {
    pub(crate) fn new(peers: Arc<Peers>) -> Self {
        Self {
            peers,
            peer: None,
            sent: 0,
            room: None,
        }
    }

    /// Sends what is left of the train.
    fn try_send(&mut self, peer: &Peer, contents: &[u8], segment: usize) -> io::Result<()> {
        let segments = contents.len().div_ceil(segment);
        while self.sent < segments {
            self.sent += peer.link().send(contents, segment, self.sent)?;
        }
        peer.link().flush()
    }

    /// Waits until the kernel may have room; an error if the socket can't be registered.
    fn poll_room(&mut self, peer: &Peer, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let room = match &self.room {
            Some(room) => room,
            None => {
                let duplicate = rustix::io::fcntl_dupfd_cloexec(peer.link().io().get_ref(), 0)?;
                let _runtime = self.peers.runtime().enter();
                self.room.insert(watch(duplicate, Interest::WRITABLE)?)
            }
        };
        match room.poll_write_ready(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(mut guard)) => {
                // Asked again after this: if there is still no room, the next one to come wakes us.
                guard.clear_ready();
                Poll::Ready(Ok(()))
            }
        }
    }
}

impl UdpSender for UdsSender {
    fn poll_send(
        mut self: Pin<&mut Self>,
        transmit: &Transmit<'_>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this
            .peer
            .as_ref()
            .is_none_or(|peer| peer.address() != transmit.destination)
        {
            this.sent = 0;
            this.room = None;
            this.peer = this.peers.find(transmit.destination);
        }
        // A peer that is gone gets nothing, as on a network; its connection is being closed.
        let Some(peer) = this.peer.clone() else {
            return Poll::Ready(Ok(()));
        };
        let segment = transmit.segment_size.unwrap_or(transmit.contents.len()).max(1);
        peer.note_sent(transmit.contents);
        loop {
            match this.try_send(&peer, transmit.contents, segment) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    match this.poll_room(&peer, context) {
                        Poll::Pending => return Poll::Pending,
                        Poll::Ready(Ok(())) => continue,
                        // Without a way to wait the train is lost, and QUIC sends it again.
                        Poll::Ready(Err(error)) => {
                            tracing::warn!("could not wait for room in a socket: {error}")
                        }
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // The peer is gone, or this train can never be sent; an error here would end noq's driver without
                // telling the connection. The receiving side closes it.
                Ok(()) | Err(_) => {}
            }
            this.sent = 0;
            this.room = None;
            return Poll::Ready(Ok(()));
        }
    }

    fn max_transmit_segments(&self) -> std::num::NonZeroUsize {
        const { std::num::NonZeroUsize::new(SEGMENTS_MAX).expect("more than zero") }
    }
}
