//! The exchange by which both ends of a connection prove that they know the words of a code (`specs/files.md`, FILE-31
//! to FILE-34), on a stream of its own.

use std::thread;
use std::time::Instant;

use files_proto::code::{Code, ExchangeError, Guest, Host, Parties, Progress, number_of};
use peer::{Bytes, CloseReason, Peer, PeerId, ReceiveStream, SendStream};

use super::codes::{Codes, Turn};
use super::interrupt::Interrupt;
use crate::close_code::{ENDED, UNPROVED, is_busy};
use crate::limits::{
    PEER_GOODBYE_MAX, TRANSFER_PROOF_BYTES_MAX, TRANSFER_PROOF_TIME_MAX, TRANSFER_PROOF_WAIT_MAX,
    TRANSFER_START_TIME_MAX, TRANSFER_TURN,
};

/// What both ends export from their TLS session (FILE-32).
const LABEL: &str = "EXPORTER-gramway-files-code";

/// Why the other end has not proved that it knows a code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unproved {
    /// The words differ, or what came is no exchange.
    Exchange(ExchangeError),
    /// Nothing came in time, or less than an exchange.
    Silent,
    /// The connection was lost, for this reason; nothing is known of the code.
    Lost(String),
    /// The sender has too much to do at present, or somebody else tries the code.
    Busy,
    /// The other end has left.
    Ended,
    /// No code with this number is valid there, for this peer.
    NoCode,
    /// To the sender: the code's time is over, which the guest is told as [`Self::NoCode`].
    Expired,
    /// To the sender: the code was tried too often, and is not valid any more.
    TriedTooOften,
    /// The user wants an end.
    Interrupted,
    /// The system gives no random bytes.
    NoRandomness,
}

/// The receiver's end.
pub(super) fn as_guest(peer: &Peer, own: PeerId, code: &Code, interrupt: &Interrupt) -> Result<(), Unproved> {
    let until = Instant::now() + TRANSFER_PROOF_WAIT_MAX;
    let wait = Wait { peer, interrupt };
    let mut guest = Guest::new(code, parties(&wait, peer.id(), own)?, &random()?);
    let mut stream = Stream::new(&wait, wait.until(until, peer.open(0))?, until);
    loop {
        stream.send(guest.poll_transmit())?;
        let heard = stream.read(TRANSFER_PROOF_BYTES_MAX)?;
        if guest.handle_bytes(&heard).map_err(Unproved::Exchange)? == Progress::Confirmed {
            return Ok(());
        }
    }
}

/// The sender's end: the number of the code that the guest knows.
pub(super) fn as_host(
    peer: &Peer,
    own: PeerId,
    codes: &Codes,
    interrupt: &Interrupt,
) -> Result<u32, Unproved> {
    let until = Instant::now() + TRANSFER_PROOF_TIME_MAX;
    let wait = Wait { peer, interrupt };
    let mut stream = Stream::new(&wait, wait.until(until, peer.accept())?, until);
    let mut first = Vec::new();
    while first.len() < 4 {
        first.extend(stream.read(4 - first.len())?);
    }
    let number = number_of(first.try_into().expect("four bytes were read"));
    let code = loop {
        match codes.begin(number, peer.id()) {
            Turn::Now(code) => break code,
            Turn::Never => return Err(Unproved::NoCode),
            Turn::TooLate => return Err(Unproved::Expired),
            Turn::Later if interrupt.is_over() => return Err(Unproved::Interrupted),
            // A stranger may hold it, who knows the number alone: that must not keep out who knows the words.
            Turn::Later if Instant::now() < until => thread::sleep(TRANSFER_TURN),
            Turn::Later => return Err(Unproved::Silent),
        }
    };
    let proved = host(&wait, own, &code, codes, &mut stream);
    codes.end(number, peer.id(), proved).map(|()| number)
}

fn host(
    wait: &Wait<'_>,
    own: PeerId,
    code: &Code,
    codes: &Codes,
    stream: &mut Stream<'_>,
) -> Result<(), Unproved> {
    let mut host = Host::new(code, parties(wait, own, wait.peer.id())?, &random()?);
    // Its first frame comes with the number.
    stream.until = Instant::now() + TRANSFER_START_TIME_MAX;
    let mut has_answered = false;
    loop {
        let heard = stream.read(TRANSFER_PROOF_BYTES_MAX)?;
        let progress = host.handle_bytes(&heard);
        // Also what an error leaves, by which the guest learns of it.
        let bytes = host.poll_transmit();
        if bytes.is_some() && !has_answered {
            has_answered = true;
            stream.until = Instant::now() + TRANSFER_PROOF_TIME_MAX;
            codes.count_attempt(code.number())?;
        }
        let sent = stream.send(bytes);
        match progress {
            Ok(Progress::Waiting) => sent?,
            Ok(Progress::Confirmed) => return sent,
            Err(error) => {
                stream.finish();
                return Err(Unproved::Exchange(error));
            }
        }
    }
}

fn parties(wait: &Wait<'_>, host: PeerId, guest: PeerId) -> Result<Parties, Unproved> {
    Ok(Parties {
        host: *host.as_bytes(),
        guest: *guest.as_bytes(),
        binding: wait.peer.exporter(LABEL).ok_or_else(|| wait.why_failed())?,
    })
}

/// A secret that is used once.
pub(super) fn random() -> Result<[u8; 32], Unproved> {
    let mut bytes = [0; 32];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| Unproved::NoRandomness)?;
    Ok(bytes)
}

/// How an exchange waits for the other end.
struct Wait<'a> {
    peer: &'a Peer,
    interrupt: &'a Interrupt,
}

impl Wait<'_> {
    fn until<T, E>(&self, until: Instant, future: impl Future<Output = Result<T, E>>) -> Result<T, Unproved> {
        let left = until.saturating_duration_since(Instant::now());
        match self.interrupt.wait_for(left, future) {
            Some(Ok(value)) => Ok(value),
            Some(Err(_)) => Err(self.why_failed()),
            None if self.interrupt.is_over() => Err(Unproved::Interrupted),
            None => Err(Unproved::Silent),
        }
    }

    /// Why a stream has ended before its time: with the connection mostly, whose end says more.
    fn why_failed(&self) -> Unproved {
        match self.interrupt.wait_for(PEER_GOODBYE_MAX, self.peer.closed()) {
            Some(CloseReason::ApplicationClosed { code, .. }) if code == UNPROVED => Unproved::NoCode,
            Some(CloseReason::ApplicationClosed { code, .. }) if is_busy(code) => Unproved::Busy,
            Some(CloseReason::ApplicationClosed { code, .. }) if code == ENDED => Unproved::Ended,
            Some(reason) => Unproved::Lost(reason.to_string()),
            None if self.interrupt.is_over() => Unproved::Interrupted,
            None => Unproved::Silent,
        }
    }
}

/// Both directions, until the exchange has taken too long.
struct Stream<'a> {
    wait: &'a Wait<'a>,
    to: SendStream,
    from: ReceiveStream,
    until: Instant,
}

impl<'a> Stream<'a> {
    fn new(wait: &'a Wait<'a>, (to, from): (SendStream, ReceiveStream), until: Instant) -> Self {
        Self {
            wait,
            to,
            from,
            until,
        }
    }

    fn send(&mut self, bytes: Option<Vec<u8>>) -> Result<(), Unproved> {
        match bytes {
            Some(bytes) => self
                .wait
                .until(self.until, self.to.write_chunk(Bytes::from(bytes))),
            None => Ok(()),
        }
    }

    fn read(&mut self, length_max: usize) -> Result<Bytes, Unproved> {
        let read = self.wait.until(self.until, self.from.read_chunk(length_max))?;
        // A stream may end a moment before its connection.
        read.ok_or_else(|| self.wait.why_failed())
    }

    /// Waits until the other end has everything.
    fn finish(&mut self) {
        let _ = self.wait.until(self.until, self.to.finished());
    }
}

#[cfg(test)]
mod tests {
    use peer::blocking::wait;
    use peer::{Endpoint, SecretKey};

    use super::*;
    use crate::close_code::BUSY;

    fn endpoint() -> Endpoint {
        Endpoint::bind(SecretKey::generate().unwrap(), "127.0.0.1:0".parse().unwrap()).unwrap()
    }

    /// What both ends find when somebody types `typed`.
    fn meet(host: &Endpoint, codes: &Codes, guest: &Endpoint, typed: &str) -> [Result<(), Unproved>; 2] {
        let code = typed.parse().unwrap();
        thread::scope(|scope| {
            let at_host = scope.spawn(|| {
                let peer = wait(host.accept()).unwrap();
                let proved = as_host(&peer, host.id(), codes, &Interrupt::default()).map(drop);
                if proved.is_err() {
                    peer.close(UNPROVED, "");
                }
                // The connection lives until the guest has read its end.
                (proved, peer)
            });
            let peer = wait(guest.connect(host.id(), &[host.local_addr()])).unwrap();
            let at_guest = as_guest(&peer, guest.id(), &code, &Interrupt::default());
            [at_guest, at_host.join().unwrap().0]
        })
    }

    /// FILE-31, FILE-33.
    #[test]
    fn who_knows_the_words_is_let_in_and_may_come_again_and_nobody_else() {
        let (host, guest, other) = (endpoint(), endpoint(), endpoint());
        let code = "4711-maple-otter";
        let codes = Codes::new(vec![code.parse().unwrap()]);
        assert_eq!(
            meet(&host, &codes, &guest, "4712-maple-otter"),
            [Err(Unproved::NoCode), Err(Unproved::NoCode)]
        );
        assert_eq!(meet(&host, &codes, &guest, code), [Ok(()), Ok(())]);
        assert_eq!(meet(&host, &codes, &guest, code), [Ok(()), Ok(())]);
        assert_eq!(
            meet(&host, &codes, &other, code),
            [Err(Unproved::NoCode), Err(Unproved::NoCode)]
        );
    }

    /// FILE-33: strangers know the number, which the network reads.
    #[test]
    fn who_names_the_number_and_falls_silent_keeps_nobody_out() {
        let (host, guest, stranger) = (endpoint(), endpoint(), endpoint());
        let codes = Codes::new(vec!["4711-maple-otter".parse().unwrap()]);
        thread::scope(|scope| {
            let holding = wait(stranger.connect(host.id(), &[host.local_addr()])).unwrap();
            let (mut to_host, _from_host) = wait(holding.open(0)).unwrap();
            wait(to_host.write_chunk(Bytes::copy_from_slice(&4_711_u32.to_be_bytes()))).unwrap();
            let of_stranger = wait(host.accept()).unwrap();
            let (host, codes) = (&host, &codes);
            let silent = scope.spawn(move || as_host(&of_stranger, host.id(), codes, &Interrupt::default()));
            while codes.begin(4_711, host.id()) != Turn::Later {
                let _ = codes.end(4_711, host.id(), Err(Unproved::Silent));
                thread::yield_now();
            }
            assert_eq!(meet(host, codes, &guest, "4711-maple-otter"), [Ok(()), Ok(())]);
            assert_eq!(silent.join().unwrap(), Err(Unproved::Silent));
        });
    }

    /// FILE-33.
    #[test]
    fn a_wrong_guess_uses_the_code_up_and_both_ends_learn_of_it() {
        let (host, guest) = (endpoint(), endpoint());
        let codes = Codes::new(vec!["4711-maple-otter".parse().unwrap()]);
        assert_eq!(
            meet(&host, &codes, &guest, "4711-otter-maple"),
            [
                Err(Unproved::Exchange(ExchangeError::WrongCode)),
                Err(Unproved::Exchange(ExchangeError::WrongGuess))
            ]
        );
        assert_eq!(
            meet(&host, &codes, &guest, "4711-maple-otter"),
            [Err(Unproved::NoCode), Err(Unproved::NoCode)]
        );
    }

    /// FILE-37: what is not said of the code must not be taken for it.
    #[test]
    fn a_connection_that_is_lost_and_a_sender_that_is_busy_say_nothing_of_the_code() {
        let (host, guest) = (endpoint(), endpoint());
        let code: Code = "4711-maple-otter".parse().unwrap();
        for (closing, expected) in [
            (BUSY, Some(Unproved::Busy)),
            (UNPROVED, Some(Unproved::NoCode)),
            (ENDED, Some(Unproved::Ended)),
            // It was dropped.
            (0, None),
        ] {
            let found = thread::scope(|scope| {
                let closed = scope.spawn(|| wait(host.accept()).unwrap().close(closing, ""));
                let peer = wait(guest.connect(host.id(), &[host.local_addr()])).unwrap();
                closed.join().unwrap();
                as_guest(&peer, guest.id(), &code, &Interrupt::default())
            });
            match (expected, found) {
                (Some(expected), found) => assert_eq!(found, Err(expected)),
                (None, Err(Unproved::Lost(why))) => assert!(why.contains("closed by the peer"), "{why}"),
                (None, found) => panic!("{found:?}"),
            }
        }
    }

    #[test]
    fn a_user_who_wants_an_end_waits_for_no_proof() {
        let (host, guest, stranger) = (endpoint(), endpoint(), endpoint());
        let code: Code = "4711-maple-otter".parse().unwrap();
        let codes = Codes::new(vec![code.clone()]);
        let interrupt = Interrupt::default();
        // Nobody answers the guest, and the stranger says nothing.
        let to_host = wait(guest.connect(host.id(), &[host.local_addr()])).unwrap();
        let _unanswered = wait(host.accept()).unwrap();
        let _silent = wait(stranger.connect(host.id(), &[host.local_addr()])).unwrap();
        let of_stranger = wait(host.accept()).unwrap();
        thread::scope(|scope| {
            let at_guest = scope.spawn(|| as_guest(&to_host, guest.id(), &code, &interrupt));
            let at_host = scope.spawn(|| as_host(&of_stranger, host.id(), &codes, &interrupt));
            interrupt.end();
            assert_eq!(at_guest.join().unwrap(), Err(Unproved::Interrupted));
            assert_eq!(at_host.join().unwrap(), Err(Unproved::Interrupted));
        });
    }
}
