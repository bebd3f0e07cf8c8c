//! Batched UDP for Linux: one system call moves many datagrams, and each loss on the way through it is counted.
//!
//! [`UdpSocket`] receives with `recvmmsg` and `UDP_GRO` into a [`ReceiveBatch`] and sends [`Outgoing`] trains with
//! `sendmmsg` and `UDP_SEGMENT`. Where the kernel refuses a train, its segments go one by one from the first unsent
//! one, and the path does without GSO for [`GSO_BACKOFF`]. [`FaultySocket`] has the same interface and loses,
//! duplicates and mangles datagrams by a seed. [`Poller`] and [`Waker`] are the event loop's ends of the kernel.
//!
//! [`TunDevice`] exchanges IP packets with the kernel; sockets of several threads may share a port, and [`steering`]
//! has the kernel spread QUIC packets over them. [`RawSocket`] exchanges TCP packets with the network, beside the
//! kernel's own TCP.
//!
//! Sockets are non-blocking and belong to one thread. This is the only crate with unsafe code, all of it in `sys`.
//!
//! ```
//! use packet_io::{DatagramSocket, Outgoing, ReceiveBatch, SocketOptions, UdpSocket};
//!
//! # fn main() -> std::io::Result<()> {
//! let options = SocketOptions::default();
//! let mut server = UdpSocket::bind("127.0.0.1:0".parse().expect("a literal address"), &options)?;
//! let mut client = UdpSocket::connect(None, server.local_addr()?, &options)?;
//!
//! let train = [7; 2500]; // datagrams of 1000, 1000 and 500 bytes
//! let outcome = client.send(&[Outgoing::connected(&train, 1000)])?;
//! assert_eq!(outcome.segments, 3);
//!
//! let mut batch = ReceiveBatch::new(8, 65_536);
//! let mut segments = 0;
//! while segments < 3 {
//!     server.receive(&mut batch)?;
//!     segments += batch.iter().map(|received| received.segments().len()).sum::<usize>();
//! }
//! # Ok(())
//! # }
//! ```

mod batch;
mod buffers;
mod capabilities;
mod classic_bpf;
mod clock;
mod datagram;
mod faulty;
mod interface;
mod lane;
mod limits;
mod listener;
mod network;
mod peer;
mod poller;
mod privileges;
mod raw;
mod reach;
mod send;
mod seqpacket;
mod socket;
pub mod steering;
#[expect(
    unsafe_code,
    reason = "the one place where system calls without a safe wrapper are made"
)]
mod sys;
mod tun;

/// Parsers of bytes from outside, and the steering program, for fuzzing; not a stable interface.
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::steering::instructions as steering_instructions;
    pub use crate::sys::fuzz_control_messages as control_messages;
}

pub use batch::{ReceiveBatch, ReceiveMeta, Received};
pub use buffers::{BufferGrants, Grant};
pub use capabilities::{Capabilities, Offloads};
pub use clock::unix_seconds;
pub use datagram::{DatagramSocket, IoStats, Outgoing, SendDrops, SendOutcome};
pub use faulty::{FaultCounts, Faults, FaultySocket};
pub use interface::InterfaceName;
pub use lane::{Lane, LaneMessage};
pub use limits::{
    BATCH_BUCKETS, GSO_BACKOFF, LANE_DESCRIPTORS_MAX, LANE_MESSAGE_BYTES_MAX, RAW_GROUP_MAX,
    RAW_HEAD_BYTES_MAX, RECEIVE_BUFFER_BYTES_DEFAULT, SEND_BUFFER_BYTES_DEFAULT, SEQPACKET_BATCH_MAX,
    SLOT_BYTES_MAX, SUPER_SEGMENT_BYTES_MAX, TRAIN_BYTES_MAX, TUN_FLOOD_UNITS_MAX, TUN_QUEUES_MAX,
    TUN_READ_BYTES_MAX, VNET_HEADER_BYTES,
};
pub use listener::{join_tcp_group, listen_tcp_group, listen_transparent_tcp_group};
pub use network::{network_cookie, set_strict_listing};
pub use peer::{PeerCredentials, peer_credentials};
pub use poller::{Interest, Poller, Ready, Timer, Waker};
pub use privileges::{Delegate, PrivilegedOption, bind_to_interface, delegate, set_mark};
pub use raw::{Link, NeighbourSearch, PortGuard, RawHead, RawHeads, RawPacket, RawSocket};
pub use reach::ReachProbe;
pub use seqpacket::{SeqpacketMessage, receive_seqpackets, send_seqpackets};
pub use socket::{SocketOptions, UdpSocket, payload_max, route_mtu};
pub use tun::{
    TunDevice, TunError, TunFloodLimit, TunOffloads, TunOpenError, TunOverflow, TunQueue, TunRead, TunStats,
};
