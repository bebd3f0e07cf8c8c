//! What tests with both roles in one process share.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use tunnel::config::{CarrierChoice, ClientConfig, CommonConfig, ServerConfig, ServerProof};
use tunnel::handle::{Handle, Notice};
use tunnel_proto::Token;

/// For whatever should happen at once, on any machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// One shard.
pub(crate) fn common() -> CommonConfig {
    CommonConfig {
        connections: Some(1),
        ..CommonConfig::default()
    }
}

/// A server at a port of the kernel's choice, whose clients reach all of 127.0.0.0/8, and its pin.
pub(crate) fn server_config() -> (ServerConfig, [u8; 32]) {
    let key = rcgen::KeyPair::generate().unwrap();
    let parameters = rcgen::CertificateParams::new(["server.test".to_owned()]).unwrap();
    let certificate = parameters.self_signed(&key).unwrap().der().to_vec();
    let pin = quic::public_key_pin(&certificate).unwrap();
    let config = ServerConfig {
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        tcp: None,
        certificates: quic::Certificates::new(vec![certificate], key.serialize_der()).unwrap(),
        tokens: vec![Token::from_bytes([42; 32])],
        users: None,
        hook: None,
        reset_key: [1; 64],
        token_key: [2; 64],
        allowed_targets: vec!["127.0.0.0/8".parse().unwrap()],
        public: Vec::new(),
        cover: None,
        has_rendezvous: true,
        tun: None,
        takeover: None,
        qlog: None,
        common: common(),
    };
    (config, pin)
}

/// A client of the server at `server` that forwards nothing yet.
pub(crate) fn client_config(server: SocketAddr, pin: [u8; 32]) -> ClientConfig {
    ClientConfig {
        servers: vec![(server.ip().to_string(), server.port())],
        carriers: CarrierChoice::UDP,
        proof: ServerProof::Pin(pin),
        token: Token::from_bytes([42; 32]),
        forwards: Vec::new(),
        remote_forwards: Vec::new(),
        transparent_port: None,
        proxies: Vec::new(),
        tun: None,
        qlog: None,
        bind: None,
        common: common(),
    }
}

/// The address of a server that has just been started.
pub(crate) fn listening(server: &Handle) -> SocketAddr {
    notice(server, |notice| match notice {
        Notice::Listening { local, .. } => Some(local),
        _ => None,
    })
}

/// Waits until a client is connected.
pub(crate) fn connected(client: &Handle) {
    notice(client, |notice| {
        matches!(notice, Notice::Connected { .. }).then_some(())
    });
}

/// Waits for a notice.
pub(crate) fn notice<T>(handle: &Handle, wanted: impl Fn(Notice) -> Option<T>) -> T {
    let deadline = Instant::now() + LIMIT;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let notice = handle.next_notice(left).expect("the notice comes in time");
        if let Some(found) = wanted(notice) {
            return found;
        }
    }
}
