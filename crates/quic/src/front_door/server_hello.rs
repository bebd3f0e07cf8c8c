//! The order of the extensions in a ServerHello, which everybody can read and which tells TLS libraries apart: that of the
//! cover, where it is not rustls' own.
//!
//! rustls writes `key_share` before `supported_versions`. Where the cover has them the other way round, they change places
//! twice: in what is sent, and in the transcript (RFC 8446 section 4.4.1), which rustls hashes by a suite of ours.

use std::sync::LazyLock;

use rustls::crypto::CipherSuiteCommon;
use rustls::crypto::hash::{Context, Hash, HashAlgorithm, Output};
use rustls::{SupportedCipherSuite, Tls13CipherSuite};

use crate::config::Aead;
use crate::tls;

/// Handshake type of a ServerHello.
const SERVER_HELLO: u8 = 2;
/// `legacy_version` and `random`.
const FIXED_BYTES: usize = 2 + 32;

/// A suite by which ServerHellos are hashed as [`turned`] has them.
pub(super) fn turning(aead: Aead, suite: SupportedCipherSuite) -> SupportedCipherSuite {
    static AWS_LC: LazyLock<Vec<Tls13CipherSuite>> = LazyLock::new(|| all_turning(Aead::AwsLc));
    static RING: LazyLock<Vec<Tls13CipherSuite>> = LazyLock::new(|| all_turning(Aead::Ring));
    let all = match aead {
        Aead::AwsLc => &*AWS_LC,
        Aead::Ring => &*RING,
    };
    let found = all.iter().find(|other| other.common.suite == suite.suite());
    found.map_or(suite, SupportedCipherSuite::Tls13)
}

fn all_turning(aead: Aead) -> Vec<Tls13CipherSuite> {
    let turning = tls::suites(aead).map(|suite| Tls13CipherSuite {
        common: CipherSuiteCommon {
            suite: suite.common.suite,
            // Once for each suite of the process.
            hash_provider: Box::leak(Box::new(TurningHash(suite.common.hash_provider))),
            confidentiality_limit: suite.common.confidentiality_limit,
        },
        hkdf_provider: suite.hkdf_provider,
        aead_alg: suite.aead_alg,
        quic: suite.quic,
    });
    turning.collect()
}

struct TurningHash(&'static dyn Hash);

impl Hash for TurningHash {
    fn start(&self) -> Box<dyn Context> {
        Box::new(TurningContext(self.0.start()))
    }

    fn hash(&self, data: &[u8]) -> Output {
        self.0.hash(data)
    }

    fn output_len(&self) -> usize {
        self.0.output_len()
    }

    fn algorithm(&self) -> HashAlgorithm {
        self.0.algorithm()
    }
}

/// rustls gives it whole messages.
struct TurningContext(Box<dyn Context>);

impl Context for TurningContext {
    fn fork_finish(&self) -> Output {
        self.0.fork_finish()
    }

    fn fork(&self) -> Box<dyn Context> {
        Box::new(Self(self.0.fork()))
    }

    fn finish(self: Box<Self>) -> Output {
        self.0.finish()
    }

    fn update(&mut self, data: &[u8]) {
        match turned(data) {
            Some(turned) => self.0.update(&turned),
            None => self.0.update(data),
        }
    }
}

/// Handshake messages whose ServerHellos, which HelloRetryRequests are, too, have their two extensions in the other order;
/// `None` where there is none to turn.
pub(super) fn turned(messages: &[u8]) -> Option<Vec<u8>> {
    let (mut rest, mut written, mut has_turned) = (messages, Vec::new(), false);
    while let Some((message, others)) = split_message(rest) {
        let turned = turned_hello(message);
        has_turned |= turned.is_some();
        written.extend_from_slice(turned.as_deref().unwrap_or(message));
        rest = others;
    }
    (has_turned && rest.is_empty()).then_some(written)
}

/// The first message (RFC 8446 section 4), and what comes behind it.
fn split_message(messages: &[u8]) -> Option<(&[u8], &[u8])> {
    let [_, high, middle, low] = messages.first_chunk()?;
    let length = u32::from_be_bytes([0, *high, *middle, *low]);
    messages.split_at_checked(4 + length as usize)
}

/// One message, if it is a ServerHello with two extensions (RFC 8446 section 4.1.3).
fn turned_hello(message: &[u8]) -> Option<Vec<u8>> {
    let (&[SERVER_HELLO, ..], body) = message.split_first_chunk::<4>()? else {
        return None;
    };
    let after_session_id = FIXED_BYTES + 1 + usize::from(*body.get(FIXED_BYTES)?);
    // Suite, compression method, and the length of all extensions.
    let extensions_at = after_session_id + 2 + 1 + 2;
    let extensions = body.get(extensions_at..)?;
    let length = body.get(extensions_at - 2..)?.first_chunk()?;
    if usize::from(u16::from_be_bytes(*length)) != extensions.len() {
        return None;
    }
    let (first, second) = extensions.split_at_checked(extension_bytes(extensions)?)?;
    if extension_bytes(second)? != second.len() {
        return None;
    }
    let before = &message[..message.len() - extensions.len()];
    Some([before, second, first].concat())
}

/// Of the first of these extensions, its header included.
fn extension_bytes(extensions: &[u8]) -> Option<usize> {
    let [_, _, high, low] = extensions.first_chunk()?;
    Some(4 + usize::from(u16::from_be_bytes([*high, *low])))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARE: &[u8] = &[0, 51, 0, 6, 0, 0x1d, 0, 2, 0xaa, 0xbb];
    const VERSIONS: &[u8] = &[0, 43, 0, 2, 3, 4];

    /// RFC 8446 section 4.1.3.
    fn server_hello(session_id: &[u8], extensions: &[&[u8]]) -> Vec<u8> {
        let extensions = extensions.concat();
        let mut body = vec![3; FIXED_BYTES];
        body.push(session_id.len() as u8);
        body.extend_from_slice(session_id);
        body.extend_from_slice(&[0x13, 0x01, 0]);
        body.extend_from_slice(&(extensions.len() as u16).to_be_bytes());
        body.extend_from_slice(&extensions);
        let length = (body.len() as u32).to_be_bytes();
        [&[SERVER_HELLO], &length[1..], &body].concat()
    }

    /// QR1-27.
    #[test]
    fn two_extensions_change_places_and_nothing_else_moves() {
        for session_id in [&[][..], &[9; 32]] {
            let own = server_hello(session_id, &[SHARE, VERSIONS]);
            let covers = server_hello(session_id, &[VERSIONS, SHARE]);
            assert_eq!(turned(&own).as_ref(), Some(&covers));
            assert_eq!(turned(&covers).as_ref(), Some(&own));
            // As rustls hashes what came before a second hello.
            let other = [&[254, 0, 0, 2][..], &[7; 2]].concat();
            let transcript = |hello: &[u8]| [&other[..], hello, &other].concat();
            assert_eq!(turned(&transcript(&own)), Some(transcript(&covers)));
        }
    }

    #[test]
    fn what_is_no_server_hello_with_two_extensions_stays_as_it_is() {
        let hello = server_hello(&[], &[SHARE, VERSIONS]);
        for length in 0..hello.len() {
            assert_eq!(turned(&hello[..length]), None, "{length} bytes");
        }
        assert_eq!(turned(&[&hello[..], &[0]].concat()), None);
        for other in [
            server_hello(&[], &[]),
            server_hello(&[], &[SHARE]),
            server_hello(&[], &[SHARE, VERSIONS, VERSIONS]),
            [&[1][..], &hello[1..]].concat(),
        ] {
            assert_eq!(turned(&other), None);
        }
    }
}
