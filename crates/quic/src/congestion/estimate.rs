//! The controller's estimates of a path, for `status`.

use std::time::Duration;

use serde::Serialize;

/// What the controller is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Doubling the rate each round trip until the path is full.
    #[default]
    Startup,
    /// Sending less than the path carries, so that the queue empties.
    Drain,
    /// Sending what the path carries.
    Cruise,
    /// Sending more for a round trip, to see whether the path carries more.
    ProbeUp,
    /// Sending less for a round trip, to empty the queue and to see which loss stays.
    ProbeDown,
    /// Sending half, to see the round trip without a queue.
    ProbeRoundTrip,
    /// Sending at a rate that the operator named.
    Fixed,
}

impl Phase {
    /// Every phase, in the order of their numbers.
    pub(crate) const ALL: [Self; 7] = [
        Self::Startup,
        Self::Drain,
        Self::Cruise,
        Self::ProbeUp,
        Self::ProbeDown,
        Self::ProbeRoundTrip,
        Self::Fixed,
    ];

    /// Its name as `status` shows it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Startup => "startup",
            Self::Drain => "drain",
            Self::Cruise => "cruise",
            Self::ProbeUp => "probe up",
            Self::ProbeDown => "probe down",
            Self::ProbeRoundTrip => "probe round trip",
            Self::Fixed => "fixed",
        }
    }
}

/// The controller's estimates of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathEstimate {
    /// What it is doing.
    pub phase: Phase,
    /// What the path delivers, in bytes of QUIC packets per second; 0 before the first measurement.
    pub bandwidth_bytes_per_second: u64,
    /// The round trip without a queue; zero before the first measurement.
    pub base_round_trip: Duration,
    /// How much longer the shortest round trip of the last round was.
    pub queueing_delay: Duration,
    /// Packets in a million that are lost however little is sent.
    pub random_loss_per_million: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_phase_is_its_place_in_the_list() {
        for (index, phase) in Phase::ALL.into_iter().enumerate() {
            assert_eq!(phase as usize, index);
        }
    }
}
