//! A server behind a front door, its client, and who may stand between them.

use std::time::Duration;

use quic::{
    AcceptParameters, Aead, Certificates, ClientParameters, ConnectionKey, CoverTls, FrontDoorClient,
    FrontDoorIdentity, IdLength, IncomingKey, TrustedRoots,
};
use reality::authenticator::{Binding, Recognised, open};
use reality::client_hello::ClientHello;
use reality::credentials::{ServerKey, UserKey};

use super::wire;
use crate::support::{Identity, Pair, Setup, Side, server_endpoint};

/// What the clients' clocks say.
pub(crate) const NOW: u32 = 1_800_000_000;

/// A cover as there are many: AES-128-GCM, X25519MLKEM768.
pub(crate) const COVER: CoverTls = CoverTls {
    cipher_suite: 0x1301,
    group: 0x11ec,
    certificate_message_bytes: 2_977,
    is_version_first: false,
};

pub(crate) struct Door {
    pub(crate) pair: Pair,
    pub(crate) server_key: ServerKey,
    pub(crate) user: UserKey,
    pub(crate) identity: FrontDoorIdentity,
    accepted: usize,
    /// Who may certify that somebody is `localhost`.
    authority: Authority,
}

/// A certificate authority.
struct Authority {
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
    certificate: Vec<u8>,
}

impl Authority {
    fn new() -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut parameters = rcgen::CertificateParams::new(Vec::new()).unwrap();
        parameters
            .distinguished_name
            .push(rcgen::DnType::CommonName, "authority");
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        parameters.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign];
        let certificate = parameters.self_signed(&key).unwrap().der().to_vec();
        Self {
            issuer: rcgen::Issuer::new(parameters, key),
            certificate,
        }
    }

    /// A certificate and key for `name`.
    fn certify(&self, name: &str) -> Identity {
        let key = rcgen::KeyPair::generate().unwrap();
        let parameters = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = parameters.signed_by(&key, &self.issuer).unwrap().der().to_vec();
        Identity {
            pin: quic::public_key_pin(&certificate).unwrap(),
            certificates: Certificates::new(vec![certificate.clone()], key.serialize_der()).unwrap(),
            certificate,
        }
    }
}

impl Door {
    pub(crate) fn new(cover: &CoverTls) -> Self {
        Self::with(cover, Setup::default())
    }

    pub(crate) fn with(cover: &CoverTls, setup: Setup) -> Self {
        let mut pair = Pair::new(Setup {
            is_covered: true,
            client_ids: IdLength::NONE,
            ..setup
        });
        pair.server.accepts = None;
        pair.client.captured = Some(Vec::new());
        pair.server.captured = Some(Vec::new());
        Self {
            pair,
            server_key: ServerKey::from_bytes(&[0x42; 32]),
            user: UserKey::derive(&[7; 32]),
            identity: FrontDoorIdentity::generate(Aead::default(), cover).unwrap(),
            accepted: 0,
            authority: Authority::new(),
        }
    }

    /// What the link tells the client.
    pub(crate) fn client_parameters(&self) -> ClientParameters {
        ClientParameters::FrontDoor(FrontDoorClient {
            server: *self.server_key.public(),
            user: self.user.clone(),
            unix_seconds: NOW,
            roots: TrustedRoots::web_pki_and(std::slice::from_ref(&self.authority.certificate)).unwrap(),
        })
    }

    /// Begins a connection; its first flight is on its way.
    pub(crate) fn connect(&mut self) -> ConnectionKey {
        self.pair.client.captured = Some(Vec::new());
        let parameters = self.client_parameters();
        self.pair.connect_with(&parameters).unwrap()
    }

    /// The datagrams that left at one side since the connection began.
    pub(crate) fn datagrams(side: &Side) -> Vec<Vec<u8>> {
        let trains = side.captured.as_ref().unwrap().iter();
        let sizes = side.sent.iter().rev().take(trains.len()).rev();
        let segments = trains
            .zip(sizes)
            .flat_map(|(train, sent)| train.chunks(sent.segment_size));
        segments.map(<[u8]>::to_vec).collect()
    }

    /// Whom the server recognises in the client's latest hello.
    pub(crate) fn recognise(&self) -> Option<Recognised> {
        let datagrams = Self::datagrams(&self.pair.client);
        let message = wire::hello(&datagrams);
        let first = wire::Initial::open(&datagrams[0]).unwrap();
        let binding = Binding {
            version: 1,
            destination_id: &first.destination_id,
        };
        let hello = ClientHello::parse(&message).unwrap();
        let window = Duration::from_secs(120);
        open(
            &hello,
            &binding,
            &[ServerKey::from_bytes(&self.server_key.to_bytes())],
            &self.user,
            NOW,
            window,
        )
    }

    /// Drives until the next hello has come to the server.
    pub(crate) fn arrival(&mut self) -> IncomingKey {
        let (number, limit) = (self.accepted, Duration::from_secs(1));
        let arrived = |pair: &Pair| pair.server.incoming.get(number).map(|incoming| incoming.key);
        self.pair.drive_until(limit, arrived)
    }

    /// Drives until the server has accepted the client that it recognised.
    pub(crate) fn accept(&mut self) -> ConnectionKey {
        let incoming = self.arrival();
        self.accepted += 1;
        let keys = self.recognise().unwrap().keys;
        let parameters = AcceptParameters {
            identity: Some(self.identity.for_client(keys)),
            ..AcceptParameters::default()
        };
        let now = self.pair.now;
        let endpoint = &mut self.pair.server.endpoint;
        endpoint.accept(now, incoming, &parameters).unwrap()
    }

    /// Client's and server's key of a connection that stands.
    pub(crate) fn meet(&mut self) -> (ConnectionKey, ConnectionKey) {
        let client = self.connect();
        let server = self.accept();
        self.pair.drive(Duration::from_secs(2));
        assert_eq!(self.pair.client.connected.last(), Some(&client));
        assert_eq!(self.pair.server.connected.last(), Some(&server));
        (client, server)
    }

    /// Puts a plain server in the server's place, which accepts everybody: the cover where the authority says so, or
    /// somebody who says to be it.
    pub(crate) fn lead_to(&mut self, who: Somebody) {
        let identity = match who {
            Somebody::Cover => self.authority.certify("localhost"),
            Somebody::OtherSite => self.authority.certify("elsewhere.example"),
            Somebody::Pretender => Identity::new(),
        };
        let setup = Setup {
            is_covered: false,
            ..self.pair.setup.clone()
        };
        let endpoint = server_endpoint(&setup, &identity, [8; 64]);
        self.pair.server = Side::new(endpoint, self.pair.server.address, setup.ceiling);
    }
}

/// Whom a client may meet instead of its server.
#[derive(Clone, Copy)]
pub(crate) enum Somebody {
    /// A site with a valid certificate for the name.
    Cover,
    /// A site with a valid certificate for another name.
    OtherSite,
    /// Somebody with a certificate of his own making.
    Pretender,
}
