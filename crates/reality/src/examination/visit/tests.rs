//! Visits to a site whose TLS is rustls', in virtual time.

use std::time::Duration;

use proptest::prelude::*;
use rcgen::{CertificateParams, KeyPair};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::quic::ServerConnection;

use super::*;
use crate::initial::{InitialKeys, Sender};

const NAME: &str = "cover.test";
const FIRST_ID: [u8; 8] = [0xa1; 8];
const SITE_ID: [u8; 9] = [0x51; 9];
/// Of the path, to the site and back.
const ROUND_TRIP: Duration = Duration::from_millis(30);

/// A site with one connection.
struct Site {
    tls: ServerConnection,
    keys: InitialKeys,
    streams: [CryptoStream; 2],
    handshake: Option<Level>,
    certificate: Vec<u8>,
}

impl Site {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let parameters = CertificateParams::new([NAME.to_owned()]).unwrap();
        let certificate = parameters.self_signed(&key).unwrap().der().to_vec();
        let mut config = rustls::ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![CertificateDer::from(certificate.clone())],
                PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
            )
            .unwrap();
        config.alpn_protocols = vec![b"h3".to_vec()];
        // max_idle_timeout of 77 ms.
        let parameters = vec![1, 2, 0x40, 77];
        Self {
            tls: ServerConnection::new(Arc::new(config), Version::V1, parameters).unwrap(),
            keys: InitialKeys::new(&FIRST_ID),
            streams: Default::default(),
            handshake: None,
            certificate,
        }
    }

    /// Reads a datagram of the visitor.
    fn read(&mut self, datagram: &[u8]) {
        for part in parts(datagram) {
            let Part::Long(packet) = part else { continue };
            let mut space = Vec::new();
            let (stream, payload) = match packet.kind {
                Kind::Initial => {
                    let opened = self.keys.open(Sender::Client, &packet, None, &mut space);
                    (0, opened.unwrap().payload.to_vec())
                }
                _ => (1, self.handshake.as_mut().unwrap().open(&packet).unwrap()),
            };
            for frame in frames(&payload) {
                if let Frame::Crypto { offset, data } = frame.unwrap() {
                    self.streams[stream].insert(offset, data);
                }
            }
            let data = self.streams[stream].take();
            self.tls.read_hs(&data).unwrap();
        }
    }

    fn initial(&self, number: u64, frames: &[u8]) -> Vec<u8> {
        self.keys
            .seal(Sender::Server, (&[], &SITE_ID), &[], number, 2, frames)
    }

    /// The first flight, in datagrams: ServerHello, then the rest in two pieces.
    fn flight(&mut self) -> Vec<Vec<u8>> {
        let mut hello = Vec::new();
        let Some(KeyChange::Handshake { keys }) = self.tls.write_hs(&mut hello) else {
            panic!("the hello is whole");
        };
        let mut rest = Vec::new();
        let _one_rtt = self.tls.write_hs(&mut rest);
        let mut level = Level::new(keys);
        let middle = rest.len() / 2;
        let first = [self.initial(0, &[&[2, 0, 0, 0, 0][..], &crypto_frame(0, &hello)].concat())];
        let pieces = [(0, &rest[..middle]), (middle, &rest[middle..])];
        let pieces = pieces.map(|(at, data)| level.seal(Header::Handshake, &[], &crypto_frame(at, data), 0));
        self.handshake = Some(level);
        first.into_iter().chain(pieces).collect()
    }
}

struct Scene {
    visit: Visit,
    site: Site,
    now: Instant,
}

impl Scene {
    fn new(groups: Groups) -> Self {
        let site = Site::new();
        let roots = Roots::with(vec![site.certificate.clone()]).unwrap();
        // tidy-allow(pure): the first instant of virtual time
        let now = Instant::now();
        let visit = Visit::begin(NAME, &roots, groups, FIRST_ID, now).unwrap();
        Self { visit, site, now }
    }

    fn sent(&mut self) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| self.visit.poll_transmit()).collect()
    }

    /// The hello reaches the site, and its flight is on the way back.
    fn answered(&mut self) -> Vec<Vec<u8>> {
        for datagram in self.sent() {
            self.site.read(&datagram);
        }
        self.now += ROUND_TRIP;
        self.site.flight()
    }

    fn deliver(&mut self, datagrams: &[Vec<u8>]) {
        for datagram in datagrams {
            self.visit.handle_datagram(datagram, self.now);
        }
    }

    /// Time passes up to the next timer.
    fn wait(&mut self) -> Duration {
        let next = self.visit.poll_timeout().unwrap();
        let waited = next - self.now;
        self.now = next;
        self.visit.handle_timeout(next);
        waited
    }

    fn end(&self) -> Option<&End> {
        self.visit.observation().map(|seen| &seen.end)
    }
}

#[test]
fn a_visit_tells_what_a_cover_is_like_and_completes_its_handshake() {
    for (groups, group) in [(Groups::Hybrid, 0x11ec), (Groups::Classic, 0x1d)] {
        let mut scene = Scene::new(groups);
        let flight = scene.answered();
        scene.deliver(&flight);
        assert_eq!(scene.sent(), Vec::<Vec<u8>>::new());
        assert_eq!(scene.wait(), limits::FLIGHT_SETTLED);
        let seen = scene.visit.observation().unwrap().clone();
        assert_eq!(seen.end, End::Complete);
        assert_eq!(
            (seen.first_answer, seen.answer),
            (Some(ROUND_TRIP), Some(ROUND_TRIP))
        );
        assert_eq!(seen.flight, flight.iter().map(Vec::len).collect::<Vec<_>>());
        assert_eq!((seen.id_bytes, seen.idle_timeout_ms), (Some(9), Some(77)));
        let hello = seen.hello.unwrap();
        assert_eq!((hello.suite, hello.group), (0x1301, Some(group)));
        assert_eq!(hello.extensions, [51, 43]);
        let certificate = seen.certificate.unwrap();
        // Around the certificate: header, context, two lengths, extensions.
        assert_eq!(
            certificate.bytes,
            scene.site.certificate.len() + 4 + 1 + 3 + 3 + 2
        );
        assert!(seen.chain.is_some() && !seen.is_retry && !seen.has_preferred_address);
        for datagram in scene.sent() {
            scene.site.read(&datagram);
        }
        assert!(!scene.site.tls.is_handshaking());
    }
}

#[test]
fn the_hello_has_a_browsers_datagrams_and_is_repeated_while_nobody_answers() {
    let mut scene = Scene::new(Groups::Hybrid);
    let began = scene.now;
    for _ in 0..=limits::HELLO_REPEATS_MAX {
        let sizes: Vec<_> = scene.sent().iter().map(Vec::len).collect();
        assert_eq!(sizes, [DATAGRAM_BYTES; 2]);
        // What is not the site's changes nothing.
        scene.deliver(&[vec![0xc0; 1_200], vec![0x40; 40], Vec::new()]);
        assert_eq!(scene.end(), None);
        scene.wait();
    }
    assert_eq!(scene.end(), Some(&End::Silent));
    assert_eq!(scene.now - began, 7 * limits::HELLO_REPEAT);
    assert_eq!(scene.visit.poll_timeout(), None);
}

#[test]
fn datagrams_in_another_order_and_twice_make_the_same_handshake() {
    let mut scene = Scene::new(Groups::Hybrid);
    let mut flight = scene.answered();
    flight.reverse();
    scene.deliver(&flight);
    scene.deliver(&flight);
    scene.wait();
    assert_eq!(scene.end(), Some(&End::Complete));
}

#[test]
fn a_site_that_waits_gets_acknowledgements_and_one_that_stops_is_left() {
    let mut scene = Scene::new(Groups::Hybrid);
    let flight = scene.answered();
    scene.deliver(&flight[..2]);
    assert_eq!(scene.wait(), limits::FLIGHT_QUIET);
    let sent = scene.sent();
    assert_eq!(sent.len(), 1);
    assert!(sent[0].len() >= limits::INITIAL_DATAGRAM_BYTES_MIN);
    scene.site.read(&sent[0]);
    scene.wait();
    assert_eq!(scene.end(), Some(&End::Incomplete));
}

#[test]
fn a_close_is_told_with_its_code() {
    let mut scene = Scene::new(Groups::Hybrid);
    for (frames, code) in [
        (&b"\x02\0\0\0\0\0\x1c\x41\x78\0\x02no"[..], Some(0x178)),
        (b"\x30\0", None),
    ] {
        let datagram = scene.site.initial(0, frames);
        scene.deliver(&[datagram]);
        assert_eq!(scene.end(), Some(&End::Closed(code)));
        scene = Scene::new(Groups::Classic);
    }
}

#[test]
fn a_site_of_other_versions_is_told() {
    let mut scene = Scene::new(Groups::Hybrid);
    let mut answer = vec![0x80, 0, 0, 0, 0, 0, 8];
    answer.extend(FIRST_ID);
    answer.extend([0xff, 0, 0, 29]);
    scene.deliver(&[answer]);
    assert_eq!(scene.end(), Some(&End::OtherVersions));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn nothing_in_a_flight_makes_a_visit_panic(place in any::<prop::sample::Index>(), mask in 1_u8.., frames in any::<Vec<u8>>()) {
        let mut scene = Scene::new(Groups::Classic);
        let mut flight = scene.answered();
        let forged = scene.site.initial(5, &frames);
        let which = place.index(flight.len());
        let at = place.index(flight[which].len());
        flight[which][at] ^= mask;
        scene.deliver(&flight);
        scene.deliver(&[forged]);
        while scene.visit.poll_timeout().is_some() {
            scene.wait();
        }
        prop_assert!(scene.end().is_some());
    }
}
