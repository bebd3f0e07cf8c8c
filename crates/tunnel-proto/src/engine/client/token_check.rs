//! The token check: the first request on every connection of a client.
//!
//! It asks for a target that every server refuses after it has looked at the token: the answer is 401 or 407 for a wrong one.
//! 503 says that the server does not let us in at present, unless a `Proxy-Status` (RFC 9209) tells of the target. Anything
//! else means that the token was taken.

use std::time::Instant;

use masque::response::{self, ProxyError};
use masque::{HeaderList, ServerShard, Target, request as request_headers};
use quic::ConnectionKey;

use super::Client;
use crate::engine::handler::{Asker, Handler};
use crate::engine::{Action, ClientAction, Engine};

const HOST: &str = "0.0.0.0";
const PORT: u16 = 9;

/// A CONNECT-UDP request without datagrams, no session.
#[derive(Debug)]
pub(crate) struct TokenCheck;

impl Handler for TokenCheck {
    fn ask(&self, asker: &Asker<'_>) -> Option<HeaderList> {
        let target = Target::new(HOST, PORT).expect("an address and a port");
        let list = request_headers::connect_udp(asker.authority, &target, asker.bearer, None);
        Some(list)
    }

    fn needs_datagrams(&self) -> bool {
        true
    }

    fn is_of_driver(&self) -> bool {
        false
    }
}

/// What an answer says of our token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Taken,
    Refused {
        status: u16,
    },
    /// It may be taken later.
    PutOff {
        reason: &'static str,
    },
}

fn verdict(answer: &HeaderList) -> Verdict {
    // The reader has checked it already.
    let status = response::status_of(answer).unwrap_or(500);
    match (status, response::proxy_error_of(answer)) {
        (401 | 407, _) => Verdict::Refused { status },
        (503, Some(ProxyError::ConnectionLimitReached)) => Verdict::PutOff {
            reason: "the user of this token has as many connections as it may have, or has used up its bytes",
        },
        (503, None) if answer.only("proxy-status").is_none() => Verdict::PutOff {
            reason: "it takes no new connections at present",
        },
        _ => Verdict::Taken,
    }
}

impl Engine<Client> {
    /// The server has answered the token check on this connection.
    pub(super) fn token_checked(&mut self, now: Instant, connection: ConnectionKey, answer: &HeaderList) {
        match verdict(answer) {
            Verdict::Refused { status } => {
                let refused = ClientAction::TokenRefused { status };
                self.state.actions.push_back(Action::Role(refused));
            }
            Verdict::PutOff { reason } => self.give_up(now, connection, reason),
            Verdict::Taken => {
                let Some(report) = self.endpoint.report(connection) else {
                    return;
                };
                if let Some(peer) = self.state.peer(connection) {
                    peer.authenticated = true;
                }
                self.state.actions.push_back(Action::Role(ClientAction::Up {
                    rtt: report.rtt,
                    shard: ServerShard::of(answer),
                }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_said_of_us_keeps_us_out() {
        for (answer, expected) in [
            (response::unauthorized(), Some(Verdict::Refused { status: 401 })),
            (
                response::proxy_authentication_required(),
                Some(Verdict::Refused { status: 407 }),
            ),
            (response::failure(ProxyError::DestinationIpProhibited), None),
            (response::failure(ProxyError::DestinationUnavailable), None),
            (response::response(200), None),
            (response::response(400), None),
        ] {
            assert_eq!(verdict(&answer), expected.unwrap_or(Verdict::Taken), "{answer:?}");
        }
        let foreign = response::response(503).with("proxy-status", "other; error=proxy_configuration_error");
        assert_eq!(verdict(&foreign), Verdict::Taken);
        let full = response::failure(ProxyError::ConnectionLimitReached);
        for answer in [full, response::response(503)] {
            assert!(matches!(verdict(&answer), Verdict::PutOff { .. }), "{answer:?}");
        }
    }
}
