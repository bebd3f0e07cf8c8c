//! TCP connections of a receiver: from the sender to a port that it offers (FILE-19), or to the sender's, where that
//! does not reach it (FILE-36). Whichever end connects, this one is TLS's server.

use std::net::{Ipv6Addr, SocketAddr, TcpStream};
use std::sync::Arc;

use files_proto::message::{Message, TcpOffer};
use peer::PeerPath;
use quic::records;
use rustls::ServerConfig;

use super::{Conversation, begin_lane};
use crate::carrier::RecordReceiver;
use crate::carrier::tcp;
use crate::carrier::tls::{PROTOCOL, TlsReceiver};
use crate::limits::TCP_CONNECTIONS;
use crate::options::Transport;
use crate::session_key;

impl Conversation<'_, '_> {
    /// Offers a port of ours, which is of use where the sender reaches us directly.
    pub(super) fn offer_tcp(&mut self) {
        let Ok(key) = session_key() else { return };
        let Ok(port) = self.receiving.listening.open() else {
            return;
        };
        self.receiving.outbox.push(&Message::TcpOffer(TcpOffer {
            // The address is the one that QUIC has (FILE-19).
            addresses: vec![SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))],
            key: key.public_key(),
        }));
        self.key = Some(key);
    }

    /// Takes connections of the holder of this key.
    pub(super) fn begin_tcp(&mut self, key: [u8; 32]) {
        let (Some(own), Some(listener)) = (&self.key, self.receiving.listening.get()) else {
            return;
        };
        if std::mem::replace(&mut self.takes_tcp, true) {
            return;
        }
        let config = records::accepting(own, PROTOCOL, key);
        let (scope, receiving) = (self.scope, self.receiving);
        scope.spawn(move || {
            let handshake = |socket| shake_hands(socket, &config);
            let is_over = || receiving.is_over();
            let begin = |carrier| begin_lane(scope, receiving, carrier);
            listener.serve(&receiving.sockets, is_over, handshake, begin);
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
                if !receiving.sockets.keep(&socket) {
                    return;
                }
                // Where one is refused, the sender has enough.
                let Some(carrier) = shake_hands(socket, &config) else {
                    return;
                };
                begin_lane(scope, receiving, carrier);
            }
        });
    }
}

fn shake_hands(socket: Arc<TcpStream>, config: &Arc<ServerConfig>) -> Option<RecordReceiver> {
    let carrier = TlsReceiver::new(socket, Arc::clone(config)).ok()?;
    Some(RecordReceiver::Tcp(Box::new(carrier)))
}
