//! `--socks` and `--http`: where local programs that know proxies enter. One address may speak both.

use std::net::SocketAddr;
use std::sync::Arc;

use tunnel::config::{Forward, Negotiator, Proxy};
use tunnel_proto::{Http, Protocol, Socks, SocksOrHttp};

use crate::exit::Problem;

/// The addresses of local proxies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Proxies {
    pub(crate) socks: Option<SocketAddr>,
    pub(crate) http: Option<SocketAddr>,
}

impl Proxies {
    /// What listens where, with what it speaks.
    fn listeners(self) -> Vec<(SocketAddr, &'static str, Negotiator)> {
        let socks: Negotiator = Arc::new(|| Box::new(Socks::default()));
        let http: Negotiator = Arc::new(|| Box::new(Http::default()));
        let both: Negotiator = Arc::new(|| Box::new(SocksOrHttp::default()));
        match (self.socks, self.http) {
            (Some(address), Some(same)) if address == same => vec![(address, "SOCKS5 and HTTP proxy", both)],
            (of_socks, of_http) => {
                let socks = of_socks.map(|address| (address, "SOCKS5 proxy", socks));
                let http = of_http.map(|address| (address, "HTTP proxy", http));
                socks.into_iter().chain(http).collect()
            }
        }
    }

    /// For the client.
    pub(crate) fn of_client(self) -> Vec<Proxy> {
        let proxy = |(listen, _, negotiator)| Proxy { listen, negotiator };
        self.listeners().into_iter().map(proxy).collect()
    }

    /// `SOCKS5 proxy on 127.0.0.1:1080`, for lines that people read.
    pub(crate) fn describe(self) -> Vec<String> {
        let line = |(listen, name, _)| format!("{name} on {listen}");
        self.listeners().into_iter().map(line).collect()
    }

    /// Whether there is none.
    pub(crate) fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// Refuses an address that a TCP forward has.
    ///
    /// # Errors
    /// Which address.
    pub(crate) fn check(self, forwards: &[Forward]) -> Result<(), Problem> {
        let taken = |(listen, name, _): &(SocketAddr, &str, Negotiator)| {
            let mut forwards = forwards.iter();
            let is_there =
                forwards.any(|forward| forward.protocol == Protocol::Tcp && forward.listen == *listen);
            is_there.then(|| format!("the {name} and a forward both listen on tcp {listen}"))
        };
        match self.listeners().iter().find_map(taken) {
            Some(text) => Err(Problem::configuration(text)),
            None => Ok(()),
        }
    }

    /// One sentence where others than this machine can enter.
    pub(crate) fn warning(self) -> Option<String> {
        let open = self
            .listeners()
            .into_iter()
            .find(|(listen, ..)| !listen.ip().is_loopback())?;
        Some(format!(
            "the {} on {} asks nobody for a password: whoever reaches this address uses the tunnel",
            open.1, open.0
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(socks: Option<&str>, http: Option<&str>) -> Proxies {
        let address = |text: &str| text.parse().unwrap();
        Proxies {
            socks: socks.map(address),
            http: http.map(address),
        }
    }

    #[test]
    fn one_address_speaks_both_and_two_speak_one_each() {
        let both = proxies(Some("127.0.0.1:1080"), Some("127.0.0.1:1080"));
        assert_eq!(both.describe(), ["SOCKS5 and HTTP proxy on 127.0.0.1:1080"]);
        let two = proxies(Some("127.0.0.1:1080"), Some("127.0.0.1:8080"));
        assert_eq!(
            two.describe(),
            ["SOCKS5 proxy on 127.0.0.1:1080", "HTTP proxy on 127.0.0.1:8080"]
        );
        assert_eq!(two.of_client().len(), 2);
        assert!(proxies(None, None).is_empty() && !two.is_empty());
    }

    #[test]
    fn an_address_of_a_forward_is_refused_and_one_that_others_reach_is_told() {
        let forwards = crate::forward::parse("tcp:1080=a:1").unwrap();
        let proxy = proxies(Some("127.0.0.1:1080"), None);
        assert!(proxy.check(&forwards).is_err());
        assert!(
            proxy
                .check(&crate::forward::parse("udp:1080=a:1").unwrap())
                .is_ok()
        );
        assert_eq!(proxy.warning(), None);
        let open = proxies(None, Some("0.0.0.0:3128")).warning().unwrap();
        assert!(open.contains("HTTP proxy on 0.0.0.0:3128"), "{open}");
    }
}
