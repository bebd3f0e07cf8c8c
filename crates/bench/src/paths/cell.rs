//! A cell of the matrix: rate, round trip, loss and queue of a link, written `RATExRTTxLOSSxQUEUE`, in Mbit/s,
//! milliseconds, per cent each way and bandwidth-delay products.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::emulator::LinkSettings;

/// Highest rate in Mbit/s. The emulator carries every packet by two system calls, and shares the machine.
const RATE_MBIT_MAX: f64 = 1_000.0;

/// Longest round trip in milliseconds: a geostationary satellite and back, twice.
const ROUND_TRIP_MS_MAX: f64 = 2_000.0;

/// Longest queue in bandwidth-delay products.
const QUEUE_PRODUCTS_MAX: f64 = 100.0;

/// A link, the same in both directions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cell {
    /// Megabits per second.
    pub(super) rate_mbit: f64,
    /// Milliseconds there and back.
    pub(super) round_trip_ms: f64,
    /// Per cent of the packets lost at random, each way.
    pub(super) loss_percent: f64,
    /// What the queue holds, in products of rate and round trip.
    pub(super) queue_products: f64,
}

impl Cell {
    /// A cell from its four numbers, in the order of its name.
    pub(super) const fn new(
        rate_mbit: f64,
        round_trip_ms: f64,
        loss_percent: f64,
        queue_products: f64,
    ) -> Self {
        Self {
            rate_mbit,
            round_trip_ms,
            loss_percent,
            queue_products,
        }
    }

    /// Bits per second.
    pub(super) fn rate_bits_per_second(&self) -> f64 {
        self.rate_mbit * 1e6
    }

    /// There and back on the empty link.
    pub(super) fn round_trip(&self) -> Duration {
        Duration::from_secs_f64(self.round_trip_ms / 1e3)
    }

    /// The emulator's settings, for each direction.
    pub(super) fn link(&self) -> LinkSettings {
        let product_bytes = self.rate_bits_per_second() * self.round_trip().as_secs_f64() / 8.0;
        LinkSettings {
            delay_us: (self.round_trip_ms * 500.0) as u64,
            loss: self.loss_percent / 100.0,
            rate_bits_per_second: Some(self.rate_bits_per_second() as u64),
            queue_bytes: Some((product_bytes * self.queue_products) as usize),
            ..LinkSettings::default()
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            rate_mbit,
            round_trip_ms,
            loss_percent,
            queue_products,
        } = self;
        write!(
            formatter,
            "{rate_mbit}x{round_trip_ms}x{loss_percent}x{queue_products}"
        )
    }
}

impl FromStr for Cell {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers: Result<Vec<f64>, _> = text.split('x').map(str::parse::<f64>).collect();
        let numbers = numbers
            .ok()
            .and_then(|numbers| <[f64; 4]>::try_from(numbers).ok());
        let [rate, round_trip, loss, queue] = numbers.ok_or_else(|| {
            format!("\"{text}\" is no cell; one is RATExRTTxLOSSxQUEUE in Mbit/s, ms, % and bandwidth-delay products, for instance 100x100x1x0.25")
        })?;
        let holds = |number: f64, name: &str, min: f64, max: f64| {
            let refused = || format!("{name} of the cell \"{text}\" must be from {min} to {max}");
            (min..=max).contains(&number).then_some(()).ok_or_else(refused)
        };
        holds(rate, "the rate", 1.0, RATE_MBIT_MAX)?;
        holds(round_trip, "the round trip", 1.0, ROUND_TRIP_MS_MAX)?;
        holds(loss, "the loss", 0.0, 100.0)?;
        holds(queue, "the queue", 0.01, QUEUE_PRODUCTS_MAX)?;
        Ok(Self::new(rate, round_trip, loss, queue))
    }
}

impl Serialize for Cell {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_read_as_it_is_written() {
        for text in ["100x100x0x1", "100x20x1x0.25", "20x250x0.1x1"] {
            assert_eq!(text.parse::<Cell>().unwrap().to_string(), text);
        }
        for (text, reason) in [
            ("100x100x1", "RATExRTTxLOSSxQUEUE"),
            ("100x100x1x1x1", "RATExRTTxLOSSxQUEUE"),
            ("axbxcxd", "RATExRTTxLOSSxQUEUE"),
            ("0x100x1x1", "the rate"),
            ("1x0x1x1", "the round trip"),
            ("1x1x101x1", "the loss"),
            ("1x1x1x0", "the queue"),
            ("NaNx1x1x1", "the rate"),
        ] {
            let error = text.parse::<Cell>().unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn a_link_has_half_the_round_trip_each_way_and_a_queue_in_bytes() {
        let link = Cell::new(100.0, 100.0, 5.0, 0.25).link();
        assert_eq!((link.delay_us, link.loss), (50_000, 0.05));
        assert_eq!(link.rate_bits_per_second, Some(100_000_000));
        assert_eq!(link.queue_bytes, Some(312_500));
    }
}
