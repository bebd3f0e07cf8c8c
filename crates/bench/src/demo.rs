//! `gramway demo`: server, client and real load on loopback for about ten seconds, with a live line per load.
//!
//! Three loads: UDP at a fixed rate, UDP as fast as the chain delivers, TCP. "As fast as it delivers" means that the
//! generator keeps a bounded number of datagrams under way; a blind flood would only measure the flood.

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use testbed::port::free_address;
use testbed::wait::holds_within;

use crate::error::During;
use crate::generator::{GeneratorOptions, LiveSent, Window, generate};
use crate::sink::{LiveReceived, Sink, SinkOptions, SinkReport};
use crate::table::{count, gigabits, mebibytes, percent};
use crate::tcp_load::{TcpSink, TcpSource};
use crate::tunnel::{End, Tunnel, TunnelOptions};
use crate::{Error, Programs, limits};

/// Bytes per datagram: what most tunnels and games send at most.
const PAYLOAD_BYTES: usize = 1_150;

/// The fixed rate in bits per second.
const STEADY_RATE: u64 = 500_000_000;

/// How long each load runs.
const PHASE: Duration = Duration::from_millis(3_200);

/// How often the live line is drawn.
const TICK: Duration = Duration::from_millis(500);

/// Datagrams under way at full speed: what a few milliseconds carry, and less than any buffer on the way holds.
const WINDOW_DATAGRAMS: u64 = 2_000;

/// Columns that a redrawn line may take; a longer one would wrap and could not be redrawn.
const LINE_MAX: usize = 79;

/// What one load gave.
struct Phase {
    name: &'static str,
    bits_per_second: f64,
    bytes: u64,
    loss: Option<f64>,
    ends: [End; 2],
}

/// A moment of a load.
struct Progress {
    elapsed: f64,
    bytes: u64,
    datagrams: u64,
    loss: Option<f64>,
}

/// Where lines go, and whether they can be redrawn.
struct Screen<'a> {
    output: &'a mut dyn Write,
    is_terminal: bool,
}

/// Runs the demo and prints to `output`; on a terminal the line of the running load is redrawn in place.
///
/// # Errors
/// When the tunnel does not start or ends early, or no traffic passes.
pub fn run(programs: &Programs, output: &mut dyn Write, is_terminal: bool) -> Result<(), Error> {
    programs.check()?;
    let mut screen = Screen { output, is_terminal };
    let begin = Instant::now();
    let target = free_address()?;
    let listener = TcpListener::bind(target).during(|| format!("bind a TCP sink to {target}"))?;
    let tcp_sink = TcpSink::start(listener);
    screen.line("starting a server and a client on this machine…")?;
    let mut tunnel = Tunnel::start(programs, &TunnelOptions::default(), &[target])?;
    screen.line(&format!(
        "tunnel ready after {} ms; traffic enters at {}",
        begin.elapsed().as_millis(),
        tunnel.entrance()
    ))?;
    screen.line("cpu: seconds per gigabyte, client/server")?;
    let phases = [
        udp(
            &mut screen,
            &mut tunnel,
            "UDP 500 Mbit/s",
            target,
            Some(STEADY_RATE),
        )?,
        udp(&mut screen, &mut tunnel, "UDP full speed", target, None)?,
        tcp(&mut screen, &mut tunnel, "TCP one stream", &tcp_sink)?,
    ];
    if let Some(silent) = phases.iter().find(|phase| phase.bytes == 0) {
        let reason = format!("no traffic passed during {}", silent.name);
        return Err(Error::Child {
            program: "the tunnel".to_owned(),
            reason,
        });
    }
    screen.line(&summary(&phases, begin.elapsed()))
}

fn udp(
    screen: &mut Screen<'_>,
    tunnel: &mut Tunnel,
    name: &'static str,
    target: SocketAddr,
    rate: Option<u64>,
) -> Result<Phase, Error> {
    let receive_buffer_bytes = Some(limits::LOAD_BUFFER_BYTES);
    let sink = Sink::bind(&SinkOptions {
        listen: target,
        echo: false,
        receive_buffer_bytes,
    })?;
    let options = GeneratorOptions {
        destination: tunnel.entrance(),
        payload_bytes: PAYLOAD_BYTES,
        flows: 1,
        offered_bits_per_second: rate,
        seconds: PHASE.as_secs_f64(),
    };
    let (stop, received) = (AtomicBool::new(false), LiveReceived::default());
    let sent = LiveSent::default();
    let window = rate.is_none().then(|| Window::new(&received, WINDOW_DATAGRAMS));
    let before = tunnel.ends()?;
    thread::scope(|scope| {
        let receiver = scope.spawn(|| sink.run(&stop, &received));
        let generator = scope.spawn(|| generate(&options, &stop, &sent, window));
        let watched = watch(screen, tunnel, name, &before, || {
            let (datagrams, lost) = (
                received.datagrams.load(Ordering::Relaxed),
                received.lost.load(Ordering::Relaxed),
            );
            let loss = Some(lost as f64 / (datagrams + lost).max(1) as f64);
            (received.bytes.load(Ordering::Relaxed), datagrams, loss)
        });
        let generated = generator
            .join()
            .map_err(|_| Error::Setup("the generator panicked".to_owned()));
        stop.store(true, Ordering::Relaxed);
        let report: Result<SinkReport, Error> = receiver
            .join()
            .unwrap_or_else(|_| Err(Error::Setup("the sink panicked".to_owned())));
        watched?;
        let (generated, report, after) = (generated??, report?, tunnel.ends()?);
        let missing = generated.datagrams.saturating_sub(report.total.received);
        let loss = missing as f64 / generated.datagrams.max(1) as f64;
        let progress = Progress {
            elapsed: report.seconds.max(generated.seconds),
            bytes: report.bytes,
            datagrams: report.total.received,
            loss: Some(loss),
        };
        finish(screen, name, &progress, [&after, &before])
    })
}

fn tcp(
    screen: &mut Screen<'_>,
    tunnel: &mut Tunnel,
    name: &'static str,
    sink: &TcpSink,
) -> Result<Phase, Error> {
    let before = tunnel.ends()?;
    let source = TcpSource::start(tunnel.entrance())?;
    let start = Instant::now();
    watch(screen, tunnel, name, &before, || (sink.received(), 0, None))?;
    let elapsed = start.elapsed().as_secs_f64();
    let progress = Progress {
        elapsed,
        bytes: sink.received(),
        datagrams: 0,
        loss: None,
    };
    let written = source.finish()?;
    holds_within(limits::DRAIN_TIMEOUT, || sink.received() >= written);
    let after = tunnel.ends()?;
    finish(screen, name, &progress, [&after, &before])
}

/// Draws the line of a running load until its time is over.
fn watch(
    screen: &mut Screen<'_>,
    tunnel: &mut Tunnel,
    name: &str,
    before: &[End; 2],
    progress: impl Fn() -> (u64, u64, Option<f64>),
) -> Result<(), Error> {
    let start = Instant::now();
    while start.elapsed() < PHASE {
        thread::sleep(TICK.min(PHASE.saturating_sub(start.elapsed())));
        let ((bytes, datagrams, loss), elapsed) = (progress(), start.elapsed().as_secs_f64());
        let now = tunnel.ends()?;
        screen.redraw(&line(
            name,
            &Progress {
                elapsed,
                bytes,
                datagrams,
                loss,
            },
            [&now, before],
        ))?;
    }
    Ok(())
}

fn finish(
    screen: &mut Screen<'_>,
    name: &'static str,
    progress: &Progress,
    [after, before]: [&[End; 2]; 2],
) -> Result<Phase, Error> {
    screen.redraw(&line(name, progress, [after, before]))?;
    if screen.is_terminal {
        screen.line("")?;
    }
    let ends = [after[0].since(&before[0]), after[1].since(&before[1])];
    let bits_per_second = progress.bytes as f64 * 8.0 / progress.elapsed.max(1e-9);
    Ok(Phase {
        name,
        bits_per_second,
        bytes: progress.bytes,
        loss: progress.loss,
        ends,
    })
}

fn line(name: &str, progress: &Progress, [now, before]: [&[End; 2]; 2]) -> String {
    let gigabytes = (progress.bytes as f64 / 1e9).max(1e-9);
    let ends = [now[0].since(&before[0]), now[1].since(&before[1])];
    let cpu = ends
        .each_ref()
        .map(|end| format!("{:.2}", end.usage.cpu_seconds / gigabytes))
        .join("/");
    let drops: Vec<String> = ["client", "server"]
        .iter()
        .zip(&ends)
        .flat_map(|(side, end)| end.counters.drops().into_iter().map(move |drop| (side, drop)))
        .map(|(side, (reason, number))| format!("{side} {reason} {}", count(number)))
        .collect();
    let drops = if drops.is_empty() {
        "none".to_owned()
    } else {
        drops.join(", ")
    };
    let rate = gigabits(progress.bytes as f64 * 8.0 / progress.elapsed.max(1e-9));
    let udp = progress.loss.map_or_else(String::new, |loss| {
        let packets = count((progress.datagrams as f64 / progress.elapsed.max(1e-9)) as u64);
        format!("  loss {} %  {packets}/s", percent(loss))
    });
    format!("{name:<14}  {rate:>5} Gbit/s{udp}  cpu {cpu}  drops {drops}")
}

fn summary(phases: &[Phase], elapsed: Duration) -> String {
    let rates: Vec<String> = phases
        .iter()
        .map(|phase| {
            let loss = phase
                .loss
                .map_or_else(String::new, |loss| format!(" ({} % lost)", percent(loss)));
            format!("{} {} Gbit/s{loss}", phase.name, gigabits(phase.bits_per_second))
        })
        .collect();
    let peak = |end: usize| {
        phases
            .iter()
            .map(|phase| phase.ends[end].usage.peak_bytes)
            .max()
            .unwrap_or(0)
    };
    let gigabytes = phases.iter().map(|phase| phase.bytes).sum::<u64>() as f64 / 1e9;
    format!(
        "done: {gigabytes:.2} GB in {:.0} s: {}; memory at most: client {} MiB, server {} MiB",
        elapsed.as_secs_f64(),
        rates.join(", "),
        mebibytes(peak(0)),
        mebibytes(peak(1)),
    )
}

impl Screen<'_> {
    fn line(&mut self, text: &str) -> Result<(), Error> {
        writeln!(self.output, "{text}")
            .and_then(|()| self.output.flush())
            .during(|| "print the demo".to_owned())
    }

    /// Replaces the present line on a terminal; elsewhere prints a line.
    fn redraw(&mut self, text: &str) -> Result<(), Error> {
        if !self.is_terminal {
            return self.line(text);
        }
        let text: String = text.chars().take(LINE_MAX).collect();
        write!(self.output, "\r\x1b[2K{text}")
            .and_then(|()| self.output.flush())
            .during(|| "print the demo".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_live_line_names_rate_loss_and_drops_and_fits_a_terminal() {
        let progress = Progress {
            elapsed: 2.0,
            bytes: 250_000_000,
            datagrams: 200_000,
            loss: Some(0.001),
        };
        let ends = [End::default(), End::default()];
        let text = line("UDP full speed", &progress, [&ends, &ends]);
        assert_eq!(
            text,
            "UDP full speed   1.00 Gbit/s  loss 0.10 %  100.0k/s  cpu 0.00/0.00  drops none"
        );
        let mut drawn = Vec::new();
        let mut screen = Screen {
            output: &mut drawn,
            is_terminal: true,
        };
        screen.redraw(&"x".repeat(200)).unwrap();
        assert_eq!(drawn.iter().filter(|byte| **byte == b'x').count(), LINE_MAX);
    }
}
