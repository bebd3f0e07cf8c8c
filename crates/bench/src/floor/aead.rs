//! AEAD cost per provider, algorithm and size: seal in place, and open in place with the copy that it uses up.

use std::hint::black_box;
use std::time::Instant;

use serde::Serialize;

use super::Effort;
use crate::Error;
use crate::median::median;

/// Sizes in bytes: a small voice packet, the usual tunnel payload, a full Ethernet packet, a jumbo frame.
const SIZES: [usize; 4] = [64, 1_150, 1_400, 9_000];

/// Operations between two readings of the clock.
const BLOCK: u32 = 32;

/// What one operation costs.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Cost {
    /// Library.
    pub(super) provider: &'static str,
    /// Algorithm.
    pub(super) algorithm: &'static str,
    /// Plaintext bytes.
    pub(super) bytes: usize,
    /// Nanoseconds per seal.
    pub(super) seal_ns: f64,
    /// Nanoseconds per open, copying the ciphertext included.
    pub(super) open_ns: f64,
}

/// Measures all.
///
/// # Errors
/// When a library refuses a key.
pub(super) fn measure(effort: Effort) -> Result<Vec<Cost>, Error> {
    let mut costs = Vec::new();
    for bytes in SIZES {
        costs.extend(aws_lc_costs(effort, bytes)?);
        costs.extend(ring_costs(effort, bytes)?);
    }
    Ok(costs)
}

/// Both libraries have the same interface in different crates.
macro_rules! provider {
    ($function:ident, $name:literal, $library:ident) => {
        fn $function(effort: Effort, bytes: usize) -> Result<Vec<Cost>, Error> {
            use $library::aead::{
                AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey,
            };
            let refused = |_| Error::Setup(concat!($name, " refused a key or a packet").to_owned());
            let algorithms = [
                ("AES-128-GCM", &AES_128_GCM),
                ("AES-256-GCM", &AES_256_GCM),
                ("ChaCha20-Poly1305", &CHACHA20_POLY1305),
            ];
            let mut costs = Vec::new();
            for (name, algorithm) in algorithms {
                let unbound = UnboundKey::new(algorithm, &[7; 32][..algorithm.key_len()]).map_err(refused)?;
                let key = LessSafeKey::new(unbound);
                let nonce = || Nonce::assume_unique_for_key([3; 12]);
                // A QUIC short header, as associated data.
                let header = || Aad::from([0x40_u8; 13]);
                let mut packet = vec![0x5a; bytes];
                let seal_ns = per_operation(effort, || {
                    let tag = key.seal_in_place_separate_tag(nonce(), header(), black_box(&mut packet));
                    black_box(tag.is_ok());
                });
                let mut sealed = vec![0x5a; bytes];
                key.seal_in_place_append_tag(nonce(), header(), &mut sealed)
                    .map_err(refused)?;
                let mut buffer = sealed.clone();
                key.open_in_place(nonce(), header(), &mut buffer)
                    .map_err(refused)?;
                let open_ns = per_operation(effort, || {
                    buffer.copy_from_slice(black_box(&sealed));
                    black_box(key.open_in_place(nonce(), header(), &mut buffer).is_ok());
                });
                costs.push(Cost {
                    provider: $name,
                    algorithm: name,
                    bytes,
                    seal_ns,
                    open_ns,
                });
            }
            Ok(costs)
        }
    };
}

provider!(aws_lc_costs, "aws-lc-rs", aws_lc_rs);
provider!(ring_costs, "ring", ring);

/// Nanoseconds per call, the median of the samples.
fn per_operation(effort: Effort, mut operation: impl FnMut()) -> f64 {
    let samples: Vec<f64> = (0..effort.runs)
        .map(|_| {
            let (start, mut operations) = (Instant::now(), 0_u64);
            while start.elapsed() < effort.sample {
                (0..BLOCK).for_each(|_| operation());
                operations += u64::from(BLOCK);
            }
            start.elapsed().as_nanos() as f64 / operations as f64
        })
        .collect();
    median(&samples)
}
