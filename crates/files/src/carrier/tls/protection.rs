//! Protection of TLS 1.3 records (RFC 8446 section 5.2) with the keys of a handshake that is complete. rustls makes the
//! handshake and every new key; here records are sealed where their bytes lie, and opened to where they belong. rustls
//! copies each byte twice to seal it, and opens what has to be copied then.

use std::io;

use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use rustls::ConnectionTrafficSecrets;
use rustls::client::ClientConnectionData;
use rustls::kernel::KernelConnection;
use rustls::server::ServerConnectionData;

/// Bytes of a record's header (RFC 8446 section 5.1).
pub(super) const HEADER_BYTES: usize = 5;

/// Bytes of content that a record carries at most.
pub(super) const CONTENT_BYTES_MAX: usize = 1 << 14;

/// Bytes that a record has behind its header at most.
const PROTECTED_BYTES_MAX: usize = CONTENT_BYTES_MAX + 256;

/// Bytes of an authentication tag.
const TAG_BYTES: usize = 16;

/// Bytes behind the content of a record of ours: its type, and the tag.
pub(super) const TAIL_BYTES: usize = 1 + TAG_BYTES;

/// Records without content that are taken one after the other: new keys are rare, and nobody pads with nothing.
const EMPTY_RECORDS_MAX: u32 = 32;

/// Types of content (RFC 8446 section 5.1).
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const APPLICATION_DATA: u8 = 23;

/// That nothing follows: a warning, and its description (RFC 8446 section 6).
const CLOSE_NOTIFY: [u8; 2] = [1, 0];

/// A handshake message that the next record has a new key, and that none is asked for (RFC 8446 section 4.6.3).
const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 0];

/// The number of the next record of one direction, and its secrets.
pub(super) type Secrets = (u64, ConnectionTrafficSecrets);

/// A key of one direction.
struct Key {
    key: LessSafeKey,
    iv: [u8; 12],
    /// Of the next record.
    number: u64,
}

impl Key {
    fn new((number, secrets): Secrets) -> io::Result<Self> {
        let (algorithm, key, iv) = match &secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&AES_128_GCM, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (&AES_256_GCM, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (&CHACHA20_POLY1305, key, iv),
            _ => return Err(io::ErrorKind::Unsupported.into()),
        };
        let key =
            UnboundKey::new(algorithm, key.as_ref()).map_err(|_| invalid("a key has another length"))?;
        let iv = iv.as_ref().try_into();
        Ok(Self {
            key: LessSafeKey::new(key),
            iv: iv.map_err(|_| invalid("an IV has another length"))?,
            number,
        })
    }

    /// Of the next record (RFC 8446 section 5.3).
    fn nonce(&mut self) -> io::Result<Nonce> {
        let mut nonce = self.iv;
        for (byte, number) in nonce[4..].iter_mut().zip(self.number.to_be_bytes()) {
            *byte ^= number;
        }
        let next = self.number.checked_add(1);
        self.number = next.ok_or_else(|| invalid("no record's number is left"))?;
        Ok(Nonce::assume_unique_for_key(nonce))
    }
}

/// Seals what goes to the other end.
pub(super) struct Sealing {
    connection: KernelConnection<ClientConnectionData>,
    key: Key,
    /// Records that one key may seal.
    pub(super) records_max: u64,
}

/// What stands around the content of a sealed record.
#[derive(Clone, Copy)]
pub(super) struct Edges {
    pub(super) header: [u8; HEADER_BYTES],
    pub(super) tail: [u8; TAIL_BYTES],
}

impl Sealing {
    pub(super) fn new(
        connection: KernelConnection<ClientConnectionData>,
        secrets: Secrets,
    ) -> io::Result<Self> {
        let suite = connection.negotiated_cipher_suite().tls13();
        Ok(Self {
            connection,
            key: Key::new(secrets)?,
            records_max: suite.map_or(0, |suite| suite.common.confidentiality_limit),
        })
    }

    /// Where the key could not seal so many records more, they are sealed by a new one, which the other end learns by
    /// the bytes that are returned: they go before those.
    pub(super) fn make_room(&mut self, records: usize) -> io::Result<Vec<u8>> {
        // The last one of a key tells of the next.
        if self.key.number.saturating_add(records as u64) < self.records_max {
            return Ok(Vec::new());
        }
        let record = self.whole(HANDSHAKE, KEY_UPDATE)?;
        let secrets = self.connection.update_tx_secret().map_err(refused)?;
        self.key = Key::new(secrets)?;
        Ok(record)
    }

    /// Seals content of at most [`CONTENT_BYTES_MAX`] where it lies.
    pub(super) fn seal(&mut self, content: &mut [u8]) -> io::Result<Edges> {
        self.protect(APPLICATION_DATA, content)
    }

    /// A whole record that says that nothing follows.
    pub(super) fn close(&mut self) -> io::Result<Vec<u8>> {
        self.whole(ALERT, CLOSE_NOTIFY)
    }

    #[cfg(test)]
    pub(super) fn records_sealed(&self) -> u64 {
        self.key.number
    }

    fn whole<const LENGTH: usize>(&mut self, kind: u8, mut content: [u8; LENGTH]) -> io::Result<Vec<u8>> {
        let Edges { header, tail } = self.protect(kind, &mut content)?;
        Ok([&header[..], &content, &tail].concat())
    }

    fn protect(&mut self, kind: u8, content: &mut [u8]) -> io::Result<Edges> {
        let length = Some(content.len()).filter(|length| *length <= CONTENT_BYTES_MAX);
        let length = length.and_then(|length| u16::try_from(length + TAIL_BYTES).ok());
        let length = length.ok_or_else(|| invalid("a record is too long"))?;
        let [high, low] = length.to_be_bytes();
        let header = [APPLICATION_DATA, 3, 3, high, low];
        let mut tail = [0; TAIL_BYTES];
        let nonce = self.key.nonce()?;
        let key = &self.key.key;
        key.seal_in_place_scatter(nonce, Aad::from(header), content, &[kind], &mut tail)
            .map_err(|_| invalid("a record was not sealed"))?;
        Ok(Edges { header, tail })
    }
}

/// Opens what comes from the other end.
pub(super) struct Opening {
    connection: KernelConnection<ServerConnectionData>,
    key: Key,
    /// Records without content since the last one with some.
    empty: u32,
}

/// What a record brought.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Opened {
    /// So many bytes of content.
    Content(usize),
    /// Nothing follows.
    End,
}

impl Opening {
    pub(super) fn new(
        connection: KernelConnection<ServerConnectionData>,
        secrets: Secrets,
    ) -> io::Result<Self> {
        Ok(Self {
            connection,
            key: Key::new(secrets)?,
            empty: 0,
        })
    }

    /// Opens a record into `bytes`, of which there are [`Record::opened_bytes`].
    pub(super) fn open(&mut self, record: &Record<'_>, bytes: &mut [u8]) -> io::Result<Opened> {
        let nonce = self.key.nonce()?;
        let (sealed, tag) = record.protected.split_at(record.opened_bytes());
        let key = &self.key.key;
        key.open_separate_gather(nonce, Aad::from(record.header), sealed, tag, bytes)
            .map_err(|_| invalid("a record was changed on its way"))?;
        // Zeros may follow the type.
        let length = bytes.iter().rposition(|byte| *byte != 0);
        let length = length.ok_or_else(|| invalid("a record has no type"))?;
        // What pads it included (RFC 8446 section 5.4).
        if bytes.len() > CONTENT_BYTES_MAX + 1 {
            return Err(invalid("a record is too long"));
        }
        let (content, kind) = (&bytes[..length], bytes[length]);
        match kind {
            APPLICATION_DATA if length > 0 => {
                self.empty = 0;
                return Ok(Opened::Content(length));
            }
            APPLICATION_DATA => {}
            // How grave an alert is says nothing in this version.
            ALERT if matches!(content, [_, description] if *description == CLOSE_NOTIFY[1]) => {
                return Ok(Opened::End);
            }
            ALERT => return Err(io::ErrorKind::ConnectionAborted.into()),
            // Whether one of ours is asked for does not matter to an end that sends nothing.
            HANDSHAKE if matches!(content, [start @ .., 0 | 1] if *start == KEY_UPDATE[..4]) => {
                let secrets = self.connection.update_rx_secret().map_err(refused)?;
                self.key = Key::new(secrets)?;
            }
            _ => return Err(invalid("a record is of no known type")),
        }
        self.empty += 1;
        if self.empty > EMPTY_RECORDS_MAX {
            return Err(invalid("too many records bring nothing"));
        }
        Ok(Opened::Content(0))
    }
}

/// A whole record as it came.
#[derive(Debug)]
pub(super) struct Record<'a> {
    header: [u8; HEADER_BYTES],
    protected: &'a [u8],
}

impl<'a> Record<'a> {
    /// The record that these bytes begin with; `None` where its end has not come.
    pub(super) fn split(bytes: &'a [u8]) -> io::Result<Option<Self>> {
        let Some((header, rest)) = bytes.split_first_chunk() else {
            return Ok(None);
        };
        let [kind, _, _, high, low] = *header;
        if kind != APPLICATION_DATA {
            return Err(invalid("a record is not protected"));
        }
        let length = usize::from(u16::from_be_bytes([high, low]));
        if !(TAIL_BYTES..=PROTECTED_BYTES_MAX).contains(&length) {
            return Err(invalid("a record has an impossible length"));
        }
        Ok(rest.get(..length).map(|protected| Self {
            header: *header,
            protected,
        }))
    }

    /// Bytes of the whole record.
    pub(super) fn bytes(&self) -> usize {
        HEADER_BYTES + self.protected.len()
    }

    /// Bytes that opening it writes: its content, its type, and what pads it.
    pub(super) fn opened_bytes(&self) -> usize {
        self.protected.len() - TAG_BYTES
    }
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

pub(super) fn refused(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

#[cfg(test)]
mod tests {
    use super::super::tests::pair;
    use super::*;

    fn ends() -> (Sealing, Opening) {
        let (sender, receiver) = pair(2, 1);
        (sender.unwrap().sealing, receiver.unwrap().opening)
    }

    /// What the other end makes of a record of this type around these bytes.
    fn told(ends: &mut (Sealing, Opening), kind: u8, bytes: &[u8]) -> io::Result<(Opened, Vec<u8>)> {
        let mut content = bytes.to_vec();
        let Edges { header, tail } = ends.0.protect(kind, &mut content).unwrap();
        open(&mut ends.1, &[&header[..], &content, &tail].concat())
    }

    fn open(opening: &mut Opening, whole: &[u8]) -> io::Result<(Opened, Vec<u8>)> {
        let record = Record::split(whole).unwrap().unwrap();
        assert_eq!(record.bytes(), whole.len());
        let mut opened = vec![0; record.opened_bytes()];
        let what = opening.open(&record, &mut opened)?;
        Ok((what, opened))
    }

    #[test]
    fn what_pads_a_record_is_no_content() {
        let mut ends = ends();
        let padded = [&b"content"[..], &[APPLICATION_DATA, 0, 0]].concat();
        let (what, opened) = told(&mut ends, 0, &padded).unwrap();
        assert_eq!((what, &opened[..7]), (Opened::Content(7), &b"content"[..]));
        assert!(told(&mut ends, 0, &[0; 9]).is_err(), "it has no type");
    }

    #[test]
    fn new_keys_are_taken_whether_or_not_one_is_asked_for() {
        let mut ends = ends();
        for asks in [0, 1] {
            let update = [24, 0, 0, 1, asks];
            assert_eq!(told(&mut ends, HANDSHAKE, &update).unwrap().0, Opened::Content(0));
            ends.0.key = Key::new(ends.0.connection.update_tx_secret().unwrap()).unwrap();
            let (what, opened) = told(&mut ends, APPLICATION_DATA, b"behind").unwrap();
            assert_eq!((what, &opened[..6]), (Opened::Content(6), &b"behind"[..]));
        }
        for other in [&[24, 0, 0, 1, 2][..], &[24, 0, 0, 1, 0, 0], &[4, 0, 0, 1, 0], &[]] {
            assert!(told(&mut ends, HANDSHAKE, other).is_err(), "{other:?}");
        }
    }

    #[test]
    fn the_end_is_told_from_what_went_wrong() {
        let mut ends = ends();
        let close = ends.0.close().unwrap();
        assert_eq!(open(&mut ends.1, &close).unwrap().0, Opened::End);
        let wrong = told(&mut ends, ALERT, &[2, 20]).unwrap_err();
        assert_eq!(wrong.kind(), io::ErrorKind::ConnectionAborted);
        assert!(told(&mut ends, 24, b"heartbeat").is_err());
    }

    #[test]
    fn records_that_bring_nothing_are_taken_so_often_and_not_for_ever() {
        let mut ends = ends();
        for _ in 0..EMPTY_RECORDS_MAX {
            assert!(told(&mut ends, APPLICATION_DATA, b"").is_ok());
        }
        assert!(told(&mut ends, APPLICATION_DATA, b"something").is_ok());
        for _ in 0..EMPTY_RECORDS_MAX {
            assert!(told(&mut ends, APPLICATION_DATA, b"").is_ok());
        }
        assert!(told(&mut ends, APPLICATION_DATA, b"").is_err());
    }

    #[test]
    fn a_record_that_was_changed_left_out_or_repeated_is_refused() {
        let (mut sealing, mut opening) = ends();
        let mut seal = || {
            let mut content = *b"content";
            let Edges { header, tail } = sealing.seal(&mut content).unwrap();
            [&header[..], &content, &tail].concat()
        };
        let (mut first, second) = (seal(), seal());
        first[HEADER_BYTES + 3] ^= 1;
        assert!(open(&mut opening, &first).is_err());
        // The number of the first one is used up by it.
        assert!(open(&mut opening, &second).is_ok());
        assert!(open(&mut opening, &second).is_err());
        assert!(open(&mut opening, &seal()).is_err(), "one too early");
    }

    #[test]
    fn only_protected_records_of_possible_lengths_are_split_off() {
        let [high, low] = u16::try_from(PROTECTED_BYTES_MAX + 1).unwrap().to_be_bytes();
        for header in [
            [HANDSHAKE, 3, 3, 0, 40],
            [APPLICATION_DATA, 3, 3, 0, 16],
            [APPLICATION_DATA, 3, 3, high, low],
        ] {
            assert!(Record::split(&header).is_err());
        }
        let mut bytes = [0; 23];
        bytes[..HEADER_BYTES].copy_from_slice(&[APPLICATION_DATA, 3, 3, 0, 18]);
        assert_eq!(Record::split(&bytes).unwrap().unwrap().opened_bytes(), 2);
        for length in 0..23 {
            assert!(Record::split(&bytes[..length]).unwrap().is_none());
        }
    }

    #[test]
    fn no_record_is_longer_than_the_rules_allow() {
        let (mut sealing, _) = ends();
        assert!(sealing.seal(&mut vec![0; CONTENT_BYTES_MAX]).is_ok());
        assert!(sealing.seal(&mut vec![0; CONTENT_BYTES_MAX + 1]).is_err());
        let mut ends = ends();
        let mut padded = vec![0; CONTENT_BYTES_MAX];
        padded[7] = APPLICATION_DATA;
        assert_eq!(told(&mut ends, 0, &padded).unwrap().0, Opened::Content(7));
        // One zero more than there may be, behind what could be sealed here.
        let mut whole = vec![1; CONTENT_BYTES_MAX + 1];
        let header = [APPLICATION_DATA, 3, 3, 0x40, 0x12];
        let mut tail = [0; TAIL_BYTES];
        let (nonce, key) = (ends.0.key.nonce().unwrap(), &ends.0.key.key);
        key.seal_in_place_scatter(
            nonce,
            Aad::from(header),
            &mut whole,
            &[APPLICATION_DATA],
            &mut tail,
        )
        .unwrap();
        assert!(open(&mut ends.1, &[&header[..], &whole, &tail].concat()).is_err());
    }
}
