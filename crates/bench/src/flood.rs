//! One run of our own generator and sink, each in its place.

use std::net::SocketAddr;
use std::time::Duration;

use testbed::place::Place;

use crate::children::Load;
use crate::generator::{GeneratorOptions, GeneratorReport};
use crate::sink::{SinkOptions, SinkReport};
use crate::{Error, Programs, hidden};

/// What is sent where.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flood {
    /// Where the generator sends: the sink itself, or the entrance of a tunnel.
    pub(crate) entrance: SocketAddr,
    /// Where the sink is.
    pub(crate) target: SocketAddr,
    /// Bytes per datagram.
    pub(crate) payload_bytes: usize,
    /// Flows, each with its own socket.
    pub(crate) flows: usize,
    /// Payload bits per second; `None` is as fast as possible.
    pub(crate) offered_bits_per_second: Option<u64>,
    /// How long.
    pub(crate) seconds: u32,
    /// Receive buffer of the sink, in bytes; `None` leaves the system's default.
    pub(crate) receive_buffer_bytes: Option<usize>,
}

/// What became of it.
#[derive(Clone, Debug)]
pub(crate) struct Flooded {
    /// By the generator.
    pub(crate) sent: GeneratorReport,
    /// By the sink.
    pub(crate) received: SinkReport,
}

impl Flood {
    /// Starts the sink in the second place, the generator in the first, and waits for both.
    ///
    /// # Errors
    /// When one does not start or does not report.
    pub(crate) fn run(&self, programs: &Programs, [from, to]: [&Place; 2]) -> Result<Flooded, Error> {
        let sink = SinkOptions {
            listen: self.target,
            echo: false,
            receive_buffer_bytes: self.receive_buffer_bytes,
        };
        let sink = to.wrap(&programs.load_with(hidden::SINK, &sink)?);
        let (sink, _) = Load::launch::<SocketAddr>(hidden::SINK, sink)?;
        let generator = GeneratorOptions {
            destination: self.entrance,
            payload_bytes: self.payload_bytes,
            flows: self.flows,
            offered_bits_per_second: self.offered_bits_per_second,
            seconds: f64::from(self.seconds),
        };
        let generator = from.wrap(&programs.load_with(hidden::GENERATE, &generator)?);
        let (generator, _) = Load::launch::<SocketAddr>(hidden::GENERATE, generator)?;
        Ok(Flooded {
            sent: generator.report(Duration::from_secs(u64::from(self.seconds)))?,
            received: sink.finish()?,
        })
    }
}

impl Flooded {
    /// Datagrams that did not arrive.
    pub(crate) fn missing(&self) -> u64 {
        self.sent.datagrams.saturating_sub(self.received.total.received)
    }

    /// Their share, 0 to 1.
    pub(crate) fn loss(&self) -> f64 {
        self.missing() as f64 / self.sent.datagrams.max(1) as f64
    }

    /// Payload bits per second that left the generator.
    pub(crate) fn sender_bits_per_second(&self) -> f64 {
        self.sent.bytes as f64 * 8.0 / self.sent.seconds.max(1e-9)
    }

    /// Payload bits per second that reached the sink.
    pub(crate) fn receiver_bits_per_second(&self) -> f64 {
        self.received.bytes as f64 * 8.0 / self.received.seconds.max(self.sent.seconds).max(1e-9)
    }
}
