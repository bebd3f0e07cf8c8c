//! Hellos as they are composed: what both passes agree on, what a server finds in them, and how they look.

use std::collections::BTreeSet;

use reality::authenticator::open;
use reality::credentials::ServerKey;

use super::*;

const NOW: u32 = 1_800_000_000;

/// Extensions of every hello that are a browser's, too.
const OF_BROWSERS: [u16; 9] = [0, 10, 13, 16, 27, 43, 45, 51, 57];

/// Those that rustls adds: status_request, ec_point_formats and extended_master_secret.
const OF_RUSTLS: [u16; 3] = [5, 11, 23];

fn server_key() -> ServerKey {
    ServerKey::from_bytes(&[0x42; 32])
}

fn door(server: ServerPublicKey) -> FrontDoorClient {
    FrontDoorClient {
        server,
        user: UserKey::derive(&[7; 32]),
        unix_seconds: NOW,
        roots: TrustedRoots::web_pki_and(&[]).unwrap(),
    }
}

/// A hello, the connection ID that it is bound to, and the client's keys.
fn composed() -> (Vec<u8>, [u8; DESTINATION_ID_BYTES], Arc<Outcome>) {
    let (_, outcome, hello, destination_id) =
        composed_for_test("cover.example", &door(*server_key().public()));
    (hello, destination_id, outcome)
}

/// QR1-4, QR1-5. The hello that leaves is the one that was sealed: the server finds the authenticator over its bytes.
#[test]
fn a_server_recognises_every_hello_and_has_its_keys() {
    for _ in 0..20 {
        let (message, destination_id, outcome) = composed();
        let hello = ClientHello::parse(&message).unwrap();
        let binding = Binding {
            version: 1,
            destination_id: &destination_id,
        };
        let user = UserKey::derive(&[7; 32]);
        let window = Duration::from_secs(120);
        let found = open(&hello, &binding, &[server_key()], &user, NOW, window).unwrap();
        let keys = outcome.keys().unwrap();
        assert_eq!(found.keys.tag(), keys.tag());
        assert_eq!(
            found.keys.certificate_proof(b"key"),
            keys.certificate_proof(b"key")
        );
        assert_eq!(found.time, NOW);
    }
}

/// QR1-4.
#[test]
fn no_two_hellos_have_a_key_a_connection_id_or_a_random_in_common() {
    let (mut shares, mut ids, mut randoms) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for _ in 0..20 {
        let (message, destination_id, _) = composed();
        let hello = ClientHello::parse(&message).unwrap();
        let [(0x11ec, hybrid), (0x1d, classic)] = hello.key_shares().collect::<Vec<_>>()[..] else {
            panic!("a browser's shares are X25519MLKEM768 and X25519");
        };
        assert_eq!(hybrid.len(), 1_184 + 32);
        let [e, classic] = [&hybrid[1_184..], classic].map(<[u8]>::to_vec);
        assert!(shares.insert(e) && shares.insert(classic), "a key came twice");
        assert!(ids.insert(destination_id));
        assert!(randoms.insert(*hello.random()));
    }
}

/// QR1-3.
#[test]
fn a_hello_offers_what_a_browser_offers_and_no_resumption() {
    let mut orders = BTreeSet::new();
    for _ in 0..50 {
        let (message, ..) = composed();
        let hello = ClientHello::parse(&message).unwrap();
        assert!(hello.cipher_suites().eq([0x1301, 0x1302, 0x1303]));
        assert!(hello.groups().eq([0x11ec, 0x1d, 0x17, 0x18]));
        assert!(hello.alpn().eq([b"h3"]));
        assert_eq!(hello.server_name(), Some(&b"cover.example"[..]));
        let content = |wanted| {
            hello
                .extensions()
                .find(|(kind, _)| *kind == wanted)
                .map(|one| one.1)
        };
        let schemes = [
            0x0012, 0x0403, 0x0804, 0x0401, 0x0503, 0x0805, 0x0501, 0x0806, 0x0601, 0x0201_u16,
        ];
        let schemes: Vec<u8> = schemes.iter().flat_map(|scheme| scheme.to_be_bytes()).collect();
        assert_eq!(content(13), Some(&schemes[..]));
        assert_eq!(content(27), Some(&[2, 0, 2][..]), "certificates by Brotli");
        assert_eq!(content(43), Some(&[2, 3, 4][..]), "TLS 1.3 alone");
        assert_eq!(content(45), Some(&[1, 1][..]), "psk_dhe_ke");
        let kinds: Vec<u16> = hello.extensions().map(|(kind, _)| kind).collect();
        let set: BTreeSet<u16> = kinds.iter().copied().collect();
        assert_eq!(set, OF_BROWSERS.into_iter().chain(OF_RUSTLS).collect());
        orders.insert(kinds);
    }
    assert!(orders.len() > 40, "{} orders of extensions", orders.len());
}

/// QR1-4.
#[test]
fn a_key_that_is_none_gives_no_hello() {
    let begun = begin(Aead::default(), "cover.example", &door(ServerPublicKey([0; 32])));
    assert!(matches!(begun, Err(ConnectError::FrontDoor(_))));
    let begun = begin(Aead::default(), "no name", &door(*server_key().public()));
    assert!(matches!(begun, Err(ConnectError::ServerName(_))));
}

#[test]
#[should_panic(expected = "the same hello")]
fn passes_that_differ_are_noticed() {
    let (first, ..) = composed();
    let (second, ..) = composed();
    assert_only_the_random_differs(&first, &second);
}
