//! TCP connections of a receiver: from the sender to a port that it offers (FILE-19), or to the sender's, where that
//! does not reach it (FILE-36). Whichever end connects, this one is TLS's server.

use std::net::{Ipv6Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, Scope};

use files_proto::message::{Message, TcpOffer};
use peer::PeerPath;
use quic::records;
use rustls::ServerConfig;

use super::shared::Receiving;
use super::{Conversation, begin_lane};
use crate::carrier::RecordReceiver;
use crate::carrier::tcp::{self, Listener};
use crate::carrier::tls::{PROTOCOL, TlsReceiver};
use crate::limits::{TCP_CONNECTIONS, TCP_STRANGERS_MAX};
use crate::options::Transport;
use crate::session_key;

impl Conversation<'_, '_> {
    /// Offers a port of ours, which is of use where the sender reaches us directly.
    pub(super) fn offer_tcp(&mut self) {
        let (Ok(listener), Ok(key)) = (Listener::bind(), session_key()) else {
            return;
        };
        let Ok(port) = listener.port() else { return };
        self.receiving.outbox.push(&Message::TcpOffer(TcpOffer {
            // The address is the one that QUIC has (FILE-19).
            addresses: vec![SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))],
            key: key.public_key(),
        }));
        self.key = Some(key);
        self.receiving.set_listener(listener);
    }

    /// Takes connections of the holder of this key.
    pub(super) fn begin_tcp(&mut self, key: [u8; 32]) {
        let (Some(own), Some(listener)) = (&self.key, self.receiving.listener()) else {
            return;
        };
        if std::mem::replace(&mut self.takes_tcp, true) {
            return;
        }
        let config = records::accepting(own, PROTOCOL, key);
        let (scope, receiving) = (self.scope, self.receiving);
        scope.spawn(move || {
            let strangers = &AtomicUsize::new(0);
            thread::scope(|handshakes| {
                let is_over = || receiving.is_over() || strangers.load(Ordering::SeqCst) > TCP_STRANGERS_MAX;
                while let Some(socket) = listener.accept(is_over) {
                    let config = Arc::clone(&config);
                    strangers.fetch_add(1, Ordering::SeqCst);
                    // Also a handshake is cut at the end.
                    let socket = Arc::new(socket);
                    if !receiving.sockets.keep(&socket) {
                        break;
                    }
                    handshakes.spawn(move || {
                        if begin_tcp_lane(scope, receiving, socket, config) {
                            strangers.fetch_sub(1, Ordering::SeqCst);
                        }
                    });
                }
                listener.close();
            });
        });
    }

    /// Connects to the sender's port, once, as it has not reached ours.
    pub(super) fn connect_tcp(&mut self, offer: &TcpOffer) {
        let (Some(PeerPath::Direct(address)), Some(port)) =
            (self.peer.path(), offer.addresses.first().map(SocketAddr::port))
        else {
            return;
        };
        let Some(own) = self
            .key
            .as_ref()
            .filter(|_| self.options.transport != Transport::Quic)
        else {
            return;
        };
        if std::mem::replace(&mut self.has_connected, true) {
            return;
        }
        self.receiving.outbox.push(&Message::TcpKey {
            key: own.public_key(),
        });
        let config = records::accepting(own, PROTOCOL, offer.key);
        let (scope, receiving) = (self.scope, self.receiving);
        scope.spawn(move || {
            for _ in 0..TCP_CONNECTIONS {
                let Ok(socket) = tcp::connect(address, port).map(Arc::new) else {
                    return;
                };
                let is_kept = receiving.sockets.keep(&socket);
                // Where one is refused, the sender has enough.
                if !is_kept || !begin_tcp_lane(scope, receiving, socket, Arc::clone(&config)) {
                    return;
                }
            }
        });
    }
}

/// Completes the handshake, and gives the connection a thread; whether that went well.
fn begin_tcp_lane<'scope>(
    scope: &'scope Scope<'scope, '_>,
    receiving: &'scope Receiving,
    socket: Arc<TcpStream>,
    config: Arc<ServerConfig>,
) -> bool {
    let Ok(carrier) = TlsReceiver::new(socket, config) else {
        return false;
    };
    begin_lane(scope, receiving, RecordReceiver::Tcp(Box::new(carrier)));
    true
}
