//! A TUN device: IP packets from and to the kernel, many segments at a time where it can.
//!
//! Before each packet stands a `virtio_net_hdr` of ten bytes, little-endian. With offloads, one read may bring a
//! *super-packet*: one TCP or UDP packet of up to 65,535 bytes that stands for a row of packets of `gso_size` bytes of
//! payload, and whose checksum is to be completed. One write may hand over the same. The header is not interpreted
//! here: its creator is responsible for it, and the kernel refuses a wrong one
//! ([`TunError::OffloadRefused`]).
//!
//! The device has several queues, one for each thread that uses it. The kernel puts a flow's packets on the queue where
//! it last saw packets of that flow written. Everything vanishes with the last descriptor, also after a crash.

mod flood_limit;
mod overflow;

use std::fs::OpenOptions;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use rustix::net::netdevice::name_to_index;
use socket2::{Domain, Socket, Type};

use crate::interface::InterfaceName;
use crate::limits::{TUN_QUEUES_MAX, TUN_READ_BYTES_MAX, VNET_HEADER_BYTES};
use crate::sys::tun as sys;

pub use flood_limit::TunFloodLimit;
pub use overflow::TunOverflow;

use flood_limit::QueueLimit;

const DEVICE: &str = "/dev/net/tun";

/// The kernel puts a number in place of `%d`.
const NAME_PATTERN: &str = "gramway%d";

/// Where the header says what kind of super-packet follows; 0 is none (virtio 1.2, section 5.1.6).
const GSO_TYPE: usize = 1;

/// Which unfinished packets are exchanged with the kernel. All need `checksum`; by default everything is on, and what
/// the kernel lacks stays off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunOffloads {
    /// Packets whose TCP or UDP checksum is still to be completed.
    pub checksum: bool,
    /// TCP super-packets over IPv4.
    pub tso4: bool,
    /// TCP super-packets over IPv6.
    pub tso6: bool,
    /// TCP super-packets with the CWR flag, which belongs to their first segment only (RFC 3168); needs one of the two
    /// above.
    pub tso_ecn: bool,
    /// UDP super-packets over both; Linux 6.2.
    pub uso: bool,
}

impl Default for TunOffloads {
    fn default() -> Self {
        Self {
            checksum: true,
            tso4: true,
            tso6: true,
            tso_ecn: true,
            uso: true,
        }
    }
}

impl TunOffloads {
    /// Every packet is finished and goes alone.
    pub const NONE: Self = Self {
        checksum: false,
        tso4: false,
        tso6: false,
        tso_ecn: false,
        uso: false,
    };

    fn features(self) -> libc::c_uint {
        [
            (self.checksum, libc::TUN_F_CSUM),
            (self.tso4, libc::TUN_F_TSO4),
            (self.tso6, libc::TUN_F_TSO6),
            (self.tso_ecn, libc::TUN_F_TSO_ECN),
            (self.uso, libc::TUN_F_USO4 | libc::TUN_F_USO6),
        ]
        .into_iter()
        .filter_map(|(on, feature)| on.then_some(feature))
        .fold(0, |features, feature| features | feature)
    }

    /// The wanted offloads, without those that are useless alone; then fewer and fewer of them.
    fn steps(self) -> [Self; 4] {
        let tso = self.checksum && (self.tso4 || self.tso6);
        let whole = Self {
            tso4: self.checksum && self.tso4,
            tso6: self.checksum && self.tso6,
            tso_ecn: tso && self.tso_ecn,
            uso: self.checksum && self.uso,
            ..self
        };
        let without_uso = Self { uso: false, ..whole };
        let checksum_only = Self {
            checksum: self.checksum,
            ..Self::NONE
        };
        [whole, without_uso, checksum_only, Self::NONE]
    }
}

/// Why no TUN device could be made. The texts are for people.
#[derive(Debug, thiserror::Error)]
pub enum TunOpenError {
    /// CAP_NET_ADMIN is missing.
    #[error(
        "a TUN device needs the capability CAP_NET_ADMIN: run the program by sudo, or as a systemd service with \
         AmbientCapabilities=CAP_NET_ADMIN"
    )]
    NotPermitted,
    /// The driver cannot be reached.
    #[error(
        "{DEVICE} cannot be opened ({0}): load the driver with `sudo modprobe tun`, or start the container with \
         `--device {DEVICE} --cap-add NET_ADMIN`"
    )]
    NoDriver(#[source] io::Error),
    /// An interface of that name exists.
    #[error(
        "there is an interface {0} already, of another program or of another gramway (`ip -d link show {0}` tells more): \
         choose another name, or let gramway choose one with --tun alone"
    )]
    InUse(String),
    /// Not a name, or no queue, or too many of them.
    #[error("{0}")]
    BadParameter(String),
    /// The kernel's refusal of one step.
    #[error("the TUN device cannot be set up: {0} fails: {1}")]
    Refused(&'static str, #[source] io::Error),
}

/// Why a packet could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum TunError {
    /// The device was removed; its queues cannot be used any more.
    #[error("the TUN device was removed")]
    Gone,
    /// The interface is down; the packet is lost, and later ones may pass.
    #[error("the TUN device is down")]
    Down,
    /// The kernel does not take this super-packet or unfinished checksum: the caller writes finished segments. A
    /// malformed packet is refused in the same way, so offloads are disabled permanently only after its segments pass.
    #[error("the kernel does not take this super-packet")]
    OffloadRefused,
    /// Anything else, e.g. a packet that is not IP, or no memory.
    #[error("the TUN device fails: {0}")]
    Other(#[source] io::Error),
}

/// A TUN interface that lives as long as any of its queues. It is down and has no address at first.
#[derive(Debug)]
pub struct TunDevice {
    /// Name of the interface.
    pub name: String,
    /// Its index.
    pub index: u32,
    /// What the kernel granted of the offloads that were asked for.
    pub offloads: TunOffloads,
    /// One for each thread.
    pub queues: Vec<TunQueue>,
}

impl TunDevice {
    /// Makes the interface `name`, or `gramway0`, `gramway1`… where it is `None`, with 1 to [`TUN_QUEUES_MAX`] queues.
    ///
    /// ```no_run
    /// use packet_io::{TUN_READ_BYTES_MAX, TunDevice, TunOffloads};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut device = TunDevice::open(None, 2, TunOffloads::default())?;
    /// println!("{} with {:?}", device.name, device.offloads);
    /// let mut buffer = vec![0; TUN_READ_BYTES_MAX];
    /// while let Some(read) = device.queues[0].read(&mut buffer)? {
    ///     println!("{} bytes", read.packet(&buffer).len());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`TunOpenError`], which says what to do.
    pub fn open(name: Option<&str>, queues: usize, offloads: TunOffloads) -> Result<Self, TunOpenError> {
        if let Some(name) = name {
            name.parse::<InterfaceName>()
                .map_err(|error| TunOpenError::BadParameter(error.to_string()))?;
        }
        if !(1..=TUN_QUEUES_MAX).contains(&queues) {
            return Err(TunOpenError::BadParameter(format!(
                "a TUN device has 1 to {TUN_QUEUES_MAX} queues, not {queues}"
            )));
        }
        let flags = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR | libc::IFF_MULTI_QUEUE;
        let first = open_driver()?;
        // Else it would silently become a queue of somebody else's device.
        let name = sys::attach(
            first.as_fd(),
            name.unwrap_or(NAME_PATTERN),
            flags | libc::IFF_TUN_EXCL,
        )
        .map_err(|error| match error.raw_os_error() {
            Some(libc::EPERM) => TunOpenError::NotPermitted,
            Some(libc::EBUSY) => TunOpenError::InUse(name.unwrap_or(NAME_PATTERN).to_owned()),
            _ => TunOpenError::Refused("TUNSETIFF", error),
        })?;
        sys::set_header(first.as_fd(), VNET_HEADER_BYTES)
            .map_err(|error| TunOpenError::Refused("TUNSETVNETHDRSZ", error))?;
        let mut first = TunQueue::new(first);
        let offloads = first
            .set_offloads(offloads)
            .map_err(|error| TunOpenError::Refused("TUNSETOFFLOAD", error))?;
        let index = index_of(&name).map_err(|error| TunOpenError::Refused("SIOCGIFINDEX", error))?;
        let mut device = Self {
            name,
            index,
            offloads,
            queues: vec![first],
        };
        for _ in 1..queues {
            let file = open_driver()?;
            sys::attach(file.as_fd(), &device.name, flags)
                .map_err(|error| TunOpenError::Refused("TUNSETIFF for another queue", error))?;
            device.queues.push(TunQueue::new(file));
        }
        Ok(device)
    }

    /// As of [`TunQueue::limit_floods`], for all queues.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn limit_floods(&mut self, limit: &TunFloodLimit) -> io::Result<()> {
        TunQueue::limit_floods(&mut self.queues, limit)
    }
}

fn open_driver() -> Result<OwnedFd, TunOpenError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_NONBLOCK);
    let file = options.open(DEVICE).map_err(TunOpenError::NoDriver)?;
    Ok(file.into())
}

fn index_of(name: &str) -> io::Result<u32> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    Ok(name_to_index(&socket, name)?)
}

/// Counters of one queue since it exists. A super-packet counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TunStats {
    /// Packets read.
    pub reads: u64,
    /// Of these, super-packets.
    pub super_reads: u64,
    /// Of these, packets that came alone: each cost a system call.
    pub plain_reads: u64,
    /// Bytes of packets read, without headers of the device.
    pub bytes_read: u64,
    /// Packets written.
    pub writes: u64,
    /// Of these, super-packets.
    pub super_writes: u64,
    /// Bytes of packets written, without headers of the device.
    pub bytes_written: u64,
    /// Writes that the kernel refused because of the header; the caller may have written the segments instead.
    pub refused: u64,
    /// Reads and writes that failed otherwise.
    pub errors: u64,
}

/// What one read brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunRead {
    /// The header before the packet, not validated: it comes from the kernel, which passes on what others made.
    pub header: [u8; VNET_HEADER_BYTES],
    /// Bytes of the packet.
    pub len: usize,
}

impl TunRead {
    /// The packet in the buffer that was read into.
    #[must_use]
    pub fn packet<'a>(&self, buffer: &'a [u8]) -> &'a [u8] {
        &buffer[VNET_HEADER_BYTES..][..self.len]
    }

    /// The same, to be changed.
    #[must_use]
    pub fn packet_mut<'a>(&self, buffer: &'a mut [u8]) -> &'a mut [u8] {
        &mut buffer[VNET_HEADER_BYTES..][..self.len]
    }
}

/// One queue of a TUN device. Readable when a packet waits; writes do not block.
#[derive(Debug)]
pub struct TunQueue {
    file: OwnedFd,
    attached: bool,
    limit: Option<QueueLimit>,
    stats: TunStats,
}

impl TunQueue {
    fn new(file: OwnedFd) -> Self {
        Self {
            file,
            attached: true,
            limit: None,
            stats: TunStats::default(),
        }
    }

    /// Has the kernel limit the UDP super-packets that wait in each queue of a device. To be called with all of its
    /// queues, in the order in which they were made, before any is detached.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn limit_floods(queues: &mut [Self], limit: &TunFloodLimit) -> io::Result<()> {
        let Some(first) = queues.first() else {
            return Ok(());
        };
        sys::set_filter(first.file.as_fd(), limit.program())?;
        let readers = limit.readers(queues.len());
        for (queue, reader) in queues.iter_mut().zip(readers) {
            queue.limit = Some(reader);
        }
        Ok(())
    }

    /// Reads one packet into `buffer`, behind its header; `None` where none waits. To be repeated, within bounds, while
    /// the queue is readable: the kernel has no call that reads several.
    ///
    /// One plain buffer for both, because two would cost a `readv`: 485 ns against 298 on the machine of the
    /// benchmarks.
    ///
    /// # Errors
    /// [`TunError::Gone`], or [`TunError::Other`].
    ///
    /// # Panics
    /// Where `buffer` is shorter than [`TUN_READ_BYTES_MAX`], because the kernel would cut packets in silence.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<Option<TunRead>, TunError> {
        assert!(
            buffer.len() >= TUN_READ_BYTES_MAX,
            "a buffer of {} bytes does not hold every packet",
            buffer.len()
        );
        self.read_cut(buffer)
    }

    /// The same for those who want short packets only: of a packet that does not fit into `buffer`, only as much as
    /// fits is copied, and the rest is lost. Whether it was cut, its own length says.
    ///
    /// # Errors
    /// As [`TunQueue::read`]; [`TunError::Other`] where the buffer is shorter than the header, and the packet is lost.
    pub fn read_cut(&mut self, buffer: &mut [u8]) -> Result<Option<TunRead>, TunError> {
        let read = match rustix::io::read(&self.file, &mut *buffer) {
            Ok(read) => read,
            Err(rustix::io::Errno::AGAIN) => {
                if let Some(limit) = &self.limit {
                    limit.refill();
                }
                return Ok(None);
            }
            Err(rustix::io::Errno::INTR) => return Ok(None),
            Err(error) => return Err(self.failed(error.into(), false)),
        };
        let (Some(len), Some(header)) = (read.checked_sub(VNET_HEADER_BYTES), buffer.first_chunk()) else {
            return Err(self.failed(io::ErrorKind::UnexpectedEof.into(), false));
        };
        let header: [u8; VNET_HEADER_BYTES] = *header;
        self.stats.reads += 1;
        self.stats.bytes_read += len as u64;
        if header[GSO_TYPE] == 0 {
            self.stats.plain_reads += 1;
        } else {
            self.stats.super_reads += 1;
            if let Some(limit) = &self.limit {
                limit.handle_read(header[GSO_TYPE], &buffer[VNET_HEADER_BYTES..read]);
            }
        }
        Ok(Some(TunRead { header, len }))
    }

    /// Hands one packet or super-packet to the kernel.
    ///
    /// # Errors
    /// [`TunError`]; nothing was written.
    pub fn write(&mut self, header: &[u8; VNET_HEADER_BYTES], packet: &[u8]) -> Result<(), TunError> {
        let parts = [IoSlice::new(header), IoSlice::new(packet)];
        if let Err(error) = rustix::io::writev(&self.file, &parts) {
            return Err(self.failed(error.into(), *header != [0; VNET_HEADER_BYTES]));
        }
        self.stats.writes += 1;
        self.stats.super_writes += u64::from(header[GSO_TYPE] != 0);
        self.stats.bytes_written += packet.len() as u64;
        Ok(())
    }

    fn failed(&mut self, error: io::Error, unfinished: bool) -> TunError {
        if unfinished && error.raw_os_error() == Some(libc::EINVAL) {
            self.stats.refused += 1;
            return TunError::OffloadRefused;
        }
        self.stats.errors += 1;
        match error.raw_os_error() {
            Some(libc::EBADFD | libc::ENXIO | libc::ENODEV) => TunError::Gone,
            Some(libc::EIO) => TunError::Down,
            _ => TunError::Other(error),
        }
    }

    /// Says which unfinished packets all queues of the device are to read from now on, and tells which of them the
    /// kernel grants. What is written is not affected.
    ///
    /// # Errors
    /// The kernel's refusal even of finished packets, which means that the device is gone.
    pub fn set_offloads(&mut self, wanted: TunOffloads) -> io::Result<TunOffloads> {
        let mut refusal = io::Error::from(io::ErrorKind::InvalidInput);
        for offloads in wanted.steps() {
            match sys::set_offloads(self.file.as_fd(), offloads.features()) {
                Ok(()) => return Ok(offloads),
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => refusal = error,
                Err(error) => return Err(error),
            }
        }
        Err(refusal)
    }

    /// Takes the queue out of the device's, so that its flows move to the others; what waits in it is lost. Writing
    /// stays possible.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn detach(&mut self) -> io::Result<()> {
        if self.attached {
            self.switch(false)?;
        }
        Ok(())
    }

    /// Puts the queue back; flows come to it as the kernel spreads them.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn attach(&mut self) -> io::Result<()> {
        if !self.attached {
            self.switch(true)?;
        }
        Ok(())
    }

    fn switch(&mut self, attach: bool) -> io::Result<()> {
        let flag = if attach {
            libc::IFF_ATTACH_QUEUE
        } else {
            libc::IFF_DETACH_QUEUE
        };
        let change = || sys::set_queue(self.file.as_fd(), flag);
        match &self.limit {
            Some(limit) => limit.switch(attach, change)?,
            None => change()?,
        }
        self.attached = attach;
        Ok(())
    }

    /// Whether the kernel may put packets on this queue.
    #[must_use]
    pub fn is_attached(&self) -> bool {
        self.attached
    }

    /// What the queue has done since it exists.
    #[must_use]
    pub fn stats(&self) -> &TunStats {
        &self.stats
    }
}

/// A queue that another process made by [`TunDevice::open`], and has not detached.
impl From<OwnedFd> for TunQueue {
    fn from(file: OwnedFd) -> Self {
        Self::new(file)
    }
}

/// For another process; the queue is as it was made.
impl From<TunQueue> for OwnedFd {
    fn from(queue: TunQueue) -> Self {
        queue.file
    }
}

impl AsFd for TunQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offloads_are_given_up_from_the_newest_to_the_oldest() {
        let all = TunOffloads::default();
        let features = all.steps().map(TunOffloads::features);
        let tcp = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
        let udp = libc::TUN_F_USO4 | libc::TUN_F_USO6;
        assert_eq!(features, [tcp | udp, tcp, libc::TUN_F_CSUM, 0]);
    }

    #[test]
    fn offloads_that_need_others_are_not_asked_for_alone() {
        let without = |change: fn(&mut TunOffloads)| {
            let mut offloads = TunOffloads::default();
            change(&mut offloads);
            offloads.steps()[0]
        };
        assert_eq!(without(|offloads| offloads.checksum = false), TunOffloads::NONE);
        let udp_only = without(|offloads| (offloads.tso4, offloads.tso6) = (false, false));
        assert!(udp_only.uso && !udp_only.tso_ecn);
        assert!(without(|offloads| offloads.tso4 = false).tso_ecn);
    }
}
