//! The addresses that lead to the server itself, as its driver last saw them.

use std::net::IpAddr;

use masque::ip::{Prefix, Routes};

/// What leads back to a server. As long as it is not known, everything may.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnAddresses {
    known: Option<Routes>,
    nat64: Vec<Prefix>,
}

impl OwnAddresses {
    /// Nobody can say which addresses lead back: none is open without an explicit permission.
    #[must_use]
    pub fn unknown() -> Self {
        Self::default()
    }

    /// These lead back: addresses of interfaces, and whatever else the kernel takes for itself.
    #[must_use]
    pub fn of(prefixes: &[Prefix]) -> Self {
        Self {
            known: Some(Routes::of(prefixes)),
            nat64: Vec::new(),
        }
    }

    /// Translators of the network carry these prefixes on to IPv4 addresses (RFC 6052).
    #[must_use]
    pub fn with_nat64(mut self, prefixes: &[Prefix]) -> Self {
        self.nat64 = prefixes.to_vec();
        self
    }

    /// Whether `address` leads back; `None` where that is not known.
    pub(crate) fn holds(&self, address: IpAddr) -> Option<bool> {
        const ANY_PROTOCOL: u8 = 0;
        Some(self.known.as_ref()?.allows(address, ANY_PROTOCOL))
    }

    pub(crate) fn nat64(&self) -> &[Prefix] {
        &self.nat64
    }
}
