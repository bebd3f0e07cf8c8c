//! Bounds of requests to the host and of the guardian, with unit and reason.

use std::time::Duration;

/// How long the kernel may take to answer a question about its network.
pub(crate) const NETLINK_ANSWER_TIME: Duration = Duration::from_secs(5);

/// One answer of the kernel about its network, in bytes: it fills at most 32 KiB.
pub(crate) const NETLINK_BUFFER_BYTES: usize = 64 << 10;

/// Tries to read a list that changes meanwhile.
pub(crate) const NETLINK_DUMP_TRIES: u32 = 8;

/// Reads of news about the network at once: a flood of them must not keep a shard from its packets.
pub(crate) const MONITOR_READS_MAX: u32 = 64;

/// How long `resolvectl` or `resolvconf` may take.
pub(crate) const NAMES_PROGRAM_TIME_MAX: Duration = Duration::from_secs(5);

/// Between two looks at whether it has ended.
pub(crate) const NAMES_PROGRAM_POLL: Duration = Duration::from_millis(5);

/// `/etc/resolv.conf`, in bytes: real ones have hundreds, and the list of changes must have room for two of them.
pub(crate) const RESOLV_CONF_BYTES_MAX: u64 = 64 << 10;

/// How long other processes may hold the lock on the lists of changes; each needs milliseconds.
pub(crate) const UNDO_LOCK_TIME: Duration = Duration::from_secs(5);

/// Between two looks at that lock, and at processes that are about to end.
pub(crate) const UNDO_POLL: Duration = Duration::from_millis(5);

/// A list of changes to the host, in bytes: thousands of interfaces.
pub(crate) const UNDO_FILE_BYTES_MAX: u64 = 1 << 20;

/// How long the guardian may take to say that it is ready.
pub(crate) const GUARDIAN_START_TIME: Duration = Duration::from_secs(10);

/// How long the guardian may take to end after it was sent home, before it is left alone.
pub(crate) const GUARDIAN_END_TIME: Duration = Duration::from_secs(2);

/// How long a process may take to die after its pipe to the guardian ended.
pub(crate) const GUARDIAN_PATIENCE: Duration = Duration::from_secs(30);

/// How long translated connections outlive a server that crashed: whoever watches over it starts it again within
/// seconds, and TCP at their other end goes on trying for minutes. A manager that ends all processes of the service
/// first ends the guardian, too, and with it the connections (systemd does, unless the unit has `KillMode=process`).
pub(crate) const NAT_HELD_AFTER_CRASH: Duration = Duration::from_secs(60);

/// Between two looks at whether another server translates meanwhile.
pub(crate) const NAT_HOLD_POLL: Duration = Duration::from_millis(100);

/// Networks that the kill switch lets out. All its rules travel in one message to the kernel, which takes 208 KiB by
/// default; each needs less than half a KiB.
pub(crate) const KILL_SWITCH_EXCEPTIONS_MAX: usize = 256;

/// One request to the process that changes the host, or its answer, in bytes of JSON. The kernel's default buffer of a
/// Unix socket has twice as much room.
pub(crate) const MESSAGE_BYTES_MAX: usize = packet_io::LANE_MESSAGE_BYTES_MAX;

/// A prefix in a message, in bytes: 43 of the longest IPv6 one, quotes and a comma.
pub(crate) const PREFIX_TEXT_BYTES_MAX: usize = 46;

/// Routes of a device, those that a default route leaves out included: a server advertises at most 1,024.
pub(crate) const PREFIXES_MAX: usize = 2_000;

/// Sentences on why routes were refused: the first ones tell what is wrong.
pub(crate) const REASONS_MAX: usize = 16;

/// Such a sentence, in bytes of JSON.
pub(crate) const REASON_BYTES_MAX: usize = 320;

/// Addresses of a device, and pools of a server; a client takes eight.
pub(crate) const ADDRESSES_MAX: usize = 64;

/// Interfaces of a router whose packets are led to a proxy.
pub(crate) const INTERFACES_MAX: usize = 64;

/// Name servers of a machine; the C library asks three.
pub(crate) const NAME_SERVERS_MAX: usize = 16;

/// What IPv4 hosts take at least (RFC 791), and what the length field of IP allows.
pub(crate) const MTU_MIN: u32 = 576;
pub(crate) const MTU_MAX: u32 = 65_535;

/// Packets that may wait in a device.
pub(crate) const QUEUE_PACKETS_MAX: u32 = 16_384;

/// Queues of a device: their descriptors travel in one message, which the kernel limits to 253 (`SCM_MAX_FD`).
pub(crate) const QUEUES_MAX: usize = packet_io::LANE_DESCRIPTORS_MAX;

/// How long the helper may take to say that it is ready.
pub(crate) const HELPER_START_TIME: Duration = Duration::from_secs(10);

/// How long it may take for one change: several programs that keep name servers, and locks, one after the other.
pub(crate) const HELPER_ANSWER_TIME: Duration = Duration::from_secs(60);

/// How long it may take for an option of a socket, for which a shard waits.
pub(crate) const SOCKET_OPTION_TIME: Duration = Duration::from_secs(2);

/// Lanes to the helper, each with a thread of it: network, name servers, sockets.
pub(crate) const LANES_MAX: usize = 3;

/// A buffer that a socket may have beyond the system's limit, in bytes: the most that can be set.
pub(crate) const SOCKET_BUFFER_BYTES_MAX: usize = 1 << 30;
