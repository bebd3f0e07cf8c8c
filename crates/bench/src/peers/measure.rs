//! One run of one contestant: its two processes, and what they say.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use serde::Serialize;
use testbed::usage::usage;

use super::cases::{Case, Figure, Wire};
use super::contestant::Contestant;
use super::trial::counts::Snapshot;
use super::trial::{Contact, Direction, Load, Options, Role};
use crate::children::Load as Child;
use crate::emulator::LinkSettings;
use crate::median::percentile;
use crate::network::{CLIENT, Network, SERVER};
use crate::{Error, Programs};

/// Before a run counts: path MTU and congestion window grow.
const WARM_UP: Duration = Duration::from_millis(500);

/// The same on the long path: twenty of its round trips.
const LOSSY_WARM_UP: Duration = Duration::from_secs(2);

/// The long path: the cell 100x100x1x1 of `bench paths`.
const LOSSY: LinkSettings = LinkSettings {
    delay_us: 50_000,
    jitter_us: 0,
    loss: 0.01,
    duplicate: 0.0,
    reorder: 0.0,
    rate_bits_per_second: Some(100_000_000),
    queue_bytes: Some(1_250_000),
};

/// What one run gave.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Measurement {
    pub(super) figures: BTreeMap<Figure, f64>,
    /// Processors that client and server used.
    pub(super) cores: [f64; 2],
}

/// What starts runs.
pub(super) struct Rig<'a> {
    pub(super) programs: &'a Programs,
    /// The rivals' program.
    pub(super) rivals: Option<&'a Path>,
}

/// Both ends at one moment.
struct Moment {
    client: Snapshot,
    server: Snapshot,
    cpu_seconds: [f64; 2],
}

impl Rig<'_> {
    /// Who can be measured.
    pub(super) fn contestants(&self) -> impl Iterator<Item = Contestant> {
        let has_rivals = self.rivals.is_some();
        let all = Contestant::ALL.into_iter();
        all.filter(move |contestant| has_rivals || contestant.is_own())
    }

    /// One run.
    ///
    /// # Errors
    /// When an end does not start, or the client cannot go on, with its own words.
    pub(super) fn run(
        &self,
        contestant: Contestant,
        case: &Case,
        seconds: u32,
    ) -> Result<Measurement, Error> {
        let network = match case.wire {
            Wire::Loopback => None,
            Wire::Lossy => Some(Network::build(self.programs, Some(LOSSY))?),
        };
        let [server_ip, client_ip] = match case.wire {
            Wire::Loopback => [Ipv4Addr::LOCALHOST; 2],
            Wire::Lossy => [SERVER, CLIENT],
        };
        let command = |role, ip| {
            let options = Options {
                role,
                load: case.load,
                address: SocketAddr::new(IpAddr::V4(ip), 0),
                bounds: case.bounds(),
            };
            contestant.command(self.programs, self.rivals, &options)
        };
        let inside = |command: Command, is_server: bool| match &network {
            Some(network) if is_server => network.server.wrap(&command),
            Some(network) => network.client.wrap(&command),
            None => command,
        };
        let server = inside(command(Role::Server, server_ip)?, true);
        let (mut server, contact) = Child::launch::<Contact>(contestant.name(), server)?;
        let empty: Snapshot = server.ask(Duration::ZERO)?;
        let client = inside(command(Role::Client(contact), client_ip)?, false);
        let (mut client, ()) = Child::launch(contestant.name(), client)?;
        sleep(match case.wire {
            Wire::Loopback => WARM_UP,
            Wire::Lossy => LOSSY_WARM_UP,
        });
        let before = Moment::of(&mut client, &mut server)?;
        if !matches!(case.load, Load::Idle { .. }) {
            sleep(Duration::from_secs(seconds.into()));
        }
        let after = Moment::of(&mut client, &mut server)?;
        let of = |figure| (figure, value(figure, case.load, [&before, &after], &empty));
        Ok(Measurement {
            figures: case.demands.iter().map(|demand| of(demand.figure)).collect(),
            cores: after.cores_since(&before),
        })
    }
}

impl Moment {
    fn of(client: &mut Child, server: &mut Child) -> Result<Self, Error> {
        let (client_said, server_said) = (client.ask(Duration::ZERO)?, server.ask(Duration::ZERO)?);
        Ok(Self {
            client: client_said,
            server: server_said,
            cpu_seconds: [client.pid(), server.pid()].map(|pid| usage(pid).cpu_seconds),
        })
    }

    fn cores_since(&self, before: &Self) -> [f64; 2] {
        let seconds = (self.client.seconds - before.client.seconds).max(1e-9);
        [0, 1].map(|end| (self.cpu_seconds[end] - before.cpu_seconds[end]) / seconds)
    }
}

/// How much of what is counted came a second between two snapshots.
fn rate([before, after]: [&Snapshot; 2], count: impl Fn(&Snapshot) -> u64) -> f64 {
    (count(after) - count(before)) as f64 / (after.seconds - before.seconds).max(1e-9)
}

/// A figure of a run between two moments; `empty` is the server before it had a connection.
fn value(figure: Figure, load: Load, [before, after]: [&Moment; 2], empty: &Snapshot) -> f64 {
    let (client, server) = ([&before.client, &after.client], [&before.server, &after.server]);
    let round_trip = |fraction| {
        let nanoseconds = after.client.round_trips.iter().map(|time| *time as f64);
        percentile(&mut nanoseconds.collect::<Vec<_>>(), fraction) / 1e3
    };
    match figure {
        Figure::Messages => {
            let [at_client, at_server] = [client, server].map(|end| rate(end, |said| said.messages));
            match load {
                Load::Fan { direction, .. } => match direction {
                    Direction::In => at_server,
                    Direction::Out => at_client,
                    Direction::Both => at_client + at_server,
                },
                _ => at_server,
            }
        }
        Figure::Megabits => rate(server, |said| said.bytes) * 8.0 / 1e6,
        Figure::Median => round_trip(0.5),
        Figure::Tail => round_trip(0.99),
        Figure::Connections => rate(client, |said| said.connections),
        Figure::Memory => {
            let grown = after.server.resident_bytes.saturating_sub(empty.resident_bytes);
            grown as f64 / 1_024.0 / after.server.connections.max(1) as f64
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(seconds: f64, count: u64) -> Moment {
        let snapshot = Snapshot {
            seconds,
            messages: count,
            bytes: 1_000 * count,
            connections: count,
            round_trips: (1..=count).map(|number| number * 1_000).collect(),
            resident_bytes: 2_048 * count,
        };
        Moment {
            client: snapshot.clone(),
            server: snapshot,
            cpu_seconds: [seconds, 2.0 * seconds],
        }
    }

    #[test]
    fn figures_are_of_the_time_between_two_moments_at_whoever_receives() {
        let (before, after) = (moment(1.0, 100), moment(3.0, 200));
        let of = |figure, load| value(figure, load, [&before, &after], &Snapshot::default());
        let fan = |direction| Load::Fan {
            clients: 1,
            bytes: 1,
            direction,
        };
        assert_eq!(of(Figure::Messages, Load::Messages { bytes: 1 }), 50.0);
        assert_eq!(of(Figure::Messages, fan(Direction::Both)), 100.0);
        assert_eq!(of(Figure::Megabits, Load::Bulk), 0.4);
        assert_eq!(of(Figure::Connections, Load::Connections { parallel: 1 }), 50.0);
        assert_eq!(of(Figure::Memory, Load::Idle { connections: 200 }), 2.0);
        let round_trips = Load::RoundTrips {
            bytes: 64,
            beside_bulk: false,
        };
        assert_eq!(
            [Figure::Median, Figure::Tail].map(|figure| of(figure, round_trips)),
            [100.0, 198.0]
        );
        assert_eq!(after.cores_since(&before), [1.0, 2.0]);
    }
}
