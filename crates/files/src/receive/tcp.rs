//! TCP connections of a receiver: from the sender to a port that it offers (FILE-19), or to the sender's, where that
//! does not reach it (FILE-36). Whichever end connects, this one is TLS's server.

use std::net::{Ipv6Addr, SocketAddr, TcpStream};
use std::sync::Arc;

use files_proto::message::{Message, TcpOffer};
use quic::records;
use rustls::ServerConfig;

use super::{Conversation, begin_lane};
use crate::carrier::RecordReceiver;
use crate::carrier::offer::OfferedPort;
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

    /// The sender offers a port, as it has not reached ours.
    pub(super) fn take_offer(&mut self, offer: TcpOffer) {
        if self.options.transport != Transport::Quic {
            self.offered.offer(offer);
            self.connect_tcp();
        }
    }

    /// Connects to the port that the sender has offered, once the path leads to itself.
    pub(super) fn connect_tcp(&mut self) {
        let Some(own) = &self.key else {
            return;
        };
        let Some(OfferedPort {
            address,
            port,
            key: sender,
        }) = self.offered.take_up(|| self.peer.path())
        else {
            return;
        };
        self.receiving.outbox.push(&Message::TcpKey {
            key: own.public_key(),
        });
        let config = records::accepting(own, PROTOCOL, sender);
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
