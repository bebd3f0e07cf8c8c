//! Vectors of another implementation, and everything that must not pass.

use std::collections::BTreeMap;

use aws_lc_rs::agreement::{PrivateKey, X25519};
use data_encoding::HEXLOWER;

use super::*;
use crate::test_hellos::{HelloShape, Numbers, hello};

const WINDOW: Duration = Duration::from_secs(120);
const NOW: u32 = 1_900_000_000;

/// What `tests/vectors/authenticator.py` printed.
fn vectors() -> Vec<BTreeMap<&'static str, Vec<u8>>> {
    let text = include_str!("../../tests/vectors/authenticator.txt");
    text.split_terminator("\n\n")
        .map(|case| {
            case.lines()
                .filter_map(|line| line.split_once(' '))
                .map(|(name, value)| (name, HEXLOWER.decode(value.as_bytes()).expect("hexadecimal")))
                .collect()
        })
        .collect()
}

fn array<const BYTES: usize>(bytes: &[u8]) -> [u8; BYTES] {
    bytes.try_into().expect("a vector of this length")
}

/// QR1-2, QR1-4, QR1-5, QR1-15, QR1-17.
#[test]
fn both_sides_compute_what_another_implementation_did() {
    let vectors = vectors();
    assert_eq!(vectors.len(), 3);
    for vector in vectors {
        let server = ServerKey::from_bytes(&array(&vector["server_private"]));
        assert_eq!(server.public().0[..], vector["server_public"]);
        let user = UserKey::derive(&array(&vector["token"]));
        assert_eq!(user.sid[..], vector["sid"]);
        let shared = SharedSecret::new(array(&vector["shared"])).expect("no zeros");
        let time = u32::from_be_bytes(array(&vector["time"]));
        let binding = Binding {
            version: 1,
            destination_id: &vector["dcid"],
        };
        let message = &vector["hello"];
        let (random, sealed) =
            seal(message, &binding, &shared, server.public(), &user, time).expect("a hello");
        let hello = ClientHello::parse(message).expect("a hello");
        assert_eq!(random, *hello.random());
        let opened = open(&hello, &binding, &[server], &user, time, Duration::ZERO).expect("recognised");
        assert_eq!((opened.sid, opened.time), (user.sid, time));
        for keys in [sealed, opened.keys] {
            assert_eq!(keys.transcript()[..], vector["transcript"]);
            assert_eq!(
                keys.certificate_proof(&vector["spki"])[..],
                vector["certificate_proof"]
            );
            let bound = keys.channel_binding(&array(&vector["exporter"]));
            assert_eq!(bound[..], vector["channel_binding"]);
        }
    }
}

/// One client, its server, and the hello that passes between them.
struct Scene {
    server: ServerKey,
    user: UserKey,
    client: PrivateKey,
    message: Vec<u8>,
    destination_id: Vec<u8>,
}

impl Scene {
    fn new() -> Self {
        let client = PrivateKey::from_private_key(&X25519, &[7; 32]).expect("a key");
        let mut scene = Self {
            server: ServerKey::from_bytes(&[5; 32]),
            user: UserKey::derive(&[6; 32]),
            message: hello(&client, HelloShape::Hybrid),
            client,
            destination_id: (1..=8).collect(),
        };
        scene.seal_at(NOW);
        scene
    }

    fn binding(&self) -> Binding<'_> {
        Binding {
            version: 1,
            destination_id: &self.destination_id,
        }
    }

    fn seal_at(&mut self, time: u32) {
        let shared = self.server.public().agree(&self.client).expect("no zeros");
        let sealed = seal(
            &self.message,
            &self.binding(),
            &shared,
            self.server.public(),
            &self.user,
            time,
        );
        let (random, _) = sealed.expect("a hello");
        self.message[6..38].copy_from_slice(&random);
    }

    fn open_with(&self, keys: &[ServerKey], users: &impl Users) -> Option<Recognised> {
        let hello = ClientHello::parse(&self.message).ok()?;
        open(&hello, &self.binding(), keys, users, NOW, WINDOW)
    }

    fn is_recognised(&self) -> bool {
        self.open_with(&[ServerKey::from_bytes(&[5; 32])], &self.user)
            .is_some()
    }
}

/// QR1-5, QR1-7: every single bit of message and connection ID counts, and the version.
#[test]
fn no_hello_passes_that_differs_by_one_bit() {
    let mut scene = Scene::new();
    assert!(scene.is_recognised());
    for bit in 0..8 * scene.message.len() {
        scene.message[bit / 8] ^= 1 << (bit % 8);
        assert!(!scene.is_recognised(), "bit {bit} of the message");
        scene.message[bit / 8] ^= 1 << (bit % 8);
    }
    for bit in 0..8 * scene.destination_id.len() {
        scene.destination_id[bit / 8] ^= 1 << (bit % 8);
        assert!(!scene.is_recognised(), "bit {bit} of the connection ID");
        scene.destination_id[bit / 8] ^= 1 << (bit % 8);
    }
    let hello = ClientHello::parse(&scene.message).expect("a hello");
    let keys = [ServerKey::from_bytes(&[5; 32])];
    for version in (0..32).map(|bit| 1 ^ 1 << bit) {
        let binding = Binding {
            version,
            ..scene.binding()
        };
        assert!(open(&hello, &binding, &keys, &scene.user, NOW, WINDOW).is_none());
    }
    scene.destination_id.push(0);
    assert!(!scene.is_recognised());
    scene.destination_id.truncate(7);
    assert!(!scene.is_recognised());
}

/// QR1-7.
#[test]
fn another_server_another_user_and_another_token_do_not_recognise_it() {
    let scene = Scene::new();
    let server = || ServerKey::from_bytes(&[5; 32]);
    assert!(
        scene
            .open_with(&[ServerKey::from_bytes(&[4; 32])], &scene.user)
            .is_none()
    );
    assert!(scene.open_with(&[], &scene.user).is_none());
    let stranger = UserKey::derive(&[8; 32]);
    assert!(scene.open_with(&[server()], &stranger).is_none());
    // The right name with another key.
    let mut impostor = stranger.clone();
    impostor.sid = scene.user.sid;
    assert!(scene.open_with(&[server()], &impostor).is_none());
    let everybody = BTreeMap::from([(stranger.sid, stranger), (scene.user.sid, scene.user.clone())]);
    let found = scene.open_with(&[server()], &everybody).expect("one of them");
    assert_eq!(found.sid, scene.user.sid);
}

/// QR1-1.
#[test]
fn the_key_before_the_present_one_is_tried_too_and_no_third() {
    let scene = Scene::new();
    let key = |byte| ServerKey::from_bytes(&[byte; 32]);
    assert!(scene.open_with(&[key(4), key(5)], &scene.user).is_some());
    assert!(scene.open_with(&[key(3), key(4), key(5)], &scene.user).is_none());
}

/// QR1-9.
#[test]
fn a_clock_may_be_off_by_the_window_and_no_second_more() {
    let mut scene = Scene::new();
    let window = WINDOW.as_secs() as u32;
    for (time, expected) in [
        (NOW - window, true),
        (NOW + window, true),
        (NOW - window - 1, false),
        (NOW + window + 1, false),
        (0, false),
        (u32::MAX, false),
    ] {
        scene.seal_at(time);
        assert_eq!(scene.is_recognised(), expected, "{time}");
    }
}

/// A hello whose header and MAC are right for `header`, whatever it says.
fn sealed_header(scene: &mut Scene, header: [u8; HALF_BYTES]) {
    let hello = ClientHello::parse(&scene.message).expect("a hello");
    let ephemeral = hello.x25519_share().expect("a share");
    let shared = scene.server.agree(ephemeral).expect("no zeros");
    let transcript = transcript(&hello, &scene.binding());
    let prk = connection_key(&transcript, &shared, ephemeral, scene.server.public());
    let mut block = header;
    encipher(&prk, &mut block);
    let keys = channel_keys(&prk, &scene.user, &block, transcript);
    scene.message[6..22].copy_from_slice(&block);
    scene.message[22..38].copy_from_slice(keys.tag());
}

/// QR1-5, QR1-7.
#[test]
fn flags_and_feature_are_ignored_and_another_version_or_a_field_that_is_not_zero_refused() {
    let mut scene = Scene::new();
    let mut header = [0; HALF_BYTES];
    header[0] = VERSION << 4;
    header[4..8].copy_from_slice(&NOW.to_be_bytes());
    header[8..].copy_from_slice(&scene.user.sid);
    sealed_header(&mut scene, header);
    assert!(scene.is_recognised());
    for (place, change, expected) in [
        (0, 0x0f, true),
        (1, 0xff, true),
        (0, 0x20, false),
        (0, 0x10, false),
        (2, 1, false),
        (3, 0x80, false),
        (8, 1, false),
        (15, 1, false),
    ] {
        let mut changed = header;
        changed[place] ^= change;
        sealed_header(&mut scene, changed);
        assert_eq!(scene.is_recognised(), expected, "byte {place}, {change:02x}");
    }
}

/// QR1-4, QR1-7: such a point would let anybody compute the key of the header.
#[test]
fn a_hello_with_a_point_of_low_order_is_refused() {
    for point in [[0; 32], std::array::from_fn(|place| u8::from(place == 0))] {
        let mut scene = Scene::new();
        let hello = ClientHello::parse(&scene.message).expect("a hello");
        let share = hello.x25519_share().expect("a share").as_ptr() as usize;
        let offset = share - scene.message.as_ptr() as usize;
        scene.message[offset..offset + 32].copy_from_slice(&point);
        let hello = ClientHello::parse(&scene.message).expect("a hello");
        assert_eq!(*hello.x25519_share().expect("a share"), point);
        // What a forger who knows a user's keys would do.
        let transcript = transcript(&hello, &scene.binding());
        let zeros = kdf::extract(&transcript, &[[0; 32], point, scene.server.public().0].concat());
        let mut header = [0; HALF_BYTES];
        header[0] = VERSION << 4;
        header[4..8].copy_from_slice(&NOW.to_be_bytes());
        header[8..].copy_from_slice(&scene.user.sid);
        encipher(&zeros, &mut header);
        let keys = channel_keys(&zeros, &scene.user, &header, transcript);
        scene.message[6..22].copy_from_slice(&header);
        scene.message[22..38].copy_from_slice(keys.tag());
        assert!(!scene.is_recognised());
    }
}

/// Chi-square of each of the 32 bytes over its 256 values, and of each bit, for so many hellos with keys of their own.
fn randoms_are_uniform(count: u32) {
    let server = ServerKey::from_bytes(&[5; 32]);
    let user = UserKey::derive(&[6; 32]);
    let mut numbers = Numbers::new(0x5eed);
    let mut counts = vec![[0_u32; 256]; 32];
    let mut message = hello(
        &PrivateKey::from_private_key(&X25519, &numbers.array::<32>()).expect("a key"),
        HelloShape::Classic,
    );
    let share = message.len() - 32;
    for second in 0..count {
        // Any public key and any secret stand for a fresh key pair: X25519 itself is not examined.
        message[share..].copy_from_slice(&numbers.array::<32>());
        let shared = SharedSecret::new(numbers.array()).expect("no zeros");
        let destination_id = numbers.array::<8>();
        let binding = Binding {
            version: 1,
            destination_id: &destination_id,
        };
        let time = NOW + second / 1_000;
        let (random, _) = seal(&message, &binding, &shared, server.public(), &user, time).expect("a hello");
        for (count, byte) in counts.iter_mut().zip(random) {
            count[usize::from(byte)] += 1;
        }
    }
    let expected = f64::from(count) / 256.0;
    for (place, of_byte) in counts.iter().enumerate() {
        let chi: f64 = of_byte
            .iter()
            .map(|found| (f64::from(*found) - expected).powi(2) / expected)
            .sum();
        // 255 degrees of freedom: mean 255, standard deviation 22.6; six of them to either side.
        assert!((120.0..390.0).contains(&chi), "byte {place}: {chi}");
        for bit in 0..8 {
            let ones: u32 = (0..256)
                .filter(|value| value >> bit & 1 == 1)
                .map(|value| of_byte[value])
                .sum();
            let sigma = (f64::from(count) / 4.0).sqrt();
            let off = (f64::from(ones) - f64::from(count) / 2.0) / sigma;
            assert!(
                off.abs() < 6.0,
                "bit {bit} of byte {place}: {off} standard deviations"
            );
        }
    }
}

/// QR1-5.
#[test]
fn randoms_are_uniform_to_everybody_else() {
    randoms_are_uniform(50_000);
}

/// QR1-5.
#[test]
#[ignore = "takes a minute without optimization: `cargo test -p reality -- --ignored`"]
fn a_million_randoms_are_uniform() {
    randoms_are_uniform(1_000_000);
}
