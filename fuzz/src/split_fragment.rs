//! Fragments in any order from anybody: every one is accounted for exactly once, waiting ones stay within their bound,
//! and a message of our own splitter comes back whole between them.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use masque::split::{HEADER_BYTES, Joined, Reassembler, Splitter};

use crate::input::Input;

/// Fragments handled from one input, at most.
const FRAGMENTS: usize = 400;
/// The flow of our own message; those of the input are others.
const OUR_FLOW: u64 = 1000;

/// Two bytes of payload length, one of room, then instructions of six bytes: flow, message, index, last, length, time.
pub fn run(data: &[u8]) {
    static START: OnceLock<Instant> = OnceLock::new();
    let start = *START.get_or_init(Instant::now);
    let mut input = Input(data);
    let payload: Vec<u8> = (0..usize::from(input.u16()))
        .map(|index| (index * 31) as u8)
        .collect();
    let room = HEADER_BYTES + usize::from(input.byte()) * 8;
    let own = own_fragments(&payload, room);

    round_trip(&own, &payload, start, input.0);
    let mut reassembler = Reassembler::new();
    let mut account = Account::default();
    let mut now = start;
    for _ in 0..FRAGMENTS {
        if input.is_empty() {
            break;
        }
        let (flow, message, index, last, length, time) = (
            input.byte(),
            input.byte(),
            input.byte(),
            input.byte(),
            input.byte(),
            input.byte(),
        );
        let fragment = [
            &[0, 0, 0, message & 7, index, last][..],
            &vec![index; usize::from(length)],
        ]
        .concat();
        let cut = if time & 0x80 == 0 {
            fragment.len()
        } else {
            usize::from(length) % 6
        };
        account.handle(&mut reassembler, now, u64::from(flow & 3), &fragment[..cut]);
        now += Duration::from_millis(u64::from(time & 0x0f));
        if time & 0x40 != 0 {
            account.gone += reassembler.handle_timeout(now);
        }
        if time & 0x20 != 0 {
            account.gone += reassembler.forget(u64::from(flow & 3));
        }
        account.check(&reassembler);
    }
    account.gone += reassembler.handle_timeout(now + Duration::from_secs(3600));
    account.check(&reassembler);
    assert_eq!(reassembler.waiting(), 0);
    assert_eq!(reassembler.poll_timeout(), None);
}

fn own_fragments(payload: &[u8], room: usize) -> Vec<Vec<u8>> {
    let Some(fragments) = Splitter::new().fragments(payload.len(), room) else {
        return Vec::new();
    };
    fragments
        .map(|(header, range)| [&header[..], &payload[range]].concat())
        .inspect(|fragment| assert!(fragment.len() <= room))
        .collect()
}

/// Our own fragments, in the order that `picks` say, make the payload with the last of them.
fn round_trip(own: &[Vec<u8>], payload: &[u8], now: Instant, picks: &[u8]) {
    let mut rest: Vec<&Vec<u8>> = own.iter().collect();
    let mut picks = picks.iter().copied().chain(std::iter::repeat(0));
    let mut reassembler = Reassembler::new();
    while !rest.is_empty() {
        let pick = usize::from(picks.next().unwrap_or(0)) % rest.len();
        let fragment = rest.swap_remove(pick);
        let handled = reassembler
            .handle(now, OUR_FLOW, fragment)
            .expect("our own fragment is taken");
        match handled.joined {
            Joined::Complete {
                payload: joined,
                fragments,
            } => {
                assert!(rest.is_empty());
                assert_eq!((joined, fragments as usize), (payload, own.len()));
            }
            joined => assert!(!rest.is_empty() && joined == Joined::Waiting),
        }
    }
}

#[derive(Default)]
struct Account {
    handed_in: u32,
    delivered: u32,
    gone: u32,
}

impl Account {
    fn handle(&mut self, reassembler: &mut Reassembler, now: Instant, flow: u64, fragment: &[u8]) {
        self.handed_in += 1;
        match reassembler.handle(now, flow, fragment) {
            Err(_) => self.gone += 1,
            Ok(handled) => {
                self.gone += handled.evicted;
                match handled.joined {
                    Joined::Waiting => {}
                    Joined::Duplicate => self.gone += 1,
                    Joined::Complete { fragments, .. } => self.delivered += fragments,
                }
            }
        }
    }

    fn check(&self, reassembler: &Reassembler) {
        assert_eq!(self.handed_in, self.delivered + self.gone + reassembler.waiting());
    }
}

/// A payload in three pieces, and fragments that complete, repeat and contradict each other.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut completing = vec![0x07, 0xd0, 88];
    for index in 0..4 {
        completing.extend([1, 1, index, 3, 20, 1]);
    }
    let mut evicting = vec![0x01, 0x00, 10];
    for message in 0..40 {
        evicting.extend([message, message, 1, 2, 9, 0x01]);
    }
    let mut contradicting = vec![0, 0, 1];
    for (index, last, length, time) in [
        (0, 2, 9, 0),
        (1, 2, 8, 0),
        (0, 2, 9, 0),
        (2, 2, 0, 0),
        (3, 2, 1, 0),
        (2, 2, 4, 0xff),
    ] {
        contradicting.extend([0, 0, index, last, length, time]);
    }
    vec![completing, evicting, contradicting]
}
