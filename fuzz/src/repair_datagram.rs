//! Source and parity datagrams from anybody, and our own encoder's in any order with any of them lost: memory stays
//! within its bound, and of our own flow nothing is delivered but what was sent, and nothing twice.

use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use repair::limits::DECODER_BYTES_MAX;
use repair::{Decoder, Encoder, Field, Plan, SOURCE_HEADER_BYTES, Taken};

use crate::input::Input;

/// Datagrams handled from one input, at most.
const DATAGRAMS: usize = 400;
/// Payloads of our own flow, at most.
const PAYLOADS: usize = 100;

/// One byte of loss; then for each payload of our own flow two bytes: what becomes of it, its length; then datagrams of
/// others: kind, length, bytes.
pub fn run(data: &[u8]) {
    static START: OnceLock<Instant> = OnceLock::new();
    let start = *START.get_or_init(Instant::now);
    let mut input = Input(data);
    let own = own_flow(&mut input, start);
    round_trip(&own);

    let mut field = Field::default();
    let mut decoder = Decoder::default();
    for _ in 0..DATAGRAMS {
        if input.is_empty() {
            break;
        }
        let (kind, length) = (input.byte(), input.byte());
        let bytes = input.take(usize::from(length));
        if kind & 1 == 0 {
            if let Ok(Taken::Payload(payload)) = decoder.source(&mut field, bytes) {
                assert_eq!(payload, &bytes[SOURCE_HEADER_BYTES..]);
            }
        } else {
            let _ = decoder.parity(&mut field, bytes);
        }
        while let Some(payload) = decoder.rebuilt() {
            assert!(payload.len() < 256);
        }
        assert!(decoder.memory() <= DECODER_BYTES_MAX);
        if kind & 0x80 != 0 {
            decoder.rest();
            assert_eq!(decoder.memory(), 0);
        }
    }
}

enum Datagram {
    Source(Vec<u8>),
    Parity(Vec<u8>),
}

/// What our own flow sends and the path leaves of it.
struct Own {
    payloads: Vec<Vec<u8>>,
    way: Vec<Datagram>,
}

fn own_flow(input: &mut Input<'_>, start: Instant) -> Own {
    let mut field = Field::default();
    let mut plan = Plan::default();
    plan.follow(f64::from(input.byte()) / 255.0);
    let mut encoder = Encoder::new(Duration::from_millis(40));
    let mut own = Own {
        payloads: Vec::new(),
        way: Vec::new(),
    };
    let mut now = start;
    for number in 0..PAYLOADS {
        if input.is_empty() {
            break;
        }
        let (fate, length) = (input.byte(), input.byte());
        let payload = [&[number as u8][..], &vec![fate; usize::from(length)]].concat();
        let header = encoder.push(now, &payload, SOURCE_HEADER_BYTES + payload.len(), 1_400, &plan);
        if fate & 1 == 0 {
            own.way.push(Datagram::Source([&header[..], &payload].concat()));
        }
        while let Some(parity) = encoder.parity(now, 0, &mut field) {
            if fate & 2 == 0 {
                own.way
                    .push(Datagram::Parity([&parity.header[..], parity.symbol].concat()));
            }
        }
        if fate & 4 != 0 && own.way.len() > 1 {
            let last = own.way.len() - 1;
            own.way.swap(last, last - 1);
        }
        if fate & 8 != 0 {
            encoder.rest();
        }
        own.payloads.push(payload);
        now += Duration::from_millis(u64::from(fate >> 4));
    }
    own
}

fn round_trip(own: &Own) {
    let mut field = Field::default();
    let mut decoder = Decoder::default();
    let mut arrived = BTreeSet::new();
    let mut take = |payload: &[u8]| {
        let number = usize::from(payload[0]);
        assert_eq!(payload, own.payloads[number]);
        assert!(arrived.insert(number), "{number} was delivered twice");
    };
    for datagram in &own.way {
        match datagram {
            Datagram::Source(bytes) => match decoder.source(&mut field, bytes).expect("our own is taken") {
                Taken::Payload(payload) => take(payload),
                Taken::Duplicate => panic!("nothing of ours is sent twice"),
            },
            Datagram::Parity(bytes) => decoder.parity(&mut field, bytes).expect("our own is taken"),
        }
        while let Some(payload) = decoder.rebuilt() {
            take(payload);
        }
    }
}

/// A flow with losses, one that is reordered and rests, and datagrams of others that contradict each other.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut lossy = vec![20];
    for number in 0..60 {
        lossy.extend([if number % 9 == 4 { 0x11 } else { 0x10 }, 50 + number]);
    }
    let mut reordered = vec![200];
    for number in 0..90_u8 {
        reordered.extend([(number % 5) << 1 | u8::from(number % 40 == 39) << 3, number]);
    }
    // A hundred payloads of our own, empty, before the others' datagrams.
    let mut hostile = vec![0; 1 + 2 * PAYLOADS];
    for number in 0..30_u8 {
        hostile.extend([0, 5, 0, 0, number * 2, 7, 7]);
        hostile.extend([1, 9, 0, 0, number * 2 + 1, 2 + number % 3, number, 0, 2, 1, 1]);
    }
    hostile.extend([1, 7, 0, 0, 70, 100, 1, 0, 0, 0x81, 7, 255, 255, 255, 128, 1, 9, 9]);
    vec![lossy, reordered, hostile]
}
