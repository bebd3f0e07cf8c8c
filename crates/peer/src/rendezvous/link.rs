//! Which server: the link that its owner shares, or the number of a guest.

use crate::error::BindError;
use quic::ConfigurationError;
use tunnel_proto::link::{Endpoint, EndpointError, Link, LinkError};
use tunnel_proto::{CarrierChoice, Client, Engine, EngineConfig, KnownServer, ServerProof};

const NO_TCP_PORT: &str =
    "its link names no TCP port; start the server with --tcp, and use the link that it prints then";

/// A Gramway server at which an endpoint is registered, so that peers reach it behind a router.
#[derive(Clone, Debug)]
pub struct Rendezvous {
    entrance: Entrance,
    /// Certificates, DER, of authorities besides those of the web.
    authorities: Vec<Vec<u8>>,
    carrier: RendezvousCarrier,
}

/// Over what an endpoint reaches its rendezvous.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RendezvousCarrier {
    /// UDP, or packets that look like TCP where UDP does not come through and the server listens in that shape. They
    /// need the capability CAP_NET_RAW; without it only UDP is left, and where that is blocked,
    /// [`crate::Endpoint::rendezvous_problem`] says so.
    #[default]
    Auto,
    /// UDP alone.
    Udp,
    /// Packets that look like TCP alone. Peers are not told where the server sees this endpoint then, so that most are
    /// relayed.
    Tcp,
}

/// By what the server lets us in.
#[derive(Clone, Debug)]
enum Entrance {
    Link(Link),
    Guest { server: Endpoint, number: u32 },
}

impl Rendezvous {
    /// The server at `HOST:PORT` for a guest, by the number that [`crate::Endpoint::invite`] gave to a peer there. A
    /// guest registers one endpoint, within ten minutes, and may stay for an hour.
    ///
    /// The number is short, and neither side knows whom it talks to: connect to a peer ID that you were told, or have
    /// both ends prove more than the number before anything secret is said.
    ///
    /// # Errors
    /// [`EndpointError`].
    ///
    /// ```
    /// use peer::Rendezvous;
    ///
    /// assert!(Rendezvous::as_guest("gramway.example:443", 4711).is_ok());
    /// assert!(Rendezvous::as_guest("gramway.example", 4711).is_err());
    /// ```
    pub fn as_guest(server: &str, number: u32) -> Result<Self, EndpointError> {
        let server = Endpoint::parse(server)?;
        Ok(Self {
            entrance: Entrance::Guest { server, number },
            authorities: Vec::new(),
            carrier: RendezvousCarrier::default(),
        })
    }

    /// The server of a link, as `gramway up` and `gramway link` print it: one that is known by its key, one with an
    /// ordinary certificate, or one with a cover.
    ///
    /// # Errors
    /// [`LinkError`].
    ///
    /// ```
    /// use peer::Rendezvous;
    ///
    /// let token = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    /// let link = format!("gramway://{token}@192.0.2.1:443,[2001:db8::1]:443?pin=sha256-{token}#home");
    /// assert!(Rendezvous::from_link(&link).is_ok());
    /// assert!(Rendezvous::from_link("https://example.org").is_err());
    /// ```
    pub fn from_link(link: &str) -> Result<Self, LinkError> {
        Ok(Self {
            entrance: Entrance::Link(Link::parse(link)?),
            authorities: Vec::new(),
            carrier: RendezvousCarrier::default(),
        })
    }

    /// Trusts these certificates (DER) as well as the authorities of the web, where the server has an ordinary
    /// certificate or a cover.
    #[must_use]
    pub fn with_authorities(mut self, certificates: Vec<Vec<u8>>) -> Self {
        self.authorities = certificates;
        self
    }

    /// Reaches the server over this carrier.
    #[must_use]
    pub fn over(mut self, carrier: RendezvousCarrier) -> Self {
        self.carrier = carrier;
        self
    }

    /// Whether the server may be reached in packets that look like TCP.
    #[must_use]
    pub fn may_look_like_tcp(&self) -> bool {
        self.carriers().is_ok_and(|carriers| carriers.tcp_port.is_some())
    }

    /// The port at which the server listens in TCP's shape: a guest is not told it, and tries that of UDP.
    fn tcp_port(&self) -> Option<u16> {
        match &self.entrance {
            Entrance::Link(link) => link.tcp_port,
            Entrance::Guest { server, .. } => Some(server.port),
        }
    }

    /// Over what the server is tried.
    ///
    /// # Errors
    /// TCP's shape alone is wanted, and the link names no port for it.
    pub(super) fn carriers(&self) -> Result<CarrierChoice, BindError> {
        let udp = self.carrier != RendezvousCarrier::Tcp;
        let tcp_port = self.tcp_port().filter(|_| self.carrier != RendezvousCarrier::Udp);
        match (udp, tcp_port) {
            (false, None) => Err(BindError::Rendezvous(NO_TCP_PORT.to_owned())),
            _ => Ok(CarrierChoice { udp, tcp_port }),
        }
    }

    /// Hosts and ports, in order of preference.
    pub(super) fn servers(&self) -> Vec<(String, u16)> {
        let endpoints = match &self.entrance {
            Entrance::Link(link) => &link.endpoints[..],
            Entrance::Guest { server, .. } => std::slice::from_ref(server),
        };
        endpoints
            .iter()
            .map(|endpoint| (endpoint.host.clone(), endpoint.port))
            .collect()
    }

    /// What the server is known by.
    ///
    /// # Errors
    /// An authority is no certificate.
    pub(super) fn knows(&self) -> Result<KnownServer, ConfigurationError> {
        match &self.entrance {
            Entrance::Link(link) => {
                let proof = ServerProof::new(link.proof.clone(), self.authorities.clone());
                KnownServer::new(&proof, &link.token)
            }
            Entrance::Guest { .. } => Ok(KnownServer::by_nothing()),
        }
    }

    /// The engine that shows what lets us in.
    pub(super) fn engine(&self, endpoint: quic::Endpoint) -> Engine<Client> {
        let config = EngineConfig::default();
        match &self.entrance {
            Entrance::Link(link) => Engine::client(endpoint, &link.token, config),
            Entrance::Guest { number, .. } => Engine::guest(endpoint, *number, config),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_link_names_its_servers_and_shows_no_secret() {
        let secret = "A".repeat(43);
        for proof in [
            format!("pin=sha256-{secret}"),
            format!("!cover={secret}&!name=b.example"),
            "!trust=web".to_owned(),
        ] {
            let link = format!("gramway://{secret}@one.example:443,[2001:db8::1]:8443?tcp=443&{proof}#a%20b");
            let rendezvous = Rendezvous::from_link(&format!("  {link}\n")).unwrap();
            let servers = [("one.example".to_owned(), 443), ("2001:db8::1".to_owned(), 8443)];
            assert_eq!(rendezvous.servers(), servers);
            assert!(!format!("{rendezvous:?}").contains(&secret));
            let carriers = |carrier| rendezvous.clone().over(carrier).carriers().unwrap();
            let both = CarrierChoice {
                udp: true,
                tcp_port: Some(443),
            };
            assert_eq!(carriers(RendezvousCarrier::Auto), both);
            assert_eq!(carriers(RendezvousCarrier::Udp), CarrierChoice::UDP);
            assert_eq!(
                carriers(RendezvousCarrier::Tcp),
                CarrierChoice { udp: false, ..both }
            );
            let without = Rendezvous::from_link(&link.replace("tcp=443&", "")).unwrap();
            assert_eq!(without.carriers().unwrap(), CarrierChoice::UDP);
            let refused = without.over(RendezvousCarrier::Tcp).carriers().unwrap_err();
            assert!(
                refused.to_string().contains("start the server with --tcp"),
                "{refused}"
            );
            for broken in [
                link.replace(":443,", ","),
                link.replace(&format!("{secret}@"), "short@"),
            ] {
                let error = Rendezvous::from_link(&broken).unwrap_err();
                assert!(error.to_string().starts_with("the link is broken at character"));
            }
        }
    }
}
