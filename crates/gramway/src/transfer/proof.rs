//! The exchange by which both ends of a connection prove that they know the words of a code (`specs/files.md`, FILE-31
//! to FILE-34), on a stream of its own.

use std::time::Instant;

use files_proto::code::{Code, ExchangeError, Guest, Host, Parties, Progress, number_of};
use peer::blocking::wait_for;
use peer::{Bytes, Peer, PeerId, ReceiveStream, SendStream};

use super::codes::Codes;
use crate::limits::{TRANSFER_PROOF_BYTES_MAX, TRANSFER_PROOF_TIME_MAX};

/// What both ends export from their TLS session (FILE-32).
const LABEL: &str = "EXPORTER-gramway-files-code";

/// Closes a connection whose other end has not proved anything.
pub(super) const UNPROVED: u32 = 1;

/// Why the other end has not proved that it knows a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unproved {
    /// The words differ, or what came is no exchange.
    Exchange(ExchangeError),
    /// The connection ended, or nothing came in time.
    Silent,
    /// No code with this number is valid here, for this peer.
    NoCode,
    /// The system gives no random bytes.
    NoRandomness,
}

/// The receiver's end.
pub(super) fn as_guest(peer: &Peer, own: PeerId, code: &Code) -> Result<(), Unproved> {
    let mut guest = Guest::new(code, parties(peer, peer.id(), own)?, &random()?);
    let until = Instant::now() + TRANSFER_PROOF_TIME_MAX;
    let mut stream = Stream::new(in_time(until, peer.open(0))?, until);
    loop {
        stream.send(guest.poll_transmit())?;
        let heard = stream.read(TRANSFER_PROOF_BYTES_MAX)?;
        if guest.handle_bytes(&heard).map_err(Unproved::Exchange)? == Progress::Confirmed {
            return Ok(());
        }
    }
}

/// The sender's end: the number of the code that the guest knows.
pub(super) fn as_host(peer: &Peer, own: PeerId, codes: &Codes) -> Result<u32, Unproved> {
    let until = Instant::now() + TRANSFER_PROOF_TIME_MAX;
    let mut stream = Stream::new(in_time(until, peer.accept())?, until);
    let mut first = Vec::new();
    while first.len() < 4 {
        first.extend(stream.read(4 - first.len())?);
    }
    let number = number_of(first.try_into().expect("four bytes were read"));
    let code = codes.begin(number, peer.id()).ok_or(Unproved::NoCode)?;
    let proved = host(peer, own, &code, &mut stream);
    codes.end(number, peer.id(), proved);
    proved.map(|()| number)
}

fn host(peer: &Peer, own: PeerId, code: &Code, stream: &mut Stream) -> Result<(), Unproved> {
    let mut host = Host::new(code, parties(peer, own, peer.id())?, &random()?);
    loop {
        let heard = stream.read(TRANSFER_PROOF_BYTES_MAX)?;
        let progress = host.handle_bytes(&heard);
        // Also what an error leaves, by which the guest learns of it.
        let sent = stream.send(host.poll_transmit());
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

fn parties(peer: &Peer, host: PeerId, guest: PeerId) -> Result<Parties, Unproved> {
    Ok(Parties {
        host: *host.as_bytes(),
        guest: *guest.as_bytes(),
        binding: peer.exporter(LABEL).ok_or(Unproved::Silent)?,
    })
}

/// A secret that is used once.
pub(super) fn random() -> Result<[u8; 32], Unproved> {
    let mut bytes = [0; 32];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| Unproved::NoRandomness)?;
    Ok(bytes)
}

fn in_time<T, E>(until: Instant, future: impl Future<Output = Result<T, E>>) -> Result<T, Unproved> {
    let left = until.saturating_duration_since(Instant::now());
    match wait_for(left, future) {
        Some(Ok(value)) => Ok(value),
        Some(Err(_)) | None => Err(Unproved::Silent),
    }
}

/// Both directions, until the exchange has taken too long.
struct Stream {
    to: SendStream,
    from: ReceiveStream,
    until: Instant,
}

impl Stream {
    fn new((to, from): (SendStream, ReceiveStream), until: Instant) -> Self {
        Self { to, from, until }
    }

    fn send(&mut self, bytes: Option<Vec<u8>>) -> Result<(), Unproved> {
        match bytes {
            Some(bytes) => in_time(self.until, self.to.write_chunk(Bytes::from(bytes))),
            None => Ok(()),
        }
    }

    fn read(&mut self, length_max: usize) -> Result<Bytes, Unproved> {
        let read = in_time(self.until, self.from.read_chunk(length_max))?;
        read.ok_or(Unproved::Silent)
    }

    /// Waits until the other end has everything.
    fn finish(&mut self) {
        let _ = in_time(self.until, self.to.finished());
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use peer::blocking::wait;
    use peer::{Endpoint, SecretKey};

    use super::*;

    fn endpoint() -> Endpoint {
        Endpoint::bind(SecretKey::generate().unwrap(), "127.0.0.1:0".parse().unwrap()).unwrap()
    }

    /// What both ends find when somebody types `typed`.
    fn meet(host: &Endpoint, codes: &Codes, guest: &Endpoint, typed: &str) -> [Result<(), Unproved>; 2] {
        let code = typed.parse().unwrap();
        thread::scope(|scope| {
            let at_host = scope.spawn(|| {
                let peer = wait(host.accept()).unwrap();
                let proved = as_host(&peer, host.id(), codes).map(drop);
                if proved.is_err() {
                    peer.close(UNPROVED, "");
                }
                // The connection lives until the guest has read its end.
                (proved, peer)
            });
            let peer = wait(guest.connect(host.id(), &[host.local_addr()])).unwrap();
            let at_guest = as_guest(&peer, guest.id(), &code);
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
            [Err(Unproved::Silent), Err(Unproved::NoCode)]
        );
        assert_eq!(meet(&host, &codes, &guest, code), [Ok(()); 2]);
        assert_eq!(meet(&host, &codes, &guest, code), [Ok(()); 2]);
        assert_eq!(
            meet(&host, &codes, &other, code),
            [Err(Unproved::Silent), Err(Unproved::NoCode)]
        );
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
            [Err(Unproved::Silent), Err(Unproved::NoCode)]
        );
    }
}
