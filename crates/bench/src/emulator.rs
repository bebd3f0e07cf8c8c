//! A link for IP packets in real time: two TUN devices in two network namespaces, and what [`sim::Link`] says
//! between them: delay, jitter, loss, reorder, duplicates, rate, queue.
//!
//! One thread reads both devices, hands packets to the model, and writes each at its time. The kernel leaves checksums
//! undone and says so in the packet's header, which travels with it, but segments everything itself, so that the model
//! meets packets as a cable does.
//! Asked in between, it tells what happened since it was asked last, so that each run over a link has its own numbers.

mod queue;

use std::io;
use std::num::NonZeroU64;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use packet_io::{Interest, Poller, TUN_READ_BYTES_MAX, TunDevice, TunError, TunOffloads, VNET_HEADER_BYTES};
use serde::{Deserialize, Serialize};
use sim::{Link, LinkConfig, LinkCounts, Packet};
use testbed::namespace::within;
use testbed::programs::run;

use self::queue::QueueDelays;
pub use self::queue::QueueReport;
use crate::error::During;
use crate::{Error, limits};

/// Packets read from one device before due ones are written.
const READS_PER_TURN: usize = 64;

/// Packets that a device keeps for the emulator: a scheduling gap of 10 ms at 10 Gbit/s.
const DEVICE_QUEUE_PACKETS: &str = "10000";

/// Nice value of the emulator: a link does not slow down because its users are busy.
const NICE: i32 = -15;

/// Two namespaces and the link between them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EmulatorOptions {
    /// Both ends.
    pub ends: [EmulatedEnd; 2],
    /// MTU of both devices in bytes.
    pub mtu_bytes: u16,
    /// What happens from the first end to the second, and back.
    pub links: [LinkSettings; 2],
    /// Seed of everything random.
    pub seed: u64,
}

/// A TUN device to make.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EmulatedEnd {
    /// Its namespace, as `ip netns` knows it.
    pub namespace: String,
    /// Its name.
    pub interface: String,
    /// Its addresses, with prefix length.
    pub addresses: Vec<String>,
}

/// One direction; what is not given is that of a perfect wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LinkSettings {
    /// One-way delay in microseconds.
    pub delay_us: u64,
    /// Random extra delay in microseconds, zero to this, that keeps the order.
    pub jitter_us: u64,
    /// Probability of loss, 0 to 1.
    pub loss: f64,
    /// Probability that a packet is sent twice, 0 to 1.
    pub duplicate: f64,
    /// Probability that a packet is held back so that others overtake it, 0 to 1.
    pub reorder: f64,
    /// Line rate in bits per second; none is unlimited and has no queue.
    pub rate_bits_per_second: Option<u64>,
    /// Bytes that may wait in front of the line; none is without bound.
    pub queue_bytes: Option<usize>,
}

/// What became of the packets, from the first end to the second, and back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EmulatorReport {
    /// Both directions.
    pub links: [LinkReport; 2],
}

/// One direction. From start to end, `sent + duplicated = delivered + lost + queue_full + in_flight`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkReport {
    /// Packets read from the sender's device.
    pub sent: u64,
    /// Copies that the link added.
    pub duplicated: u64,
    /// Packets that reached the other end.
    pub delivered: u64,
    /// Packets lost at random.
    pub lost: u64,
    /// Packets that found the queue full.
    pub queue_full: u64,
    /// Packets under way at the end of this time.
    pub in_flight: u64,
    /// Of those delivered, packets that the receiver's device refused.
    pub refused: u64,
    /// How long packets waited for the line, those included that found the queue full.
    pub queue: QueueReport,
}

/// What a user of a running emulator may ask of it, from another thread.
#[derive(Debug, Default)]
pub struct EmulatorControl {
    /// Ends the emulator.
    pub stop: AtomicBool,
    /// Asks for a report each time it grows.
    pub reports_wanted: AtomicU64,
}

/// A link that is ready to run.
pub struct Emulator {
    poller: Poller,
    devices: [TunDevice; 2],
    links: [Direction; 2],
    buffer: Vec<u8>,
}

/// Where packets come from, on their way to the other device.
struct Direction {
    link: Link<[u8; VNET_HEADER_BYTES]>,
    refused: u64,
    queue: QueueDelays,
    told: Told,
}

/// What the last report covered.
#[derive(Default)]
struct Told {
    counts: LinkCounts,
    refused: u64,
    queue: QueueDelays,
}

impl LinkSettings {
    fn config(self) -> LinkConfig {
        LinkConfig {
            delay: Duration::from_micros(self.delay_us),
            jitter: Duration::from_micros(self.jitter_us),
            loss: self.loss,
            duplicate: self.duplicate,
            reorder: self.reorder,
            rate_bits_per_second: self.rate_bits_per_second,
            queue_bytes: self.queue_bytes.unwrap_or(usize::MAX),
            ..LinkConfig::default()
        }
    }
}

impl Emulator {
    /// Makes both devices and brings them up; they vanish with the emulator. Needs root.
    ///
    /// # Errors
    /// When a namespace does not exist or a device can't be made.
    pub fn open(options: &EmulatorOptions) -> Result<Self, Error> {
        let poller = Poller::new().during(|| "watch the devices of a link".to_owned())?;
        let [left, right] = &options.ends;
        let devices = [open_device(left)?, open_device(right)?];
        for (end, device) in options.ends.iter().zip(&devices) {
            configure(end, options.mtu_bytes)?;
            poller
                .add(&device.queues[0], 0, Interest::READABLE)
                .during(|| format!("watch {}", end.interface))?;
        }
        let [there, back] = options.links;
        let link = |settings: LinkSettings, seed| Direction {
            link: Link::new(settings.config(), seed),
            refused: 0,
            queue: QueueDelays::default(),
            told: Told::default(),
        };
        Ok(Self {
            poller,
            devices,
            links: [
                link(there, options.seed),
                link(back, options.seed.wrapping_add(1)),
            ],
            buffer: vec![0; TUN_READ_BYTES_MAX],
        })
    }

    /// Carries packets until it is stopped. `tell` gets a report of the time since the one before whenever one is
    /// wanted; the returned one is of the whole time.
    ///
    /// # Errors
    /// When a device is gone, or `tell` fails.
    pub fn run(
        mut self,
        control: &EmulatorControl,
        mut tell: impl FnMut(&EmulatorReport) -> Result<(), Error>,
    ) -> Result<EmulatorReport, Error> {
        // Both make the link truer; without them it works.
        let _ = rustix::process::setpriority_process(None, NICE);
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let mut ready = Vec::new();
        let mut reports_told = 0;
        while !control.stop.load(Ordering::Relaxed) {
            if control.reports_wanted.load(Ordering::Relaxed) > reports_told {
                reports_told += 1;
                let links = self.links.each_mut().map(Direction::report_since_told);
                tell(&EmulatorReport { links })?;
            }
            let next = self
                .links
                .iter()
                .filter_map(|direction| direction.link.poll_timeout())
                .min();
            let wait = next.map_or(limits::STOP_CHECK, |at| {
                at.saturating_duration_since(Instant::now())
            });
            self.poller
                .wait(&mut ready, Some(wait.min(limits::STOP_CHECK)))
                .during(|| "wait for packets of a link".to_owned())?;
            for from in [0, 1] {
                let turn = self.take_in(from).and_then(|()| self.hand_out(from));
                turn.map_err(io::Error::other)
                    .during(|| "carry packets over a link".to_owned())?;
            }
        }
        Ok(EmulatorReport {
            links: self.links.map(|direction| direction.report(&Told::default())),
        })
    }

    fn take_in(&mut self, from: usize) -> Result<(), TunError> {
        for _ in 0..READS_PER_TURN {
            let Some(read) = self.devices[from].queues[0].read(&mut self.buffer)? else {
                break;
            };
            let packet = Packet {
                bytes: read.packet(&self.buffer).to_vec(),
                meta: read.header,
            };
            let (direction, now) = (&mut self.links[from], Instant::now());
            direction.queue.add(direction.link.queueing_delay(now));
            direction.link.send(now, packet);
        }
        Ok(())
    }

    fn hand_out(&mut self, from: usize) -> Result<(), TunError> {
        let now = Instant::now();
        while let Some(packet) = self.links[from].link.poll_delivery(now) {
            match self.devices[1 - from].queues[0].write(&packet.meta, &packet.bytes) {
                Ok(()) => {}
                Err(TunError::Gone) => return Err(TunError::Gone),
                Err(_) => self.links[from].refused += 1,
            }
        }
        Ok(())
    }
}

impl Direction {
    fn report(&self, before: &Told) -> LinkReport {
        let (now, then) = (self.link.counts(), before.counts);
        LinkReport {
            sent: now.sent - then.sent,
            duplicated: now.duplicated - then.duplicated,
            delivered: now.delivered - then.delivered,
            lost: now.lost - then.lost,
            queue_full: now.queue_full - then.queue_full,
            in_flight: self.link.in_flight() as u64,
            refused: self.refused - before.refused,
            queue: self.queue.since(&before.queue),
        }
    }

    fn report_since_told(&mut self) -> LinkReport {
        let report = self.report(&self.told);
        self.told = Told {
            counts: self.link.counts(),
            refused: self.refused,
            queue: self.queue.clone(),
        };
        report
    }
}

/// Opens a device on a thread inside its namespace; it stays there wherever it is used.
fn open_device(end: &EmulatedEnd) -> Result<TunDevice, Error> {
    // Unfinished checksums save the kernel work at both ends; segments have to be finished.
    let offloads = TunOffloads {
        checksum: true,
        ..TunOffloads::NONE
    };
    let open = || TunDevice::open(Some(&end.interface), 1, offloads).map_err(io::Error::other);
    let opened = within(&end.namespace, open)?;
    opened.during(|| {
        format!(
            "make the device {} in the namespace {}",
            end.interface, end.namespace
        )
    })
}

fn configure(end: &EmulatedEnd, mtu_bytes: u16) -> Result<(), Error> {
    let ip = |arguments: &[&str]| run(Command::new("ip").args(["-n", &end.namespace]).args(arguments));
    for address in &end.addresses {
        // Nobody else is there; the address is usable at once.
        let nodad: &[&str] = if address.contains(':') { &["nodad"] } else { &[] };
        ip(&[&["address", "add", address, "dev", &end.interface], nodad].concat())?;
    }
    let mtu = mtu_bytes.to_string();
    ip(&[
        "link",
        "set",
        "dev",
        &end.interface,
        "mtu",
        &mtu,
        "txqueuelen",
        DEVICE_QUEUE_PACKETS,
        "up",
    ])?;
    Ok(())
}
