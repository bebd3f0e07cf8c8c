//! A link for IP packets in real time: two TUN devices in two network namespaces, and what [`sim::Link`] says
//! between them: delay, jitter, loss, reorder, duplicates, rate, queue.
//!
//! One thread reads both devices, hands packets to the model, and writes each at its time. The kernel leaves checksums
//! undone and says so in the packet's header, which travels with it, but segments everything itself, so that the model
//! meets packets as a cable does.

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use packet_io::{Interest, Poller, TUN_READ_BYTES_MAX, TunDevice, TunError, TunOffloads, VNET_HEADER_BYTES};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde::{Deserialize, Serialize};
use sim::{Link, LinkConfig, Packet};

use crate::error::During;
use crate::namespace::run;
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EmulatorReport {
    /// Both directions.
    pub links: [LinkReport; 2],
}

/// One direction: `sent + duplicated = delivered + lost + queue_full + in_flight`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Packets under way when the emulator ended.
    pub in_flight: u64,
    /// Of those delivered, packets that the receiver's device refused.
    pub refused: u64,
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

    /// Carries packets until `stop` is set.
    ///
    /// # Errors
    /// When a device is gone.
    pub fn run(mut self, stop: &AtomicBool) -> Result<EmulatorReport, Error> {
        // Both make the link truer; without them it works.
        let _ = rustix::process::setpriority_process(None, NICE);
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let mut ready = Vec::new();
        while !stop.load(Ordering::Relaxed) {
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
            links: self.links.map(|direction| direction.report()),
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
            self.links[from].link.send(Instant::now(), packet);
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
    fn report(&self) -> LinkReport {
        let counts = self.link.counts();
        LinkReport {
            sent: counts.sent,
            duplicated: counts.duplicated,
            delivered: counts.delivered,
            lost: counts.lost,
            queue_full: counts.queue_full,
            in_flight: self.link.in_flight() as u64,
            refused: self.refused,
        }
    }
}

/// Opens a device on a thread inside its namespace; it stays there wherever it is used.
fn open_device(end: &EmulatedEnd) -> Result<TunDevice, Error> {
    // Unfinished checksums save the kernel work at both ends; segments have to be finished.
    let offloads = TunOffloads {
        checksum: true,
        ..TunOffloads::NONE
    };
    let open = || -> io::Result<TunDevice> {
        let namespace = File::open(Path::new("/run/netns").join(&end.namespace))?;
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
        TunDevice::open(Some(&end.interface), 1, offloads).map_err(io::Error::other)
    };
    let opened = std::thread::scope(|scope| scope.spawn(open).join());
    let opened = opened.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    opened.during(|| {
        format!(
            "make the device {} in the namespace {}",
            end.interface, end.namespace
        )
    })
}

fn configure(end: &EmulatedEnd, mtu_bytes: u16) -> Result<(), Error> {
    let ip =
        |arguments: &[&str]| run(Command::new("ip").args(["-n", &end.namespace]).args(arguments)).map(drop);
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
    ])
}
