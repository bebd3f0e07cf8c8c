//! Servers with ordinary certificates, which are replaced while they run.

use std::time::Duration;

use quic::{ClientParameters, CloseReason, TrustedRoots, is_certificate_for, names_of_certificate};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};

use crate::support::{Pair, Setup};

/// 1 January 2026, in seconds of Unix time.
const PRESENT: u64 = 1_767_225_600;
const YEAR: u64 = 365 * 86_400;

struct Authority {
    certificate: Vec<u8>,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = parameters.self_signed(&key).unwrap().der().to_vec();
        let issuer = Issuer::new(parameters, key);
        Self { certificate, issuer }
    }

    /// A certificate for this name in 2025 and 2026, and its key.
    fn certify(&self, names: &[&str]) -> (Vec<u8>, Vec<u8>) {
        let key = KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut parameters = CertificateParams::new(names).unwrap();
        parameters.not_before = date_time_ymd(2025, 1, 1);
        parameters.not_after = date_time_ymd(2026, 12, 31);
        let certificate = parameters.signed_by(&key, &self.issuer).unwrap();
        (certificate.der().to_vec(), key.serialize_der())
    }

    fn known_at(&self, unix_seconds: u64) -> ClientParameters {
        ClientParameters::WebPki {
            roots: TrustedRoots::web_pki_and(std::slice::from_ref(&self.certificate)).unwrap(),
            unix_seconds,
        }
    }
}

/// Asks a new server, which shows this certificate, for `localhost`. Why the client was refused.
fn refusal((certificate, key): (Vec<u8>, Vec<u8>), known: &ClientParameters) -> Option<CloseReason> {
    let mut pair = Pair::new(Setup::default());
    pair.identity
        .certificates
        .replace(vec![certificate], key)
        .unwrap();
    pair.connect_with(known).unwrap();
    pair.drive(Duration::from_secs(5));
    let closed = pair.client.closed.pop().map(|(_, reason)| reason);
    assert_eq!(pair.client.connected.is_empty(), closed.is_some());
    closed
}

#[test]
fn a_certificate_of_an_authority_is_enough_for_its_name_and_its_time() {
    let authority = Authority::new();
    let told = |names: &[&str], known| match refusal(authority.certify(names), &known) {
        Some(CloseReason::Untrusted(told)) => told,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        refusal(authority.certify(&["localhost"]), &authority.known_at(PRESENT)),
        None
    );
    let name = told(&["elsewhere.test"], authority.known_at(PRESENT));
    assert!(
        name.contains("localhost") && name.contains("elsewhere.test"),
        "{name}"
    );
    let late = told(&["localhost"], authority.known_at(PRESENT + 2 * YEAR));
    assert!(late.contains("expired"), "{late}");
    let early = told(&["localhost"], authority.known_at(PRESENT - 2 * YEAR));
    assert!(early.contains("not valid yet"), "{early}");
    let other = told(&["localhost"], Authority::new().known_at(PRESENT));
    assert!(other.contains("BadSignature"), "of the same name: {other}");
}

#[test]
fn a_certificate_that_is_replaced_is_shown_from_then_on_and_ends_nothing() {
    let authority = Authority::new();
    let (mut pair, first, _) = Pair::connected(Setup::default());
    let (certificate, key) = authority.certify(&["localhost"]);
    let pin = quic::public_key_pin(&certificate).unwrap();
    let (_, another_key) = authority.certify(&["localhost"]);
    let certificates = pair.identity.certificates.clone();
    let mixed = certificates.replace(vec![certificate.clone()], another_key);
    assert!(mixed.unwrap_err().to_string().contains("cannot be used"));
    assert!(certificates.replace(Vec::new(), key.clone()).is_err());
    pair.connect();
    pair.drive(Duration::from_secs(5));
    assert_eq!(pair.client.connected.len(), 2, "the former one is still shown");
    certificates.replace(vec![certificate], key).unwrap();
    let known_by_pin = pair.connect_with_pin(pin);
    let known_by_name = pair.connect_with(&authority.known_at(PRESENT)).unwrap();
    pair.drive(Duration::from_secs(5));
    assert_eq!(pair.client.connected[2..], [known_by_pin, known_by_name]);
    assert_eq!(pair.client.closed, []);
    assert_eq!(pair.client.connected[0], first);
}

#[test]
fn a_certificate_tells_for_whom_it_is() {
    let names = ["example.test", "*.example.test", "192.0.2.1"];
    let (certificate, _) = Authority::new().certify(&names);
    assert_eq!(names_of_certificate(&certificate).unwrap(), ["example.test"]);
    for (host, is_for) in [
        ("example.test", true),
        ("www.example.test", true),
        ("192.0.2.1", true),
        ("192.0.2.2", false),
        ("test", false),
    ] {
        assert_eq!(is_certificate_for(&certificate, host), is_for, "{host}");
    }
    assert!(names_of_certificate(b"none").is_err());
}
