//! Key shares and random numbers of a client's hello, as browsers have them and as both passes need them.
//!
//! rustls takes groups and random source by static reference, and draws the hello's random before it makes the key share
//! that the random depends on. So a hello is composed twice ([`super::client`]), and a rehearsal of the calling thread, which
//! holds what the first pass drew, makes the second one draw the same: [`compose`] is the only way to have one. Outside of
//! it both behave as those of the provider.
//!
//! Browsers send an X25519MLKEM768 share and an X25519 share whose keys are independent, where rustls' own hybrid group
//! sends one X25519 key twice.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use aws_lc_rs::agreement::{self, PrivateKey, UnparsedPublicKey, X25519};
use rustls::crypto::aws_lc_rs::{self as provider, kx_group};
use rustls::crypto::{ActiveKeyExchange, GetRandomFailed, SecureRandom, SharedSecret, SupportedKxGroup};
use rustls::ffdhe_groups::FfdheGroup;
use rustls::{Error, NamedGroup, PeerMisbehaved, ProtocolVersion};

/// Bytes of ML-KEM-768's ciphertext (FIPS 203 section 8), which the server's share begins with.
const CIPHERTEXT_BYTES: usize = 1_088;

/// Groups in a browser's order.
pub(super) static GROUPS: [&dyn SupportedKxGroup; 4] = [
    &Hybrid,
    kx_group::X25519,
    kx_group::SECP256R1,
    kx_group::SECP384R1,
];

/// The random source that goes with them.
pub(super) static RANDOM: Source = Source;

/// What the thread's rehearsal holds.
struct Rehearsal {
    shares: Arc<Shares>,
    /// What was drawn in the first pass, in that order.
    drawn: VecDeque<Vec<u8>>,
    is_repeating: bool,
}

thread_local! {
    static REHEARSAL: RefCell<Option<Rehearsal>> = const { RefCell::new(None) };
}

/// Runs both passes with the same key shares and random numbers: `first` with fresh ones, whose result decides on the
/// hello's random, then `second`.
///
/// # Errors
/// Those of the passes.
pub(super) fn compose<A, B>(
    first: impl FnOnce(&Shares) -> Result<(A, [u8; 32]), Error>,
    second: impl FnOnce(A) -> Result<B, Error>,
) -> Result<B, Error> {
    /// No rehearsal outlives its hello.
    struct End;
    impl Drop for End {
        fn drop(&mut self) {
            REHEARSAL.set(None);
        }
    }
    let shares = Arc::new(Shares::new()?);
    let _end = End;
    REHEARSAL.set(Some(Rehearsal {
        shares: Arc::clone(&shares),
        drawn: VecDeque::new(),
        is_repeating: false,
    }));
    let (between, random) = first(&shares)?;
    REHEARSAL.with_borrow_mut(|rehearsal| {
        let rehearsal = rehearsal.as_mut().expect("it was set above");
        rehearsal.is_repeating = true;
        for drawn in rehearsal
            .drawn
            .iter_mut()
            .filter(|drawn| drawn.len() == random.len())
        {
            drawn.copy_from_slice(&random);
        }
    });
    second(between)
}

/// The private keys of one hello.
pub(super) struct Shares {
    /// X25519 in the hybrid share: the one that a server recognises the client by.
    hybrid: PrivateKey,
    /// The X25519 share.
    classic: PrivateKey,
    classic_public: [u8; 32],
    hybrid_public: Vec<u8>,
    ml_kem: Mutex<Option<Box<dyn ActiveKeyExchange>>>,
}

impl Shares {
    fn new() -> Result<Self, Error> {
        let ml_kem = kx_group::MLKEM768.start()?;
        let (hybrid, classic) = (x25519()?, x25519()?);
        let mut hybrid_public = ml_kem.pub_key().to_vec();
        hybrid_public.extend_from_slice(&public(&hybrid)?);
        Ok(Self {
            classic_public: public(&classic)?,
            hybrid,
            classic,
            hybrid_public,
            ml_kem: Mutex::new(Some(ml_kem)),
        })
    }

    /// `e` of QR1-4.
    pub(super) fn ephemeral(&self) -> &PrivateKey {
        &self.hybrid
    }
}

fn x25519() -> Result<PrivateKey, Error> {
    PrivateKey::generate(&X25519).map_err(|_| Error::FailedToGetRandomBytes)
}

fn public(key: &PrivateKey) -> Result<[u8; 32], Error> {
    let public = key
        .compute_public_key()
        .map_err(|_| Error::General("an X25519 key without a public half".to_owned()))?;
    Ok(public.as_ref().try_into().expect("X25519 has keys of 32 bytes"))
}

fn agree(key: &PrivateKey, peer: &[u8]) -> Result<Vec<u8>, Error> {
    let invalid = Error::PeerMisbehaved(PeerMisbehaved::InvalidKeyShare);
    agreement::agree(key, UnparsedPublicKey::new(&X25519, peer), invalid, |secret| {
        Ok(secret.to_vec())
    })
}

/// X25519MLKEM768 beside an independent X25519.
#[derive(Debug)]
struct Hybrid;

impl SupportedKxGroup for Hybrid {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        let rehearsed = REHEARSAL.with_borrow(|one| one.as_ref().map(|one| Arc::clone(&one.shares)));
        let shares = match rehearsed {
            Some(shares) => shares,
            None => Arc::new(Shares::new()?),
        };
        Ok(Box::new(Active(shares)))
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::X25519MLKEM768
    }

    fn usable_for_version(&self, version: ProtocolVersion) -> bool {
        version == ProtocolVersion::TLSv1_3
    }
}

struct Active(Arc<Shares>);

impl ActiveKeyExchange for Active {
    fn complete(self: Box<Self>, peer_pub_key: &[u8]) -> Result<SharedSecret, Error> {
        let (ciphertext, x25519) = peer_pub_key
            .split_at_checked(CIPHERTEXT_BYTES)
            .ok_or(PeerMisbehaved::InvalidKeyShare)?;
        let classic = agree(&self.0.hybrid, x25519)?;
        let mut ml_kem = self.0.ml_kem.lock().unwrap_or_else(PoisonError::into_inner);
        let ml_kem = ml_kem.take().ok_or(PeerMisbehaved::InvalidKeyShare)?;
        let post_quantum = ml_kem.complete(ciphertext)?;
        Ok([post_quantum.secret_bytes(), &classic].concat().into())
    }

    fn hybrid_component(&self) -> Option<(NamedGroup, &[u8])> {
        Some((NamedGroup::X25519, &self.0.classic_public))
    }

    fn complete_hybrid_component(self: Box<Self>, peer_pub_key: &[u8]) -> Result<SharedSecret, Error> {
        agree(&self.0.classic, peer_pub_key).map(SharedSecret::from)
    }

    fn pub_key(&self) -> &[u8] {
        &self.0.hybrid_public
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn group(&self) -> NamedGroup {
        NamedGroup::X25519MLKEM768
    }
}

/// The provider's random source, which repeats itself in a second pass.
#[derive(Debug)]
pub(super) struct Source;

impl SecureRandom for Source {
    fn fill(&self, buffer: &mut [u8]) -> Result<(), GetRandomFailed> {
        REHEARSAL.with_borrow_mut(|rehearsal| match rehearsal {
            Some(rehearsal) if rehearsal.is_repeating => {
                let drawn = rehearsal.drawn.pop_front().ok_or(GetRandomFailed)?;
                if drawn.len() != buffer.len() {
                    return Err(GetRandomFailed);
                }
                buffer.copy_from_slice(&drawn);
                Ok(())
            }
            Some(rehearsal) => {
                provider::default_provider().secure_random.fill(buffer)?;
                rehearsal.drawn.push_back(buffer.to_vec());
                Ok(())
            }
            None => provider::default_provider().secure_random.fill(buffer),
        })
    }
}
