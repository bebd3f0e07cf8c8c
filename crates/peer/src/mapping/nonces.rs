//! The nonces by which PCP's routers tell our mappings from those of others (RFC 6887 section 11.2).
//!
//! While a mapping lives, its router refuses one of the same address and port with another nonce, and a renewal whose
//! answers were lost leaves it alive (section 11.3). So each router is always asked with the same nonce, however often
//! it is asked anew, and another one with another nonce. The next process has others, as section 11.2 recommends: after
//! one that was killed, a router may refuse the same port until the former mapping has ended.

use std::io;
use std::net::IpAddr;

use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;

/// Who does not know it cannot end or renew the mapping (section 11.2).
pub(super) type Nonce = [u8; 12];

/// The nonces for all routers, made from a secret of this thread.
pub(super) struct Nonces(hmac::Key);

impl Nonces {
    /// # Errors
    /// The system gives no random bytes.
    pub(super) fn new() -> io::Result<Self> {
        let secret = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new());
        let secret = secret.map_err(|_| io::Error::other("the system gives no random bytes"))?;
        Ok(Self(secret))
    }

    /// The nonce of mappings of our address `own` at a router. Routers of two networks often have the same address.
    pub(super) fn of(&self, router: IpAddr, own: IpAddr) -> Nonce {
        let tag = hmac::sign(&self.0, format!("{router} {own}").as_bytes());
        *tag.as_ref().first_chunk().expect("SHA-256 gives 32 bytes")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_router_is_always_asked_with_the_same_nonce_and_another_one_with_another() {
        let [router, other, own, moved] = [1, 2, 3, 4].map(|last| IpAddr::from([10, 0, 0, last]));
        let nonces = Nonces::new().unwrap();
        let nonce = nonces.of(router, own);
        assert_eq!(nonces.of(router, own), nonce);
        for elsewhere in [nonces.of(other, own), nonces.of(router, moved)] {
            assert_ne!(elsewhere, nonce);
        }
        assert_ne!(Nonces::new().unwrap().of(router, own), nonce);
    }
}
