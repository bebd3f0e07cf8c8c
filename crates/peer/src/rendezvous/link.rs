//! Which server: the link that its owner shares.

use tunnel_proto::link::{Link, LinkError};
use tunnel_proto::{ServerProof, Token};

/// A Gramway server at which an endpoint is registered, so that peers reach it behind a router.
#[derive(Clone, Debug)]
pub struct Rendezvous {
    link: Link,
    /// Certificates, DER, of authorities besides those of the web.
    authorities: Vec<Vec<u8>>,
}

impl Rendezvous {
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
            link: Link::parse(link)?,
            authorities: Vec::new(),
        })
    }

    /// Trusts these certificates (DER) as well as the authorities of the web, where the server has an ordinary
    /// certificate or a cover.
    #[must_use]
    pub fn with_authorities(mut self, certificates: Vec<Vec<u8>>) -> Self {
        self.authorities = certificates;
        self
    }

    pub(super) fn token(&self) -> &Token {
        &self.link.token
    }

    /// Hosts and ports, in order of preference.
    pub(super) fn servers(&self) -> Vec<(String, u16)> {
        let endpoints = self.link.endpoints.iter();
        endpoints
            .map(|endpoint| (endpoint.host.clone(), endpoint.port))
            .collect()
    }

    /// What the server is known by.
    pub(super) fn proof(&self) -> ServerProof {
        ServerProof::new(self.link.proof.clone(), self.authorities.clone())
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
