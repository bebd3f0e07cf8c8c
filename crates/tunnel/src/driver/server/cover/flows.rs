//! The sockets of strangers towards the cover: each of their addresses has one of its own, so that the cover tells them
//! apart as it would without us (specs/qr1.md, QR1-23). Which there are, and for how long, the door decides.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;

use packet::Ecn;
use packet_io::{DatagramSocket, Interest, Outgoing, Poller, SocketOptions, UdpSocket};
use reality::door::FlowKey;

use crate::config::CommonConfig;
use crate::driver::outer;
use crate::driver::server::ServerSource;
use crate::driver::sources::{SourceId, Sources};
use crate::snapshot::Gauge;

/// One stranger's socket.
pub(in crate::driver) struct CoverFlow {
    pub(super) key: FlowKey,
    pub(in crate::driver::server) socket: UdpSocket,
}

/// The sockets that are open, by flow.
#[derive(Default)]
pub(super) struct Flows {
    open: HashMap<FlowKey, SourceId>,
    /// Since the start.
    total: u64,
}

impl Flows {
    pub(super) fn has(&self, key: FlowKey) -> bool {
        self.open.contains_key(&key)
    }

    pub(super) fn gauge(&self) -> Gauge {
        Gauge {
            open: self.open.len() as u64,
            total: self.total,
        }
    }

    /// Opens a flow to this address of the cover.
    ///
    /// # Errors
    /// No room for another descriptor, or no way there.
    pub(super) fn open(
        &mut self,
        key: FlowKey,
        cover: SocketAddr,
        common: &CommonConfig,
        sources: &mut Sources<ServerSource>,
        poller: &Poller,
    ) -> io::Result<()> {
        let options = SocketOptions {
            // Strangers get what the system gives to everybody.
            receive_buffer_bytes: 0,
            send_buffer_bytes: 0,
            ..outer::options(common)
        };
        let socket = UdpSocket::connect(None, cover, &options)?;
        let source = ServerSource::Flow(Box::new(CoverFlow { key, socket }));
        let opened = sources.insert(poller, source, Interest::READABLE, None);
        self.open.insert(key, opened.map_err(io::Error::other)?);
        self.total += 1;
        Ok(())
    }

    pub(super) fn close(&mut self, key: FlowKey, sources: &mut Sources<ServerSource>, poller: &Poller) {
        if let Some(source) = self.open.remove(&key) {
            drop(sources.remove(poller, source));
        }
    }

    /// Sends a stranger's datagram to the cover as it came; what the socket does not take is lost, as on any path.
    pub(super) fn send(&self, key: FlowKey, ecn: Ecn, datagram: &[u8], sources: &mut Sources<ServerSource>) {
        let source = self.open.get(&key).and_then(|id| sources.get_mut(*id));
        if let Some(ServerSource::Flow(flow)) = source {
            let message = Outgoing {
                destination: None,
                source: None,
                ecn,
                segment_size: datagram.len(),
                payload: datagram,
            };
            // An error of an earlier one says that the cover is away: strangers get silence (QR1-26).
            let _ = flow.socket.send(&[message]);
        }
    }
}
