//! Which carrier was better between two places, kept in the sender's state directory: a later transfer between them
//! need not measure first. A place is an address; both ends' together tell networks apart well enough, since what was
//! remembered wrongly is measured again once its rate has halved. A file that cannot be read or written costs a
//! measurement and nothing else.

use std::fs::{self, DirBuilder};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest::{SHA256, digest};
use peer::PeerId;

use crate::beside;
use crate::carrier::Carrier;
use crate::limits::{REMEMBERED_CHOICES_MAX, REMEMBERED_TIME_MAX};

/// Between which places: a hash, so that the file names nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Between([u8; KEY_BYTES]);

const KEY_BYTES: usize = 32;
/// Key, carrier, bytes a second, and seconds since 1970.
const RECORD_BYTES: usize = KEY_BYTES + 1 + 8 + 8;
const SUM_BYTES: usize = 32;
const MAGIC: &[u8; 8] = b"gwcarry1";

impl Between {
    /// This machine and a peer that is reached directly at `address`, or whoever is at that where the peer has its key
    /// for one transfer alone; `None` where the machine has no way there.
    pub(crate) fn new(peer: Option<PeerId>, address: SocketAddr) -> Option<Self> {
        let there = address.ip().to_canonical();
        let any: IpAddr = match there {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        // Nothing is sent: the system says from which address it would be.
        let socket = UdpSocket::bind((any, 0)).ok()?;
        socket.connect((there, address.port())).ok()?;
        let here = socket.local_addr().ok()?.ip().to_canonical();
        let peer = peer.map_or_else(|| "anybody".to_owned(), |peer| peer.to_string());
        let text = format!("{peer} {here} {there}");
        Some(Self(digest(&SHA256, text.as_bytes()).as_ref().try_into().ok()?))
    }
}

/// Held from reading the file to writing it: a process sends to several peers at once. Of two processes one may lose
/// what it measured.
static CHANGING: Mutex<()> = Mutex::new(());

/// The file with them.
#[derive(Debug)]
pub(crate) struct Remembered(PathBuf);

#[derive(Clone, Copy, Debug, PartialEq)]
struct Record {
    between: Between,
    carrier: Carrier,
    rate: u64,
    /// Since 1970.
    time: Duration,
}

impl Remembered {
    /// In this directory of the state, which is made where it is missing, for this user only.
    pub(crate) fn open(state: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(state)?;
        Ok(Self(state.join("carriers")))
    }

    /// The carrier that was better, and its bytes a second.
    pub(crate) fn choice(&self, between: Between) -> Option<(Carrier, f64)> {
        self.choice_at(between, now())
    }

    fn choice_at(&self, between: Between, now: Duration) -> Option<(Carrier, f64)> {
        let records = self.read();
        let record = records.iter().find(|record| record.between == between)?;
        // A clock that was set back makes it no younger.
        let age = now.checked_sub(record.time)?;
        (age < REMEMBERED_TIME_MAX).then_some((record.carrier, record.rate as f64))
    }

    /// Keeps a choice; without it, the next transfer measures again.
    pub(crate) fn keep(&self, between: Between, carrier: Carrier, rate: f64) {
        let _ = self.keep_at(between, carrier, rate, now());
    }

    /// Forgets a choice; where that fails, it is found out again that it is wrong.
    pub(crate) fn forget(&self, between: Between) {
        let _changing = CHANGING.lock().unwrap_or_else(PoisonError::into_inner);
        let mut records = self.read();
        records.retain(|record| record.between != between);
        let _ = beside::write(&self.0, &encode(&records));
    }

    fn keep_at(&self, between: Between, carrier: Carrier, rate: f64, time: Duration) -> io::Result<()> {
        let _changing = CHANGING.lock().unwrap_or_else(PoisonError::into_inner);
        let mut records = self.read();
        records.retain(|record| record.between != between);
        // The oldest are at the front.
        let surplus = (records.len() + 1).saturating_sub(REMEMBERED_CHOICES_MAX);
        records.drain(..surplus);
        records.push(Record {
            between,
            carrier,
            rate: rate as u64,
            time,
        });
        beside::write(&self.0, &encode(&records))
    }

    fn read(&self) -> Vec<Record> {
        fs::read(&self.0)
            .ok()
            .and_then(|bytes| parse(&bytes))
            .unwrap_or_default()
    }
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn encode(records: &[Record]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    for record in records {
        bytes.extend_from_slice(&record.between.0);
        bytes.push(record.carrier as u8);
        bytes.extend_from_slice(&record.rate.to_be_bytes());
        bytes.extend_from_slice(&record.time.as_secs().to_be_bytes());
    }
    let sum = digest(&SHA256, &bytes);
    bytes.extend_from_slice(sum.as_ref());
    bytes
}

/// `None` where it is damaged, or of another version.
fn parse(bytes: &[u8]) -> Option<Vec<Record>> {
    let (content, sum) = bytes.split_at_checked(bytes.len().checked_sub(SUM_BYTES)?)?;
    if digest(&SHA256, content).as_ref() != sum {
        return None;
    }
    let records = content.strip_prefix(MAGIC)?.chunks_exact(RECORD_BYTES);
    records.map(record).collect()
}

fn record(bytes: &[u8]) -> Option<Record> {
    let (between, rest) = bytes.split_first_chunk()?;
    let (carrier, rest) = rest.split_first()?;
    let (rate, time) = rest.split_first_chunk()?;
    Some(Record {
        between: Between(*between),
        carrier: match carrier {
            0 => Carrier::Quic,
            1 => Carrier::Tcp,
            _ => return None,
        },
        rate: u64::from_be_bytes(*rate),
        time: Duration::from_secs(u64::from_be_bytes(time.try_into().ok()?)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn between(number: u32) -> Between {
        let mut key = [0; KEY_BYTES];
        key[..4].copy_from_slice(&number.to_be_bytes());
        Between(key)
    }

    #[test]
    fn a_choice_is_kept_for_its_places_and_its_time() {
        let directory = tempfile::tempdir().unwrap();
        let remembered = Remembered::open(directory.path()).unwrap();
        let then = Duration::from_secs(1_000_000_000);
        assert_eq!(remembered.choice_at(between(1), then), None);
        remembered.keep_at(between(1), Carrier::Tcp, 5e8, then).unwrap();
        remembered.keep_at(between(2), Carrier::Tcp, 7e8, then).unwrap();
        remembered.keep_at(between(2), Carrier::Quic, 6e6, then).unwrap();
        let at = |number, time| remembered.choice_at(between(number), time);
        assert_eq!(at(1, then), Some((Carrier::Tcp, 5e8)));
        assert_eq!(at(2, then + REMEMBERED_TIME_MAX / 2), Some((Carrier::Quic, 6e6)));
        assert_eq!(at(3, then), None);
        remembered.forget(between(2));
        assert_eq!(at(2, then), None);
        assert_eq!(at(1, then + REMEMBERED_TIME_MAX), None);
        assert_eq!(at(1, then - Duration::from_secs(1)), None);
        let path = directory.path().join("carriers");
        let mut bytes = fs::read(&path).unwrap();
        bytes[MAGIC.len() + KEY_BYTES] ^= 1;
        fs::write(&path, bytes).unwrap();
        assert_eq!(at(1, then), None, "a damaged file is as good as none");
    }

    #[test]
    fn what_transfers_keep_at_once_is_all_kept() {
        let directory = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let remembered = Remembered::open(directory.path()).unwrap();
                scope.spawn(move || {
                    for number in 0..8 {
                        let between = between(8 * thread + number);
                        remembered
                            .keep_at(between, Carrier::Tcp, 1.0, Duration::ZERO)
                            .unwrap();
                    }
                });
            }
        });
        let remembered = Remembered::open(directory.path()).unwrap();
        assert_eq!(remembered.read().len(), 64);
        let names = fs::read_dir(directory.path()).unwrap().count();
        assert_eq!(names, 1, "nothing is left beside the file");
    }

    #[test]
    fn choices_are_bounded_and_the_oldest_are_forgotten() {
        let directory = tempfile::tempdir().unwrap();
        let remembered = Remembered::open(directory.path()).unwrap();
        let many = u32::try_from(REMEMBERED_CHOICES_MAX).unwrap() + 2;
        for number in 0..many {
            remembered
                .keep_at(between(number), Carrier::Tcp, 1.0, Duration::ZERO)
                .unwrap();
        }
        assert_eq!(remembered.read().len(), REMEMBERED_CHOICES_MAX);
        assert_eq!(remembered.choice_at(between(1), Duration::ZERO), None);
        assert!(remembered.choice_at(between(2), Duration::ZERO).is_some());
    }

    #[test]
    fn places_are_told_apart_by_peer_and_address() {
        let id = |seed| peer::SecretKey::from_bytes([seed; 32]).id();
        let new = |peer, address: &str| Between::new(peer, address.parse().unwrap()).unwrap();
        let of = |seed, address: &str| new(Some(id(seed)), address);
        assert_eq!(of(1, "127.0.0.1:5"), of(1, "[::ffff:127.0.0.1]:6"));
        assert_ne!(of(1, "127.0.0.1:5"), of(1, "127.0.0.2:5"));
        assert_ne!(of(1, "127.0.0.1:5"), of(2, "127.0.0.1:5"));
        // Whoever comes by a code has another key each time.
        assert_eq!(new(None, "127.0.0.1:5"), new(None, "127.0.0.1:6"));
        assert_ne!(new(None, "127.0.0.1:5"), new(None, "127.0.0.2:5"));
        assert_ne!(new(None, "127.0.0.1:5"), of(1, "127.0.0.1:5"));
    }
}
