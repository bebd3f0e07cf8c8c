//! Servers behind a cover (specs/qr1.md) and who connects to them: what a driver does around the engine there.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use packet::Ecn;
use quic::{
    Aead, ClientParameters, CoverTls, FrontDoorClient, FrontDoorIdentity, Outbox, Path, ServerIdentity,
    TrustedRoots,
};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use reality::credentials::{ServerKey, UserKey};
use reality::door::{Action, Datagram, Decision, Door, Now, Recogniser};

use super::identity::Identity;
use super::setup::user;

/// What all clocks say, in seconds of Unix time: the tests take less than the window.
const UNIX_SECONDS: u32 = 1_800_000_000;

const WINDOW: Duration = Duration::from_secs(120);

/// Bytes of the server's private key.
const SERVER_KEY: [u8; 32] = [0x42; 32];

/// A cover as there are many: AES-128-GCM, X25519MLKEM768.
const COVER: CoverTls = CoverTls {
    cipher_suite: 0x1301,
    group: 0x11ec,
    certificate_message_bytes: 2_977,
    is_version_first: false,
};

/// Who vouches for genuine sites.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: Vec<u8>,
}

static AUTHORITY: LazyLock<Authority> = LazyLock::new(|| {
    let key = KeyPair::generate().expect("the system gives random numbers");
    let mut parameters = CertificateParams::new(Vec::new()).expect("no names");
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let certificate = parameters.self_signed(&key).expect("the key signs");
    Authority {
        certificate: certificate.der().to_vec(),
        issuer: Issuer::new(parameters, key),
    }
});

/// The genuine site's.
pub(super) fn genuine_identity() -> Identity {
    let key = KeyPair::generate().expect("the system gives random numbers");
    let parameters = CertificateParams::new(["server.test".to_owned()]).expect("a well-formed name");
    let certificate = parameters
        .signed_by(&key, &AUTHORITY.issuer)
        .expect("the authority signs");
    let certificate = certificate.der().to_vec();
    Identity {
        pin: quic::public_key_pin(&certificate).expect("a well-formed certificate"),
        certificate,
        private_key: key.serialize_der(),
    }
}

/// What the link tells a client.
pub(super) fn client_parameters() -> ClientParameters {
    let roots = TrustedRoots::web_pki_and(std::slice::from_ref(&AUTHORITY.certificate));
    ClientParameters::FrontDoor(FrontDoorClient {
        server: *ServerKey::from_bytes(&SERVER_KEY).public(),
        user: user().user_key(),
        unix_seconds: UNIX_SECONDS,
        roots: roots.expect("a certificate"),
    })
}

/// What a door lets in.
pub(super) enum Admitted {
    /// The datagrams of this connection follow.
    Connection(Path, Bytes, ServerIdentity),
    Datagram(Path, Ecn, BytesMut),
}

/// Opens to whom it recognises; strangers meet a cover that is silent.
pub(super) struct Doorman {
    door: Door<UserKey>,
    identity: FrontDoorIdentity,
}

impl Doorman {
    pub(super) fn new() -> Self {
        let recogniser = Recogniser {
            keys: vec![ServerKey::from_bytes(&SERVER_KEY)],
            users: user().user_key(),
            window: WINDOW,
        };
        Self {
            door: Door::new(Arc::new(recogniser), 1),
            identity: FrontDoorIdentity::generate(Aead::default(), &COVER)
                .expect("a cover that can be matched"),
        }
    }

    /// Datagrams of which QUIC reads nothing.
    pub(super) fn receive(&mut self, now: Instant, given: &GivenAway) -> Vec<Admitted> {
        let now = Now {
            instant: now,
            unix: UNIX_SECONDS,
        };
        let (path, ecn) = (given.path, given.ecn);
        let mut admitted = Vec::new();
        for datagram in packet::segments(&given.datagrams, given.segment_size) {
            let decision = self.door.handle_datagram(now, path, ecn, datagram);
            self.carry_out(now, &mut admitted);
            if decision == Decision::Pass {
                admitted.push(Admitted::Datagram(path, ecn, BytesMut::from(datagram)));
            }
        }
        admitted
    }

    fn carry_out(&mut self, now: Now, admitted: &mut Vec<Admitted>) {
        while let Some(action) = self.door.poll_action() {
            match action {
                Action::Record { flow, tag, .. } => {
                    self.door.handle_recorded(now, flow, &tag, true);
                    self.door.handle_timeout(now);
                }
                Action::TakeOver(taken) => {
                    let id = Bytes::copy_from_slice(&taken.destination_id);
                    let identity = self.identity.for_client(taken.recognised.keys);
                    admitted.push(Admitted::Connection(taken.path, id, identity));
                    for Datagram { ecn, bytes } in taken.datagrams {
                        admitted.push(Admitted::Datagram(taken.path, ecn, BytesMut::from(&bytes[..])));
                    }
                }
                Action::Forward(..) | Action::Answer(..) | Action::Close(_) => {}
            }
        }
    }

    /// Packets are about to leave.
    pub(super) fn note_sent(&mut self, outbox: &Outbox) {
        for train in outbox.trains() {
            let path = Path {
                remote: train.destination,
                local: train.source,
            };
            for datagram in packet::segments(&train.bytes, train.segment_size) {
                if reality::long_header::is_long(datagram) {
                    self.door.handshakes().handle_sent(path, datagram);
                }
            }
        }
    }
}

/// Datagrams of one sender of which QUIC reads nothing.
pub(super) struct GivenAway {
    pub(super) path: Path,
    pub(super) ecn: Ecn,
    pub(super) datagrams: BytesMut,
    pub(super) segment_size: usize,
}
