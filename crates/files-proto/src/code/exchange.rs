//! The exchange in which both ends prove that they know the words of a code, and nobody learns them
//! (FILE-31 to FILE-34).
//!
//! SPAKE2 (RFC 9382) over Ed25519 gives both a key that is the same only for the same words, the same keys of both
//! peers, and the same TLS session: whoever relays, or stands between with connections of its own, gets another key.
//! The guest confirms first. So a guess is always seen by the host, which discards the code after a wrong one; a guest
//! that falls silent before has learned nothing.

use rand_core::{CryptoRng, Error, RngCore};
use spake2::{Ed25519Group, Identity, Password, Spake2};
use thiserror::Error as ThisError;

use super::Code;
use crate::limits::EXCHANGE_FRAME_BYTES_MAX;

const START: u8 = 1;
const ANSWER: u8 = 2;
const CONFIRM: u8 = 3;
const REFUSED: u8 = 4;

/// Bytes of the number before the guest's first frame.
const NUMBER_BYTES: usize = 4;

/// Where an exchange stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Something of the other end is missing.
    Waiting,
    /// The other end knows the words.
    Confirmed,
}

/// Why an exchange ended without success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ThisError)]
pub enum ExchangeError {
    /// At the host: the guest does not know the words. The code is used up, as the next guess could be right.
    #[error("somebody tried a wrong code; this one is no longer valid: send again for a new one")]
    WrongGuess,
    /// At the guest: the host says so of our words, or does not know them itself.
    #[error("the code is wrong, and is used up by this attempt: ask the sender for a new one")]
    WrongCode,
    /// Frames that no peer of this version sends.
    #[error("the other end does not speak this version of the code exchange: update both")]
    Malformed,
}

/// The end that typed the code: the receiver.
#[derive(Debug)]
pub struct Guest {
    exchange: Exchange,
    step: GuestStep,
}

#[derive(Debug)]
enum GuestStep {
    Started(Spake),
    Confirmed { expected: blake3::Hash },
    Done,
}

/// The end that shows the code: the sender.
#[derive(Debug)]
pub struct Host {
    exchange: Exchange,
    step: HostStep,
}

#[derive(Debug)]
enum HostStep {
    Waiting(Spake, Vec<u8>),
    Answered {
        expected: blake3::Hash,
        ours: blake3::Hash,
    },
    Done,
}

/// What both must have alike.
#[derive(Clone, Copy, Debug)]
pub struct Parties {
    /// The key of the peer that shows the code.
    pub host: [u8; 32],
    /// The key of the peer that typed it.
    pub guest: [u8; 32],
    /// What both derive from their TLS session (RFC 8446 section 7.5).
    pub binding: [u8; 32],
}

impl Guest {
    /// Begins an exchange; `seed` is random and used once.
    #[must_use]
    pub fn new(code: &Code, parties: Parties, seed: &[u8; 32]) -> Self {
        let (spake, first) = Spake2::<Ed25519Group>::start_a_with_rng(
            &Password::new(code.password()),
            &Identity::new(&parties.guest),
            &Identity::new(&parties.host),
            Seeded::new(seed),
        );
        let mut exchange = Exchange::new(code.number, parties);
        exchange.outgoing.extend(code.number.to_be_bytes());
        exchange.frame(START, &first);
        Self {
            exchange,
            step: GuestStep::Started(Spake(spake)),
        }
    }

    /// Bytes to send to the host: before its first frame, the number of the code.
    pub fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        self.exchange.poll_transmit()
    }

    /// Takes bytes of the host.
    ///
    /// # Errors
    /// The exchange is over; nothing may be sent to this host as if it knew the code.
    pub fn handle_bytes(&mut self, bytes: &[u8]) -> Result<Progress, ExchangeError> {
        self.exchange.incoming.extend_from_slice(bytes);
        while let Some((kind, body)) = self.exchange.next_frame()? {
            if kind == REFUSED {
                return Err(ExchangeError::WrongCode);
            }
            self.step = match (std::mem::replace(&mut self.step, GuestStep::Done), kind) {
                (GuestStep::Started(spake), ANSWER) => {
                    let confirmations = self.exchange.confirmations(spake, &body)?;
                    self.exchange.frame(CONFIRM, confirmations.guest.as_bytes());
                    GuestStep::Confirmed {
                        expected: confirmations.host,
                    }
                }
                (GuestStep::Confirmed { expected }, CONFIRM) => {
                    // blake3::Hash compares in constant time.
                    if <[u8; 32]>::try_from(&body[..]).is_ok_and(|body| expected == body) {
                        return Ok(Progress::Confirmed);
                    }
                    return Err(ExchangeError::WrongCode);
                }
                _ => return Err(ExchangeError::Malformed),
            };
        }
        Ok(Progress::Waiting)
    }
}

impl Host {
    /// Waits for a guest, whose stream begins with [`number_of`] this code; `seed` is random and used once.
    #[must_use]
    pub fn new(code: &Code, parties: Parties, seed: &[u8; 32]) -> Self {
        let (spake, answer) = Spake2::<Ed25519Group>::start_b_with_rng(
            &Password::new(code.password()),
            &Identity::new(&parties.guest),
            &Identity::new(&parties.host),
            Seeded::new(seed),
        );
        Self {
            exchange: Exchange::new(code.number, parties),
            step: HostStep::Waiting(Spake(spake), answer),
        }
    }

    /// Bytes to send to the guest; also after an error, which the guest is told.
    pub fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        self.exchange.poll_transmit()
    }

    /// Takes bytes of the guest that follow the number.
    ///
    /// # Errors
    /// The exchange is over. After [`ExchangeError::WrongGuess`], the code must be discarded (FILE-33).
    pub fn handle_bytes(&mut self, bytes: &[u8]) -> Result<Progress, ExchangeError> {
        self.exchange.incoming.extend_from_slice(bytes);
        while let Some((kind, body)) = self.exchange.next_frame()? {
            self.step = match (std::mem::replace(&mut self.step, HostStep::Done), kind) {
                (HostStep::Waiting(spake, answer), START) => {
                    let confirmations = self.exchange.confirmations(spake, &body)?;
                    self.exchange.frame(ANSWER, &answer);
                    HostStep::Answered {
                        expected: confirmations.guest,
                        ours: confirmations.host,
                    }
                }
                (HostStep::Answered { expected, ours }, CONFIRM) => {
                    if <[u8; 32]>::try_from(&body[..]).is_ok_and(|body| expected == body) {
                        self.exchange.frame(CONFIRM, ours.as_bytes());
                        return Ok(Progress::Confirmed);
                    }
                    self.exchange.frame(REFUSED, &[]);
                    return Err(ExchangeError::WrongGuess);
                }
                _ => return Err(ExchangeError::Malformed),
            };
        }
        Ok(Progress::Waiting)
    }
}

/// The number of the code that a guest's stream asks for, from its first four bytes.
#[must_use]
pub fn number_of(first: [u8; NUMBER_BYTES]) -> u32 {
    u32::from_be_bytes(first)
}

/// What both roles have: frames, and what is confirmed.
#[derive(Debug)]
struct Exchange {
    number: u32,
    parties: Parties,
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
}

struct Confirmations {
    guest: blake3::Hash,
    host: blake3::Hash,
}

impl Exchange {
    fn new(number: u32, parties: Parties) -> Self {
        Self {
            number,
            parties,
            incoming: Vec::new(),
            outgoing: Vec::new(),
        }
    }

    fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        Some(std::mem::take(&mut self.outgoing)).filter(|bytes| !bytes.is_empty())
    }

    /// Appends type, length and body.
    fn frame(&mut self, kind: u8, body: &[u8]) {
        self.outgoing.extend([kind, body.len() as u8]);
        self.outgoing.extend_from_slice(body);
    }

    fn next_frame(&mut self) -> Result<Option<(u8, Vec<u8>)>, ExchangeError> {
        let [kind, length, rest @ ..] = &self.incoming[..] else {
            return Ok(None);
        };
        let length = usize::from(*length);
        if length > EXCHANGE_FRAME_BYTES_MAX {
            return Err(ExchangeError::Malformed);
        }
        let Some(body) = rest.get(..length) else {
            return Ok(None);
        };
        let frame = (*kind, body.to_vec());
        self.incoming.drain(..2 + length);
        Ok(Some(frame))
    }

    /// What each end shows to prove that it has the same key.
    fn confirmations(&self, spake: Spake, other: &[u8]) -> Result<Confirmations, ExchangeError> {
        let key = spake.0.finish(other).map_err(|_| ExchangeError::Malformed)?;
        let mut material = blake3::Hasher::new_derive_key("gramway files 1 confirmation of a code");
        material.update(&key);
        material.update(&self.parties.binding);
        material.update(&self.number.to_be_bytes());
        let key = *material.finalize().as_bytes();
        Ok(Confirmations {
            guest: blake3::keyed_hash(&key, b"guest"),
            host: blake3::keyed_hash(&key, b"host"),
        })
    }
}

/// The state of SPAKE2; shown without its secrets.
struct Spake(Spake2<Ed25519Group>);

impl std::fmt::Debug for Spake {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Spake")
    }
}

/// The randomness that SPAKE2 asks for, from a seed: BLAKE3's extendable output.
struct Seeded(blake3::OutputReader);

impl Seeded {
    fn new(seed: &[u8; 32]) -> Self {
        Self(
            blake3::Hasher::new_derive_key("gramway files 1 scalar of the code exchange")
                .update(seed)
                .finalize_xof(),
        )
    }
}

impl RngCore for Seeded {
    fn next_u32(&mut self) -> u32 {
        let mut bytes = [0; 4];
        self.0.fill(&mut bytes);
        u32::from_le_bytes(bytes)
    }

    fn next_u64(&mut self) -> u64 {
        let mut bytes = [0; 8];
        self.0.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    fn fill_bytes(&mut self, out: &mut [u8]) {
        self.0.fill(out);
    }

    fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), Error> {
        self.0.fill(out);
        Ok(())
    }
}

/// The output is that of a keyed hash whose key is secret.
impl CryptoRng for Seeded {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PARTIES: Parties = Parties {
        host: [1; 32],
        guest: [2; 32],
        binding: [3; 32],
    };

    fn code(text: &str) -> Code {
        text.parse().unwrap()
    }

    /// Runs an exchange in pieces of `step` bytes: what guest and host find.
    fn run(
        guest: &mut Guest,
        host: &mut Host,
        step: usize,
    ) -> (Result<Progress, ExchangeError>, Result<Progress, ExchangeError>) {
        let first = guest.poll_transmit().unwrap();
        let (number, start) = first.split_at(4);
        assert_eq!(number_of(number.try_into().unwrap()), 7341);
        let mut at_host = feed(start, step, |part| host.handle_bytes(part));
        let mut at_guest = Ok(Progress::Waiting);
        loop {
            let mut moved = false;
            if let Some(bytes) = host.poll_transmit() {
                moved = true;
                at_guest = feed(&bytes, step, |part| guest.handle_bytes(part));
            }
            if let Some(bytes) = guest.poll_transmit() {
                moved = true;
                at_host = feed(&bytes, step, |part| host.handle_bytes(part));
            }
            if !moved {
                return (at_guest, at_host);
            }
        }
    }

    fn feed<E>(
        bytes: &[u8],
        step: usize,
        mut take: impl FnMut(&[u8]) -> Result<Progress, E>,
    ) -> Result<Progress, E> {
        bytes
            .chunks(step)
            .try_fold(Progress::Waiting, |_, part| take(part))
    }

    fn exchange(
        guest_code: &str,
        host_code: &str,
        at_guest: Parties,
        at_host: Parties,
    ) -> (Result<Progress, ExchangeError>, Result<Progress, ExchangeError>) {
        run(
            &mut Guest::new(&code(guest_code), at_guest, &[7; 32]),
            &mut Host::new(&code(host_code), at_host, &[8; 32]),
            5,
        )
    }

    const WRONG: (Result<Progress, ExchangeError>, Result<Progress, ExchangeError>) =
        (Err(ExchangeError::WrongCode), Err(ExchangeError::WrongGuess));

    /// FILE-31.
    #[test]
    fn the_same_words_are_confirmed_at_both_ends() {
        let (guest, host) = exchange(
            "7341-maple-otter",
            "7341-maple-otter@example.org",
            PARTIES,
            PARTIES,
        );
        assert_eq!((guest, host), (Ok(Progress::Confirmed), Ok(Progress::Confirmed)));
    }

    /// FILE-33.
    #[test]
    fn other_words_are_a_wrong_guess() {
        assert_eq!(
            exchange("7341-maple-otter", "7341-otter-maple", PARTIES, PARTIES),
            WRONG
        );
        assert_eq!(
            exchange("7341-maple-otter", "7341-maple-zebra", PARTIES, PARTIES),
            WRONG
        );
    }

    /// FILE-32: whoever stands between has other keys, or another TLS session.
    #[test]
    fn the_same_words_with_another_key_or_session_are_a_wrong_guess() {
        for other in [
            Parties {
                host: [9; 32],
                ..PARTIES
            },
            Parties {
                guest: [9; 32],
                ..PARTIES
            },
            Parties {
                binding: [9; 32],
                ..PARTIES
            },
        ] {
            assert_eq!(
                exchange("7341-maple-otter", "7341-maple-otter", other, PARTIES),
                WRONG
            );
        }
    }

    /// FILE-33: the host proves nothing before the guest has.
    #[test]
    fn a_guest_that_does_not_confirm_learns_nothing_that_depends_on_the_words() {
        let code = code("7341-maple-otter");
        let mut host = Host::new(&code, PARTIES, &[8; 32]);
        let mut guest = Guest::new(&code, PARTIES, &[7; 32]);
        host.handle_bytes(&guest.poll_transmit().unwrap()[4..]).unwrap();
        let answer = host.poll_transmit().unwrap();
        assert_eq!((answer[0], usize::from(answer[1])), (ANSWER, answer.len() - 2));
        assert_eq!(host.poll_transmit(), None);
    }

    /// FILE-33: what is not 32 bytes is a wrong guess, and no way to try again.
    #[test]
    fn a_short_confirmation_is_a_wrong_guess_and_a_second_one_is_refused() {
        let code = code("7341-maple-otter");
        let mut host = Host::new(&code, PARTIES, &[8; 32]);
        let mut guest = Guest::new(&code, PARTIES, &[7; 32]);
        host.handle_bytes(&guest.poll_transmit().unwrap()[4..]).unwrap();
        guest.handle_bytes(&host.poll_transmit().unwrap()).unwrap();
        let right = guest.poll_transmit().unwrap();
        assert_eq!(host.handle_bytes(&[CONFIRM, 0]), Err(ExchangeError::WrongGuess));
        assert_eq!(host.poll_transmit(), Some(vec![REFUSED, 0]));
        assert_eq!(host.handle_bytes(&right), Err(ExchangeError::Malformed));
        assert_eq!(host.poll_transmit(), None);
    }

    /// FILE-34.
    #[test]
    fn frames_out_of_turn_and_points_off_the_curve_are_malformed() {
        let code = code("7341-maple-otter");
        for frame in [
            &[CONFIRM, 32][..],
            &[START, 65],
            &[START, 0],
            &[START, 3, 0x41, 1, 2],
            &[&[START, 33][..], &[0xff; 33]].concat(),
            &[9, 0],
        ] {
            let mut host = Host::new(&code, PARTIES, &[8; 32]);
            let bytes = [frame, &[0; 40]].concat();
            assert_eq!(
                host.handle_bytes(&bytes),
                Err(ExchangeError::Malformed),
                "{frame:?}"
            );
        }
        let mut guest = Guest::new(&code, PARTIES, &[7; 32]);
        assert_eq!(guest.handle_bytes(&[START, 0]), Err(ExchangeError::Malformed));
    }

    #[test]
    fn secrets_are_not_shown_by_debug() {
        let shown = format!("{:?}", Host::new(&code("7341-maple-otter"), PARTIES, &[8; 32]));
        assert!(!shown.contains("maple") && shown.contains("Spake"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        /// FILE-34: whatever comes confirms nothing.
        #[test]
        fn any_bytes_are_waited_on_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), step in 1_usize..50) {
            let code = code("7341-maple-otter");
            let mut host = Host::new(&code, PARTIES, &[8; 32]);
            let mut guest = Guest::new(&code, PARTIES, &[7; 32]);
            prop_assert_ne!(feed(&bytes, step, |part| host.handle_bytes(part)), Ok(Progress::Confirmed));
            prop_assert_ne!(feed(&bytes, step, |part| guest.handle_bytes(part)), Ok(Progress::Confirmed));
        }
    }
}
