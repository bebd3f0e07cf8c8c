//! The servers of a client that has links of several, and which of them is next.
//!
//! One server is used at a time, the first one at first. Where a client has no connection for
//! [`FAILOVER_AFTER`](crate::limits::FAILOVER_AFTER), or is refused, it ends and begins anew with the next server. When
//! the connection to another than the first is lost for so long, the first one is next.

use tunnel::config::{CarrierChoice, ServerProof};
use tunnel_proto::Token;
use tunnel_proto::link::{Link, Proof};

use crate::config::Settings;
use crate::exit::{Code, Problem};
use crate::run::Ended;
use crate::{authorities, tcp_shape};

/// What a link says, as the tunnel takes it; it holds secrets, so it has no `Debug`.
pub(crate) struct Server {
    pub(crate) addresses: Vec<(String, u16)>,
    pub(crate) carriers: CarrierChoice,
    pub(crate) proof: ServerProof,
    pub(crate) token: Token,
}

impl Server {
    /// # Errors
    /// The settings ask for what it has not.
    pub(crate) fn of(link: Link, settings: &Settings) -> Result<Self, Problem> {
        let carriers = tcp_shape::of_client(settings.carrier, link.tcp_port)?;
        let authorities = match link.proof {
            Proof::Pin(_) => Vec::new(),
            Proof::WebPki => authorities::read(settings.tls_roots.as_deref())?,
            Proof::Cover { .. } => authorities::read(settings.cover_roots.as_deref())?,
        };
        let proof = ServerProof::new(link.proof, authorities);
        let endpoints = link.endpoints.into_iter();
        Ok(Self {
            addresses: endpoints.map(|endpoint| (endpoint.host, endpoint.port)).collect(),
            carriers,
            proof,
            token: link.token,
        })
    }
}

/// Carriers that need the privileges which any of these servers needs.
pub(crate) fn needed_carriers(servers: &[Server]) -> CarrierChoice {
    let carriers = || servers.iter().map(|server| server.carriers);
    let in_tcps_shape = carriers().find(|carriers| carriers.tcp_port.is_some());
    in_tcps_shape.or(carriers().next()).unwrap_or(CarrierChoice::UDP)
}

/// Whose turn it is.
#[derive(Debug)]
pub(crate) struct Turn {
    count: usize,
    current: usize,
    /// Servers that refused one after the other.
    refused: usize,
}

impl Turn {
    /// Of so many servers; the first one begins.
    pub(crate) fn of(count: usize) -> Self {
        Self {
            count,
            current: 0,
            refused: 0,
        }
    }

    /// The server after the present one has `ended` so; `None` where the client ends with it.
    pub(crate) fn after(&mut self, ended: &Result<Ended, Problem>) -> Option<usize> {
        let following = (self.current + 1) % self.count;
        self.current = match ended {
            Ok(Ended::Done) => return None,
            Ok(Ended::Lost { was_connected }) => {
                self.refused = 0;
                if *was_connected && self.current > 0 {
                    0
                } else {
                    following
                }
            }
            Err(problem) if problem.code() == Code::Permission && self.refused + 1 < self.count => {
                self.refused += 1;
                following
            }
            Err(_) => return None,
        };
        Some(self.current)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNREACHABLE: Result<Ended, Problem> = Ok(Ended::Lost { was_connected: false });
    const LOST: Result<Ended, Problem> = Ok(Ended::Lost { was_connected: true });

    fn refused() -> Result<Ended, Problem> {
        Err(Problem::permission("refused"))
    }

    #[test]
    fn the_next_server_is_tried_and_the_first_one_again_when_another_is_lost() {
        let mut turn = Turn::of(3);
        assert_eq!(turn.after(&LOST), Some(1));
        assert_eq!(turn.after(&UNREACHABLE), Some(2));
        assert_eq!(turn.after(&LOST), Some(0));
        assert_eq!(turn.after(&UNREACHABLE), Some(1));
        assert_eq!(turn.after(&UNREACHABLE), Some(2));
        assert_eq!(turn.after(&UNREACHABLE), Some(0));
        assert_eq!(turn.after(&Ok(Ended::Done)), None);
    }

    #[test]
    fn the_client_ends_once_all_servers_have_refused_it_one_after_the_other() {
        let mut turn = Turn::of(2);
        assert_eq!(turn.after(&refused()), Some(1));
        assert_eq!(turn.after(&UNREACHABLE), Some(0));
        assert_eq!(turn.after(&refused()), Some(1));
        assert_eq!(turn.after(&refused()), None);
        assert_eq!(Turn::of(1).after(&refused()), None);
        assert_eq!(Turn::of(2).after(&Err(Problem::bug("bug"))), None);
    }
}
