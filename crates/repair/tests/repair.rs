//! Encoder and decoder together: what is lost comes back, in time, within the budget; hostile input does nothing.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use repair::limits::{DECODER_BYTES_MAX, EXTRA_PERCENT_MAX, PACKET_OVERHEAD_BYTES, WINDOW_MAX};
use repair::{
    Decoder, Encoder, Field, LossMeter, PARITY_HEADER_BYTES, Plan, Refusal, SOURCE_HEADER_BYTES, Taken,
    parity_bytes,
};

const LATENCY: Duration = Duration::from_millis(40);

/// Bytes before the header in a DATAGRAM frame.
const PREFIX_BYTES: usize = 2;

/// Room of a QUIC packet for datagrams.
const ROOM: usize = 1_400;

/// The first instant of virtual time; nothing depends on which one it is.
fn start() -> Instant {
    // tidy-allow(pure): first instant of virtual time
    Instant::now()
}

fn plan(loss: f64) -> Plan {
    let mut plan = Plan::default();
    plan.follow(loss);
    plan
}

fn payload(number: usize, bytes: usize) -> Vec<u8> {
    let name = (number as u64).to_be_bytes();
    (0..bytes)
        .map(|at| name.get(at).copied().unwrap_or((at * 31 + number * 17) as u8))
        .collect()
}

#[derive(Clone)]
enum Datagram {
    Source(Vec<u8>),
    Parity(Vec<u8>),
}

/// A flow in one direction.
struct Flow {
    field: Field,
    encoder: Encoder,
    decoder: Decoder,
    plan: Plan,
    plain_bytes: usize,
    extra_bytes: usize,
    parity: usize,
}

impl Flow {
    fn new(loss: f64) -> Self {
        Self {
            field: Field::default(),
            encoder: Encoder::new(LATENCY),
            decoder: Decoder::default(),
            plan: plan(loss),
            plain_bytes: 0,
            extra_bytes: 0,
            parity: 0,
        }
    }

    /// Sends a payload; returns its datagram, and parity behind it.
    fn send(&mut self, now: Instant, payload: &[u8]) -> Vec<Datagram> {
        let bytes = PREFIX_BYTES + SOURCE_HEADER_BYTES + payload.len();
        let header = self.encoder.push(now, payload, bytes, ROOM, &self.plan);
        self.plain_bytes += PACKET_OVERHEAD_BYTES + PREFIX_BYTES + payload.len();
        self.extra_bytes += SOURCE_HEADER_BYTES;
        let mut out = vec![Datagram::Source([&header[..], payload].concat())];
        while let Some(parity) = self.encoder.parity(now, PREFIX_BYTES, &mut self.field) {
            self.parity += 1;
            self.extra_bytes +=
                PACKET_OVERHEAD_BYTES + PREFIX_BYTES + PARITY_HEADER_BYTES + parity.symbol.len();
            out.push(Datagram::Parity([&parity.header[..], parity.symbol].concat()));
        }
        out
    }

    /// Receives a datagram; returns what is delivered.
    fn receive(&mut self, datagram: &Datagram) -> Vec<Vec<u8>> {
        let mut delivered = Vec::new();
        match datagram {
            Datagram::Source(bytes) => {
                if let Taken::Payload(payload) = self.decoder.source(&mut self.field, bytes).unwrap() {
                    delivered.push(payload.to_vec());
                }
            }
            Datagram::Parity(bytes) => self.decoder.parity(&mut self.field, bytes).unwrap(),
        }
        while let Some(payload) = self.decoder.rebuilt() {
            delivered.push(payload.to_vec());
        }
        delivered
    }
}

/// Runs a flow of `per_second` over a path of 5 % loss; returns the part that is missing at the end.
fn residual(per_second: u32, count: usize, bytes: usize) -> (f64, Flow) {
    let mut flow = Flow::new(0.055);
    let mut random = StdRng::seed_from_u64(u64::from(per_second));
    let (mut arrived, mut now) = (BTreeSet::new(), start());
    let between = Duration::from_secs(1) / per_second;
    for number in 0..count {
        for datagram in flow.send(now, &payload(number, bytes)) {
            if random.random_bool(0.05) {
                continue;
            }
            for delivered in flow.receive(&datagram) {
                let name = u64::from_be_bytes(*delivered.first_chunk().unwrap()) as usize;
                assert_eq!(delivered, payload(name, bytes));
                assert!(arrived.insert(name), "{name} was delivered twice");
                // REPAIR-9, REPAIR-12: no later than the latency, in whole milliseconds.
                let late = between * (number - name) as u32;
                assert!(late < LATENCY + Duration::from_millis(1), "{late:?}");
            }
        }
        // REPAIR-10.
        assert!(flow.extra_bytes * 100 <= flow.plain_bytes * EXTRA_PERCENT_MAX);
        now += between;
    }
    (1.0 - arrived.len() as f64 / count as f64, flow)
}

#[test]
fn at_five_percent_of_loss_less_than_a_thousandth_stays_lost() {
    for (per_second, bytes) in [(100, 160), (100, 1_200), (1_000, 300), (3_000, 1_150)] {
        let (residual, flow) = residual(per_second, 200_000, bytes);
        let extra = flow.extra_bytes as f64 / flow.plain_bytes as f64;
        println!(
            "{per_second}/s of {bytes} bytes: residual {:.4} %, extra {:.1} %",
            residual * 100.0,
            extra * 100.0
        );
        assert!(residual <= 0.001, "{per_second}/s: {residual}");
    }
}

#[test]
fn a_fast_flow_needs_less_parity_than_a_slow_one() {
    let ratio = |per_second| {
        let (_, flow) = residual(per_second, 5_000, 1_000);
        flow.parity as f64 / 5_000.0
    };
    let (slow, fast) = (ratio(100), ratio(3_000));
    assert!(slow > 0.45 && fast < 0.18, "{slow} {fast}");
}

/// REPAIR-10: over every second, not only in the end.
#[test]
fn no_second_has_more_than_half_of_its_bytes_in_addition() {
    let mut flow = Flow::new(0.3);
    let mut random = StdRng::seed_from_u64(7);
    let mut now = start();
    for second in 0..50 {
        let (plain, extra) = (flow.plain_bytes, flow.extra_bytes);
        let rate = [10, 50, 1_000][second % 3];
        for number in 0..rate {
            flow.send(now, &payload(number, random.random_range(0..1_200)));
            now += Duration::from_secs(1) / rate as u32;
        }
        let saved = 2 * (PACKET_OVERHEAD_BYTES + PREFIX_BYTES + parity_bytes(1_200));
        let (plain, extra) = (flow.plain_bytes - plain, flow.extra_bytes - extra);
        assert!(
            extra <= plain * EXTRA_PERCENT_MAX / 100 + saved,
            "{extra} of {plain}"
        );
    }
}

#[test]
fn a_clean_path_gets_no_parity() {
    let mut flow = Flow::new(LossMeter::default().loss());
    let now = start();
    for number in 0..1_000 {
        assert_eq!(flow.send(now, &payload(number, 100)).len(), 1);
    }
}

#[test]
fn the_end_of_a_burst_is_covered_before_the_latency_is_over() {
    let mut flow = Flow::new(0.01);
    let mut now = start();
    for number in 0..40 {
        now += Duration::from_micros(100);
        flow.send(now, &payload(number, 500));
    }
    let due = flow.encoder.tail_due().unwrap();
    assert!(due > now && due < now + LATENCY);
    assert!(
        flow.encoder
            .tail(due - Duration::from_millis(1), PREFIX_BYTES, &mut flow.field)
            .is_none()
    );
    let parity = flow.encoder.tail(due, PREFIX_BYTES, &mut flow.field).unwrap();
    assert_eq!(parity.header[..4], [0, 0, 39, 40]);
    assert_eq!(flow.encoder.tail_due(), None);
}

/// REPAIR-9: what is older than the latency is not in the window, nor what is beyond its bound.
#[test]
fn the_window_holds_what_the_latency_and_its_bound_allow() {
    let mut flow = Flow::new(0.5);
    let mut now = start();
    let mut counts = Vec::new();
    for between in [10_000, 10] {
        let mut last = 0;
        for number in 0..300 {
            now += Duration::from_micros(between);
            for datagram in flow.send(now, &payload(number, 50)) {
                if let Datagram::Parity(bytes) = datagram {
                    last = usize::from(bytes[3]);
                }
            }
        }
        counts.push(last);
    }
    assert_eq!(counts, [5, WINDOW_MAX]);
}

#[test]
fn a_flow_that_rested_goes_on() {
    let mut flow = Flow::new(0.05);
    let mut now = start();
    for round in 0..5 {
        for number in 0..100 {
            now += Duration::from_millis(1);
            let datagrams = flow.send(now, &payload(number, 700));
            // Of every ten the third is lost.
            let lost = usize::from(number % 10 == 3);
            for datagram in &datagrams[lost..] {
                flow.receive(datagram);
            }
        }
        assert!(flow.decoder.memory() > 0, "{round}");
        flow.encoder.rest();
        flow.decoder.rest();
        assert_eq!(flow.decoder.memory(), 0);
        assert_eq!(flow.encoder.tail_due(), None);
    }
}

/// REPAIR-13: a peer that sends parity alone, or jumbo payloads, gets no more memory and work than anybody.
#[test]
fn memory_of_a_decoder_is_bounded() {
    let mut field = Field::default();
    let mut decoder = Decoder::default();
    let symbol = vec![1; 60_000];
    for number in 0..2_000_u32 {
        let [_, a, b, c] = (3 * number).to_be_bytes();
        let source = [&[a, b, c][..], &symbol[..usize::from(number as u16) * 29]].concat();
        decoder.source(&mut field, &source).unwrap();
        let parity = [&[a, b, c, 128, number as u8][..], &symbol].concat();
        let _ = decoder.parity(&mut field, &parity);
        while decoder.rebuilt().is_some() {}
        assert!(
            decoder.memory() <= DECODER_BYTES_MAX + 130_000,
            "{}",
            decoder.memory()
        );
    }
}

/// REPAIR-7.
#[test]
fn parity_shorter_than_its_payloads_is_refused() {
    let mut field = Field::default();
    let mut decoder = Decoder::default();
    decoder
        .source(&mut field, &[&[0, 0, 1][..], &[7; 200]].concat())
        .unwrap();
    let parity = [0, 0, 2, 2, 0, 1, 1];
    assert_eq!(decoder.parity(&mut field, &parity), Err(Refusal::Contradiction));
    assert_eq!(decoder.parity(&mut field, &parity[..4]), Err(Refusal::Header));
    assert_eq!(decoder.source(&mut field, &[0]), Err(Refusal::Header));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// REPAIR-5: whatever is lost, repeated and reordered: what is delivered is what was sent, and nothing is delivered
    /// twice. Of a window that has as much parity as losses, everything is.
    #[test]
    fn what_is_rebuilt_is_what_was_lost(
        seed in any::<u64>(), loss in 0.0..0.6_f64, swap in 0.0..0.5_f64, repeat in 0.0..0.3_f64, longest in 8..1_300_usize,
    ) {
        let mut flow = Flow::new(0.2);
        let mut random = StdRng::seed_from_u64(seed);
        let mut now = start();
        let mut sent = Vec::new();
        let mut way: Vec<Datagram> = Vec::new();
        for number in 0..120 {
            let size = random.random_range(8..=longest);
            sent.push(payload(number, size));
            for datagram in flow.send(now, &sent[number]) {
                if random.random_bool(repeat) {
                    way.push(datagram.clone());
                }
                if !random.random_bool(loss) {
                    way.push(datagram);
                }
            }
            now += Duration::from_micros(random.random_range(0..5_000));
        }
        for at in 1..way.len() {
            if random.random_bool(swap) {
                way.swap(at, at - 1);
            }
        }
        let mut arrived = BTreeSet::new();
        for datagram in &way {
            for delivered in flow.receive(datagram) {
                let name = u64::from_be_bytes(*delivered.first_chunk().unwrap()) as usize;
                prop_assert_eq!(&delivered, &sent[name]);
                prop_assert!(arrived.insert(name));
            }
        }
    }

    /// A single loss of each window comes back.
    #[test]
    fn one_loss_is_always_repaired(number in 0..50_usize, bytes in 8..1_300_usize) {
        let mut flow = Flow::new(0.1);
        let mut now = start();
        let mut arrived = 0;
        for at in 0..64 {
            now += Duration::from_micros(100);
            let datagrams = flow.send(now, &payload(at, bytes));
            for datagram in &datagrams[usize::from(at == number)..] {
                arrived += flow.receive(datagram).len();
            }
        }
        prop_assert_eq!(arrived, 64);
    }

    /// Anything from anybody.
    #[test]
    fn no_input_panics(datagrams in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..80)), 0..60)) {
        let mut field = Field::default();
        let mut decoder = Decoder::default();
        for (is_parity, bytes) in datagrams {
            if is_parity {
                let _ = decoder.parity(&mut field, &bytes);
            } else {
                let _ = decoder.source(&mut field, &bytes);
            }
            while decoder.rebuilt().is_some() {}
            prop_assert!(decoder.memory() <= DECODER_BYTES_MAX);
        }
    }
}
