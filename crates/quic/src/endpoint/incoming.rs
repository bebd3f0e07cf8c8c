//! New connections: admitted, asked to prove their address, or ignored.

use std::sync::Arc;
use std::time::Instant;

use quinn_proto::{Incoming, VarInt};

use super::{Endpoint, Receiver};
use crate::admission::Verdict;
use crate::congestion::Gate;
use crate::connection::Connection;
use crate::event::ConnectionKey;
use crate::transmit::Outbox;
use crate::{limits, translate, transport};

impl Endpoint {
    pub(super) fn admit(
        &mut self,
        now: Instant,
        incoming: Incoming,
        receiver: &mut impl Receiver,
        outbox: &mut Outbox,
    ) {
        let remote = incoming.remote_address();
        let validated = incoming.remote_address_validated() || !incoming.may_retry();
        let verdict = self.admission.judge(now, remote.ip(), validated, self.open);
        let mut response = outbox.buffer();
        let transmit = match (verdict, &self.server) {
            (Verdict::Accept, Some(server)) => {
                let ceiling = receiver.udp_payload_ceiling(remote).min(self.udp_payload_max);
                let mut server = server.clone();
                let gate = Gate::default();
                server.transport_config(transport::settings(self.profile, ceiling, false, &gate));
                match self
                    .proto
                    .accept(incoming, now, &mut response, Some(Arc::new(server)))
                {
                    Ok((handle, mut proto)) => {
                        // The credit that the peer has from its transport parameters is not renewed by reading.
                        proto.set_receive_window(VarInt::from_u32(0));
                        let key = ConnectionKey(handle.0);
                        let mut connection = Connection::new(proto, key, self.profile, gate, None);
                        connection.half_open = Some(remote.ip());
                        connection.deadline = Some(now + limits::AUTHENTICATION_DEADLINE);
                        self.admission.begin(remote.ip());
                        self.insert(key, connection);
                        None
                    }
                    Err(refused) => refused.response,
                }
            }
            (Verdict::Retry, Some(_)) => {
                self.retries += 1;
                self.proto.retry(incoming, &mut response).ok()
            }
            _ => {
                self.ignored_handshakes += 1;
                self.proto.ignore(incoming);
                None
            }
        };
        match transmit {
            Some(transmit) if !outbox.is_full() => outbox.push(translate::train(&transmit, false, response)),
            _ => outbox.return_buffer(response),
        }
    }
}
