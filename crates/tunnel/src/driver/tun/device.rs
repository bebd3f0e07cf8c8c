//! Making the TUN device, for both roles, before the shards run.

use std::io;

use host::{DeviceSettings, HostChanges, HostError};
use packet_io::{TunFloodLimit, TunQueue};

use super::end::TunEnd;
use crate::handle::Failure;
use crate::limits;

/// A device that is down and has no address, and what its set-up needs.
pub(in crate::driver) struct Device {
    pub(in crate::driver) name: String,
    pub(in crate::driver) index: u32,
    /// One for each shard.
    pub(in crate::driver) ends: Vec<TunEnd>,
}

impl Device {
    /// Makes it, with one queue for each of `shards`; with `takes_own` the machine takes packets of its own addresses
    /// from it.
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
        changes: &HostChanges,
    ) -> Result<Self, Failure> {
        let settings = DeviceSettings {
            name,
            queues: shards,
            offloads,
            takes_own,
            queue_packets: limits::TUN_QUEUE_PACKETS,
        };
        let mut device = changes
            .open_device(settings)
            .map_err(|error| match error.kind() {
                io::ErrorKind::InvalidInput => Failure::Configuration(error.to_string()),
                _ => failure(&error),
            })?;
        if let Some(limit) = flood_limit {
            // Without it a flood fills the queue.
            let _ = TunQueue::limit_floods(&mut device.queues, limit);
        }
        let end = |queue| TunEnd::new(queue, &device.name);
        let ends = device.queues.into_iter().map(end).collect();
        Ok(Self {
            name: device.name,
            index: device.index,
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
