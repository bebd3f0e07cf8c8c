//! TCP packets from and to the network beside the kernel's own TCP: super-segments whole, in batches, without a change
//! of firewall, routes or addresses. Needs CAP_NET_RAW.
//!
//! A [`RawSocket`] receives from packet sockets with `PACKET_VNET_HDR`, before any firewall of this machine, and sends
//! below it; a super-segment passes as one, with the size of its segments. One that listens belongs to a group, over
//! which flows are spread by addresses and ports, errors about them included. A [`PortGuard`] keeps the port and has
//! the kernel say nothing about it. [`Link`]s lead to peers: that of an answer is known from what was received, the
//! first one is found by a [`NeighbourSearch`].

mod filter;
mod guard;
mod link;
mod neighbour;
mod packet;
mod version;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use crate::batch::{ReceiveBatch, ReceiveMeta};
use crate::buffers::BufferGrants;
use crate::datagram::{IoStats, Outgoing, SendOutcome};
use crate::interface::InterfaceName;
use crate::limits::{RAW_GROUP_MAX, RAW_HEAD_BYTES_MAX, SEND_UNITS_MAX, SUPER_SEGMENT_BYTES_MAX};
use crate::send::{Sender, Unit};
use crate::socket::SocketOptions;
use crate::sys::mmsg::SendArrays;
use crate::sys::options;
use filter::Flows;

pub use guard::PortGuard;
pub use link::Link;
pub use neighbour::NeighbourSearch;
pub use packet::{RawHead, RawPacket};

use packet::Destination;
use version::{Version, explain, form_group, open_packet_socket};

/// Makes what stands before payloads.
pub trait RawHeads {
    /// The head of the next part of message number `message`: `payload`, in segments of so many bytes, of which the
    /// last may have fewer. What is put into `framed`, which is empty, leaves instead of the payload.
    ///
    /// # Errors
    /// As the kernel would answer: the part is dropped by its reason, or blocks.
    fn make(
        &mut self,
        message: usize,
        payload: &[u8],
        segment_size: usize,
        framed: &mut Vec<u8>,
    ) -> io::Result<RawHead>;

    /// The head of that many bytes, framed where they are, was not sent. Those that were made last come back first.
    fn take_back(&mut self, message: usize, len: usize);
}

/// Writes the heads of leading units that have one, at least one, and where they go.
fn write_heads(
    units: &[Unit],
    messages: &[Outgoing<'_>],
    heads: &mut impl RawHeads,
    written: &mut [Written],
) -> io::Result<Vec<Destination>> {
    let mut named = Vec::with_capacity(units.len());
    for (unit, out) in units.iter().zip(written) {
        out.framed.clear();
        let segment_size = if unit.is_train() {
            unit.segment_size.into()
        } else {
            unit.len
        };
        match heads.make(unit.message, unit.of(messages), segment_size, &mut out.framed) {
            Ok(head) => named.push(head.write(&mut out.head)),
            Err(error) if named.is_empty() => return Err(error),
            Err(_) => break,
        }
    }
    Ok(named)
}

/// What leaves of a unit that is not the caller's.
struct Written {
    head: Vec<u8>,
    /// Instead of the payload, unless it is empty.
    framed: Vec<u8>,
}

impl Written {
    fn payload<'a>(&'a self, unit: &Unit, messages: &[Outgoing<'a>]) -> &'a [u8] {
        match &self.framed[..] {
            [] => unit.of(messages),
            framed => framed,
        }
    }
}

/// The sockets of one worker: one for each IP version that it receives.
pub struct RawSocket {
    versions: Vec<Version>,
    /// Watches both, where there are two.
    both: Option<OwnedFd>,
    /// Which version is asked next.
    turn: usize,
    /// The last send met a full socket.
    is_full: bool,
    grants: BufferGrants,
    sender: Sender,
    arrays: SendArrays,
    written: Vec<Written>,
    stats: IoStats,
}

impl RawSocket {
    /// One socket for each of `count` workers, which receive what comes to TCP port `local`, from anybody. The IPv6
    /// wildcard takes IPv4 as well. The port should be guarded before.
    ///
    /// # Errors
    /// The capability CAP_NET_RAW is missing, or the kernel's refusal of one step, with what was tried.
    pub fn listen(local: SocketAddr, count: usize, options: &SocketOptions) -> io::Result<Vec<Self>> {
        let versions: &[bool] = match local.ip() {
            IpAddr::V4(_) => &[true],
            IpAddr::V6(ip) if ip.is_unspecified() => &[true, false],
            IpAddr::V6(_) => &[false],
        };
        let index = options.interface.map_or(Ok(0), interface_index)?;
        Self::group(versions, count, index, options, |v4| Flows {
            v4,
            local: (!local.ip().is_unspecified()).then_some(local.ip()),
            port: Some(local.port()),
            remote: None,
        })
    }

    /// One socket for each of `count` workers, which receive what comes from `remote`, each the flows that
    /// [`RawSocket::place`] gives it, over the interface of `options` or any: the route may change. Other programs of
    /// this machine may talk to `remote` as well: their packets are seen, too.
    ///
    /// # Errors
    /// As of [`RawSocket::listen`].
    pub fn towards(remote: SocketAddr, count: usize, options: &SocketOptions) -> io::Result<Vec<Self>> {
        let index = options.interface.map_or(Ok(0), interface_index)?;
        Self::group(&[remote.is_ipv4()], count, index, options, |v4| Flows {
            v4,
            local: None,
            port: None,
            remote: Some(remote),
        })
    }

    /// Which of `count` sockets of a group receives the flow between two addresses.
    #[must_use]
    pub fn place(one: SocketAddr, other: SocketAddr, count: usize) -> usize {
        filter::place(one, other, count)
    }

    /// A socket that receives what comes over interface `index` from `remote` to `local`, whose port should be guarded.
    ///
    /// # Errors
    /// As of [`RawSocket::listen`].
    pub fn connect(
        local: SocketAddr,
        remote: SocketAddr,
        index: u32,
        options: &SocketOptions,
    ) -> io::Result<Self> {
        let mut group = Self::group(&[local.is_ipv4()], 1, index, options, |v4| Flows {
            v4,
            local: Some(local.ip()),
            port: Some(local.port()),
            remote: Some(remote),
        })?;
        Ok(group.remove(0))
    }

    fn group(
        versions: &[bool],
        count: usize,
        index: u32,
        options: &SocketOptions,
        flows: impl Fn(bool) -> Flows,
    ) -> io::Result<Vec<Self>> {
        if !(1..=RAW_GROUP_MAX).contains(&count) {
            let text = format!("{count} packet sockets cannot share a port: 1 to {RAW_GROUP_MAX} can");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let mut workers: Vec<Vec<Version>> = (0..count).map(|_| Vec::new()).collect();
        for v4 in versions {
            let group = (0..count).map(|_| Version::open(*v4, index, options));
            let group = group.collect::<io::Result<Vec<_>>>()?;
            form_group(&group, *v4).map_err(|error| explain(&error, "share a port"))?;
            for (version, worker) in group.into_iter().zip(&mut workers) {
                version.keep(&flows(*v4))?;
                worker.push(version);
            }
        }
        let workers = workers.into_iter();
        workers.map(|versions| Self::new(versions, options)).collect()
    }

    fn new(versions: Vec<Version>, options: &SocketOptions) -> io::Result<Self> {
        let both = if versions.len() > 1 {
            let watcher = epoll::create(CreateFlags::CLOEXEC)?;
            for (index, version) in versions.iter().enumerate() {
                epoll::add(
                    &watcher,
                    &version.socket,
                    EventData::new_u64(index as u64),
                    EventFlags::IN,
                )?;
            }
            Some(watcher)
        } else {
            None
        };
        let segments_max = if options.offloads.gso {
            packet::SEGMENTS_MAX
        } else {
            1
        };
        Ok(Self {
            grants: versions[0].grants,
            versions,
            both,
            turn: 0,
            is_full: false,
            sender: Sender::new(segments_max, SUPER_SEGMENT_BYTES_MAX, false),
            arrays: SendArrays::default(),
            written: std::iter::repeat_with(|| Written {
                head: Vec::with_capacity(RAW_HEAD_BYTES_MAX),
                framed: Vec::new(),
            })
            .take(SEND_UNITS_MAX)
            .collect(),
            stats: IoStats::default(),
        })
    }

    /// Buffers asked for and obtained.
    #[must_use]
    pub fn grants(&self) -> BufferGrants {
        self.grants
    }

    /// What the socket has done since it exists.
    #[must_use]
    pub fn stats(&self) -> &IoStats {
        &self.stats
    }

    /// Replaces what `batch` holds by what has arrived. `read` is given each packet, and says which of its bytes the
    /// batch keeps, if any. Returns how many packets came, whether kept or not.
    ///
    /// # Errors
    /// What the kernel reported, once; the socket goes on unless its interface is gone.
    pub fn receive(
        &mut self,
        batch: &mut ReceiveBatch,
        mut read: impl FnMut(RawPacket<'_>) -> Option<(ReceiveMeta, Range<usize>)>,
    ) -> io::Result<usize> {
        let mut packets = 0;
        for _ in 0..self.versions.len() {
            let index = self.turn % self.versions.len();
            self.turn = self.turn.wrapping_add(1);
            let Version {
                socket, drops_seen, ..
            } = &mut self.versions[index];
            packets = batch.receive_raw(socket.as_fd(), &mut self.stats, drops_seen, &mut read)?;
            if packets > 0 {
                break;
            }
        }
        Ok(packets)
    }

    /// From here on each datagram grows by so many bytes when it is framed: trains become shorter accordingly.
    pub fn reserve(&mut self, bytes: usize) {
        let most = SUPER_SEGMENT_BYTES_MAX - bytes * packet::SEGMENTS_MAX;
        self.sender.limit_trains(most);
    }

    /// Sends `messages` in order, as many as the socket takes, each part behind what `heads` makes.
    pub fn send(&mut self, messages: &[Outgoing<'_>], heads: &mut impl RawHeads) -> SendOutcome {
        let Self {
            versions,
            sender,
            arrays,
            written,
            stats,
            ..
        } = self;
        let outcome = sender.send(messages, stats, |units| {
            let named = write_heads(units, messages, heads, written)?;
            let v4 = named[0].is_v4();
            let version = versions.iter().find(|version| version.v4 == v4);
            let socket = &version.unwrap_or(&versions[0]).socket;
            let taken = arrays.send(socket.as_fd(), named.len(), |index, name, _| {
                named[index].encode(name);
                let written = &written[index];
                [&written.head[..], written.payload(&units[index], messages)]
            });
            let left = taken.as_ref().copied().unwrap_or(0)..named.len();
            for index in left.rev() {
                let unit = &units[index];
                heads.take_back(unit.message, written[index].payload(unit, messages).len());
            }
            taken
        });
        self.set_full(outcome.blocked);
        outcome
    }

    /// Sends a packet without payload; it is lost where the socket is full.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn send_head(&mut self, head: &RawHead) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(RAW_HEAD_BYTES_MAX);
        let to = head.write(&mut bytes);
        let version = self.versions.iter().find(|version| version.v4 == to.is_v4());
        let socket = &version.unwrap_or(&self.versions[0]).socket;
        self.stats.sends += 1;
        self.arrays.send(socket.as_fd(), 1, |_, name, _| {
            to.encode(name);
            [&bytes[..]]
        })?;
        self.stats.messages_sent += 1;
        Ok(())
    }

    /// Whether the socket takes more again, after a send that it blocked. For sockets of two versions, whose descriptor
    /// becomes readable then.
    pub fn takes_more(&mut self) -> bool {
        if !self.is_full {
            return true;
        }
        let is_writable = self.versions.iter().all(|version| {
            let mut asked = [rustix::event::PollFd::new(
                &version.socket,
                rustix::event::PollFlags::OUT,
            )];
            rustix::event::poll(&mut asked, Some(&rustix::event::Timespec::default()))
                .is_ok_and(|ready| ready > 0)
        });
        if is_writable {
            self.set_full(false);
        }
        is_writable
    }

    /// Has the watcher of both versions wake for room to write, or no longer.
    fn set_full(&mut self, is_full: bool) {
        if let Some(both) = self.both.as_ref().filter(|_| self.is_full != is_full) {
            let flags = if is_full {
                EventFlags::IN | EventFlags::OUT
            } else {
                EventFlags::IN
            };
            for (index, version) in self.versions.iter().enumerate() {
                // It is watched since the socket was opened.
                let _ = epoll::modify(both, &version.socket, EventData::new_u64(index as u64), flags);
            }
        }
        self.is_full = is_full;
    }

    /// Brings `kernel_drops` of the counters up to date, which receiving does only with the next packet.
    ///
    /// # Errors
    /// None in practice; the kernel's otherwise.
    pub fn refresh_kernel_drops(&mut self) -> io::Result<()> {
        for version in &mut self.versions {
            let drops = options::drops(version.socket.as_fd())?;
            self.stats.kernel_drops += u64::from(crate::batch::newer_drops(&mut version.drops_seen, drops));
        }
        Ok(())
    }
}

impl AsFd for RawSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.both {
            Some(both) => both.as_fd(),
            None => self.versions[0].socket.as_fd(),
        }
    }
}

fn interface_index(name: InterfaceName) -> io::Result<u32> {
    let socket = open_packet_socket()?;
    rustix::net::netdevice::name_to_index(&socket, name.as_str())
        .map_err(|error| io::Error::new(error.kind(), format!("cannot use {name}: {error}")))
}
