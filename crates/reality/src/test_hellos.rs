//! For tests: ClientHello messages, and numbers from a seed.

use aws_lc_rs::agreement::PrivateKey;

/// Which shares a hello has.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HelloShape {
    /// X25519 alone; its key ends the message.
    Classic,
    /// X25519MLKEM768 and X25519, with the same X25519 key: some 1,500 bytes.
    Hybrid,
}

/// A hello as clients of HTTP/3 send it, with a random of zeros.
pub(crate) fn hello(key: &PrivateKey, shape: HelloShape) -> Vec<u8> {
    let public = key.compute_public_key().expect("a public half");
    let classic = (crate::client_hello::X25519, public.as_ref().to_vec());
    let shares = match shape {
        HelloShape::Classic => vec![classic],
        HelloShape::Hybrid => {
            let hybrid = [&Numbers::new(1).bytes(1184)[..], public.as_ref()].concat();
            vec![(crate::client_hello::X25519MLKEM768, hybrid), classic]
        }
    };
    message(&extensions(&shares))
}

/// The extensions of a hello with these shares, the shares last.
pub(crate) fn extensions(shares: &[(u16, Vec<u8>)]) -> Vec<(u16, Vec<u8>)> {
    let keys: Vec<u8> = shares
        .iter()
        .flat_map(|(group, key)| [&group.to_be_bytes()[..], &vector(key)].concat())
        .collect();
    vec![
        (57, transport_parameters()),
        (0, vector(&[&[0][..], &vector(b"cover.example")].concat())),
        (43, vec![2, 3, 4]),
        (16, vector(b"\x02h3\x08http/1.1")),
        (10, vector(&[0x11, 0xec, 0, 0x1d])),
        (51, vector(&keys)),
    ]
}

/// Source connection ID of the Initials of these hellos.
pub(crate) const SOURCE_ID: [u8; 5] = [0xc1, 0xc2, 0xc3, 0xc4, 0xc5];

fn transport_parameters() -> Vec<u8> {
    [
        &[0x04, 4, 0x80, 0xf0, 0, 0, 0x40, 0x75, 3, 1, 2, 3][..],
        &[0x0f, SOURCE_ID.len() as u8],
        &SOURCE_ID,
        &[0x03, 2, 0x45, 0xc0],
    ]
    .concat()
}

/// A hello with these extensions and a random of zeros.
pub(crate) fn message(extensions: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let extensions: Vec<u8> = extensions
        .iter()
        .flat_map(|(kind, data)| [&kind.to_be_bytes()[..], &vector(data)].concat())
        .collect();
    let head = [&[3, 3][..], &[0; 32], &[0]].concat();
    let body = [
        &head[..],
        &vector(&[0x13, 1, 0x13, 2, 0x13, 3]),
        &[1, 0],
        &vector(&extensions),
    ]
    .concat();
    let length = (body.len() as u32).to_be_bytes();
    [&[1][..], &length[1..], &body].concat()
}

/// The bytes behind their length in two bytes.
pub(crate) fn vector(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat()
}

/// Numbers from a seed (SplitMix64).
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub(crate) fn array<const BYTES: usize>(&mut self) -> [u8; BYTES] {
        std::array::from_fn(|_| self.next() as u8)
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }
}
