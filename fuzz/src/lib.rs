//! What the fuzz targets do, as ordinary functions, so that their starting inputs and every input that ever failed can
//! also be run without the engine.
//!
//! A target does more than not to panic: each compares what it got with a second way to the same result.

pub mod capsules;
pub mod coalesce;
pub mod http3_message;
pub mod icmp_quote;
pub mod input;
pub mod ip_packet;
pub mod packets;
pub mod repair_datagram;
pub mod split_fragment;
pub mod uds_farewell;
pub mod uds_frame;
pub mod uds_handshake;
pub mod vnet_segment;

/// One fuzz target.
pub struct Target {
    /// Name of the program, and of the directory of its inputs.
    pub name: &'static str,
    /// Runs one input.
    ///
    /// Panics where what is checked does not hold.
    pub run: fn(&[u8]),
    /// A few small inputs that reach far.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

macro_rules! targets {
    ($($name:ident),*) => {
        /// All targets.
        pub const TARGETS: &[Target] =
            &[$(Target { name: stringify!($name), run: $name::run, seeds: $name::seeds }),*];
    };
}

targets!(
    ip_packet,
    icmp_quote,
    vnet_segment,
    coalesce,
    capsules,
    http3_message,
    split_fragment,
    repair_datagram,
    uds_farewell,
    uds_frame,
    uds_handshake
);

#[cfg(test)]
mod tests {
    use super::TARGETS;

    #[test]
    fn every_target_takes_its_seeds_and_their_beginnings() {
        for target in TARGETS {
            let seeds = (target.seeds)();
            assert!(!seeds.is_empty(), "{} has no seeds", target.name);
            for seed in seeds {
                for end in (0..seed.len()).step_by(1 + seed.len() / 50) {
                    (target.run)(&seed[..end]);
                }
                (target.run)(&seed);
            }
        }
    }
}
