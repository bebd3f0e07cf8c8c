//! The network of a case: a client's and a server's machine on one wire, a cable (veth) or an emulated link.

use std::net::Ipv4Addr;
#[cfg(feature = "rivals")]
use std::time::Duration;

use testbed::namespace::{End, Namespace, join};

use crate::children::Load;
use crate::emulator::{EmulatedEnd, EmulatorOptions, EmulatorReport, LinkSettings};
use crate::{Error, Programs, hidden};

/// The server's address on the wire.
pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 98, 0, 1);

/// The client's address on the wire.
#[cfg(feature = "rivals")]
pub(crate) const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 98, 0, 2);

/// The client's and the server's address on the wire with their prefix length.
const ADDRESSES: [&str; 2] = ["10.98.0.2/24", "10.98.0.1/24"];

/// Name of the wire at both ends.
const INTERFACE: &str = "wire0";

/// MTU of the wire in bytes.
const MTU_BYTES: u16 = 1_500;

/// Seed of the emulator; equal runs meet equal dice, as far as real time allows.
const SEED: u64 = 1;

/// Bytes that the wire has brought to a machine so far, headers of packets included.
#[cfg(feature = "rivals")]
pub(crate) fn received_bytes(machine: &Namespace) -> u64 {
    let devices = || std::fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    received_of(&machine.inside(devices), INTERFACE)
}

/// Of the kernel's list of devices, the first number behind the name.
#[cfg(feature = "rivals")]
fn received_of(devices: &str, name: &str) -> u64 {
    let mut lines = devices.lines().filter_map(|line| line.split_once(':'));
    let numbers = lines.find_map(|(device, numbers)| (device.trim() == name).then_some(numbers));
    let first = numbers.and_then(|numbers| numbers.split_ascii_whitespace().next());
    first.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Two machines and what is between them.
pub(crate) struct Network {
    emulator: Option<Load>,
    /// The client's machine.
    pub(crate) client: Namespace,
    /// The server's machine.
    pub(crate) server: Namespace,
}

impl Network {
    /// Builds it. The wire is a cable, or an emulated link with these settings each way.
    ///
    /// # Errors
    /// When a namespace or a device can't be made.
    pub(crate) fn build(programs: &Programs, link: Option<LinkSettings>) -> Result<Self, Error> {
        let (client, server) = (Namespace::create()?, Namespace::create()?);
        let mut emulator = None;
        if let Some(settings) = link {
            let end = |namespace: &Namespace, address: &str| EmulatedEnd {
                namespace: namespace.name().to_owned(),
                interface: INTERFACE.to_owned(),
                addresses: vec![address.to_owned()],
            };
            let options = EmulatorOptions {
                ends: [end(&client, ADDRESSES[0]), end(&server, ADDRESSES[1])],
                mtu_bytes: MTU_BYTES,
                links: [settings; 2],
                seed: SEED,
            };
            let command = programs.load_with(hidden::EMULATE, &options)?;
            let (process, ()) = Load::launch(hidden::EMULATE, command)?;
            emulator = Some(process);
        } else {
            let end = |namespace, addresses| End {
                namespace,
                interface: INTERFACE,
                addresses,
            };
            join(
                end(&client, &ADDRESSES[..1]),
                end(&server, &ADDRESSES[1..]),
                MTU_BYTES,
            )?;
        }
        Ok(Self {
            emulator,
            client,
            server,
        })
    }

    /// What the emulator counted since it was asked last; `None` for a cable.
    ///
    /// # Errors
    /// When the emulator has died.
    #[cfg(feature = "rivals")]
    pub(crate) fn report(&mut self) -> Result<Option<EmulatorReport>, Error> {
        let ask = |emulator: &mut Load| emulator.ask(Duration::ZERO);
        self.emulator.as_mut().map(ask).transpose()
    }

    /// Takes the wire away and gives what the emulator counted, where there was one.
    ///
    /// # Errors
    /// When the emulator has died.
    pub(crate) fn finish(self) -> Result<Option<EmulatorReport>, Error> {
        self.emulator.map(Load::finish).transpose()
    }
}

#[cfg(all(test, feature = "rivals"))]
mod tests {
    use super::*;

    #[test]
    fn what_a_device_has_received_is_found_by_its_name() {
        let devices = "Inter-|   Receive\n face |bytes    packets\n    lo:     100       1    0\n wire0: 2048       2    0\n";
        assert_eq!(
            (received_of(devices, "wire0"), received_of(devices, "lo")),
            (2_048, 100)
        );
        assert_eq!(received_of(devices, "wire1"), 0);
    }
}
