//! The pair of addresses that names a connection, and its hash.

use std::hash::{BuildHasher, Hash, Hasher};
use std::net::{IpAddr, SocketAddr};

/// Both ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tuple {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
}

impl Tuple {
    /// Addresses and ports as bytes, for keyed functions.
    pub(crate) fn bytes(&self) -> [u8; 36] {
        let mut bytes = [0; 36];
        for (place, address) in bytes.chunks_exact_mut(18).zip([self.local, self.remote]) {
            let ip = match address.ip() {
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            };
            place[..16].copy_from_slice(&ip.octets());
            place[16..].copy_from_slice(&address.port().to_be_bytes());
        }
        bytes
    }
}

impl Hash for Tuple {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(u64::from(self.local.port()) << 16 | u64::from(self.remote.port()));
        for address in [self.local.ip(), self.remote.ip()] {
            match address {
                IpAddr::V4(ip) => state.write_u64(ip.to_bits().into()),
                IpAddr::V6(ip) => {
                    state.write_u64((ip.to_bits() >> 64) as u64);
                    state.write_u64(ip.to_bits() as u64);
                }
            }
        }
    }
}

/// Hashes tuples by 128-bit products. The seed keeps strangers from choosing collisions offline; it is no secret that
/// anything else rests on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TupleState(pub(crate) u64);

impl BuildHasher for TupleState {
    type Hasher = TupleHasher;

    fn build_hasher(&self) -> TupleHasher {
        TupleHasher(self.0)
    }
}

/// See [`TupleState`].
pub(crate) struct TupleHasher(u64);

impl Hasher for TupleHasher {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        let product = u128::from(self.0 ^ 0xa076_1d64_78bd_642f) * u128::from(word ^ 0xe703_7ed1_a0b4_28db);
        self.0 = ((product >> 64) as u64 ^ product as u64).wrapping_add(word.rotate_left(32));
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
