//! ClientHello messages: what is told of one lies in it, and no changed or cut one is recognised.

use reality::authenticator::{Binding, open};
use reality::client_hello::{ClientHello, message_bytes};
use reality::credentials::{ServerKey, UserKey};

/// A message.
pub fn run(data: &[u8]) {
    let Ok(hello) = ClientHello::parse(data) else {
        return;
    };
    assert_eq!(message_bytes(data), Some(Ok(data.len())));
    assert_eq!(hello.random()[..], data[hello.random_range()]);
    let extensions: Vec<_> = hello.extensions().collect();
    let bytes: usize = extensions.iter().map(|(_, content)| 4 + content.len()).sum();
    assert!(bytes <= data.len());
    let has = |kind: u16| extensions.iter().any(|(found, _)| *found == kind);
    assert!(hello.server_name().is_none() || has(0));
    assert!(hello.groups().next().is_none() || has(10));
    assert!(hello.alpn().next().is_none() || has(16));
    assert!(hello.key_shares().next().is_none() || has(51));
    assert!(hello.cipher_suites().next().is_some());
    if let Some(share) = hello.x25519_share() {
        assert!(hello.key_shares().any(|(_, key)| key.ends_with(share)));
    }
    let binding = Binding {
        version: 1,
        destination_id: &[1; 8],
    };
    let (key, user) = (ServerKey::from_bytes(&[5; 32]), UserKey::derive(&[6; 32]));
    let window = std::time::Duration::from_secs(600);
    let found = open(&hello, &binding, &[key], &user, 1_900_000_000, window);
    assert!(found.is_none(), "nobody sealed it");
}

/// A whole hello, one without extensions, one with two shares, one whose list of names is cut.
pub fn seeds() -> Vec<Vec<u8>> {
    let share = |group: u16| [&group.to_be_bytes()[..], &vector(&[9; 32])].concat();
    let extension = |kind: u16, content: &[u8]| [&kind.to_be_bytes()[..], &vector(content)].concat();
    let name = extension(0, &vector(b"\0\0\x0dcover.example"));
    let all = [
        name,
        extension(10, &vector(&[0x11, 0xec, 0, 0x1d])),
        extension(16, &vector(b"\x02h3")),
        extension(51, &vector(&share(0x1d))),
        extension(57, &[0x0f, 5, 0xc1, 0xc1, 0xc1, 0xc1, 0xc1]),
    ];
    let two = extension(51, &vector(&[share(0x0a0a), share(0x1d)].concat()));
    vec![
        message(&all.concat()),
        message(&[]),
        message(&two),
        message(&extension(0, &[0, 9, 0, 0])),
    ]
}

fn vector(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat()
}

fn message(extensions: &[u8]) -> Vec<u8> {
    let body = [
        &[3, 3][..],
        &[7; 32],
        &[0],
        &vector(&[0x13, 1]),
        &[1, 0],
        &vector(extensions),
    ]
    .concat();
    [&[1, 0][..], &vector(&body)].concat()
}
