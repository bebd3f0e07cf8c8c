//! Making the TUN device, for both roles, before the shards run.

use std::path::Path;

use host::{GuardianProgram, HostError, Network, Undo, can_administer};
use packet_io::{TunDevice, TunFloodLimit, TunOffloads, TunOpenError};

use super::end::TunEnd;
use crate::handle::Failure;
use crate::limits;

/// A device that is down and has no address, and what its set-up needs.
pub(in crate::driver) struct Device {
    pub(in crate::driver) name: String,
    pub(in crate::driver) index: u32,
    pub(in crate::driver) network: Network,
    pub(in crate::driver) undo: Undo,
    /// One for each shard.
    pub(in crate::driver) ends: Vec<TunEnd>,
}

impl Device {
    /// Makes it, with one queue for each of `shards`; with `takes_own` the machine takes packets of its own addresses
    /// from it. Changes to the host's network are listed in `directory`.
    ///
    /// # Errors
    /// [`Failure::Permission`] without the capability, [`Failure::Unavailable`] where the name is taken or there is no
    /// driver.
    pub(in crate::driver) fn open(
        name: Option<&str>,
        shards: usize,
        offloads: bool,
        flood_limit: Option<&TunFloodLimit>,
        takes_own: bool,
        directory: &Path,
    ) -> Result<Self, Failure> {
        can_administer().map_err(|error| Failure::Permission(error.to_string()))?;
        let offloads = if offloads {
            TunOffloads::default()
        } else {
            TunOffloads::NONE
        };
        let mut device = TunDevice::open(name, shards, offloads).map_err(|error| match error {
            TunOpenError::NotPermitted => Failure::Permission(error.to_string()),
            TunOpenError::BadParameter(_) => Failure::Configuration(error.to_string()),
            _ => Failure::Unavailable(error.to_string()),
        })?;
        let mut network = Network::open().map_err(|error| failure(&error))?;
        network
            .prepare_tun(&device.name, takes_own)
            .map_err(|error| failure(&error))?;
        // Without it the queue is as long as the kernel makes it.
        let _ = network.set_queue_length(device.index, limits::TUN_QUEUE_PACKETS);
        if let Some(limit) = flood_limit {
            // Without it a flood fills the queue.
            let _ = device.limit_floods(limit);
        }
        let end = |queue| TunEnd::new(queue, &device.name);
        let ends = device.queues.into_iter().map(end).collect();
        Ok(Self {
            name: device.name,
            index: device.index,
            network,
            undo: Undo::new(directory, GuardianProgram::this_program()),
            ends,
        })
    }
}

pub(in crate::driver) fn failure(error: &HostError) -> Failure {
    if error.is_permission() {
        Failure::Permission(error.to_string())
    } else {
        Failure::Unavailable(error.to_string())
    }
}
