//! What a TUN device, its queues and the name servers that belong to it count.

use std::net::IpAddr;
use std::ops::AddAssign;

use serde::Serialize;
use tunnel_proto::LeaseSnapshot;

use super::Gauge;

/// A TUN device and its IP sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TunSnapshot {
    /// Name of the interface.
    pub name: String,
    /// Bytes of the longest packet that it takes.
    pub mtu: u32,
    /// IP sessions that are open.
    pub sessions: u64,
    /// Server: leases that clients hold, and those given since the start.
    pub leases: Gauge,
    /// Server: leases that are kept, those of clients that are gone included.
    pub leases_kept: u64,
    /// Server: the leases themselves, those of clients that are there first, at most
    /// [`crate::limits::LEASES_SHOWN_MAX`].
    pub lease_list: Vec<LeaseSnapshot>,
    /// Client: the name servers that it brings, where there are any.
    pub names: Option<NamesSnapshot>,
    /// Server: its name server for clients, where it has one.
    pub name_server: Option<NameServerCounters>,
    /// What its queues did.
    pub io: TunCounters,
}

/// What a server's name server for clients counts:
/// `questions = answered + unanswered + malformed + over_limit + waiting`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NameServerCounters {
    /// Messages of clients.
    pub questions: u64,
    /// A name server of this machine had an answer.
    pub answered: u64,
    /// None had one in time: the client was told so.
    pub unanswered: u64,
    /// Messages that are no standard query, or come from no client.
    pub malformed: u64,
    /// Questions beyond what one client, or all, may have open.
    pub over_limit: u64,
    /// Questions that are open.
    pub waiting: u64,
    /// TCP connections of clients that are open.
    pub streams: u64,
    /// Connections beyond what one client, or all, may have open.
    pub streams_over_limit: u64,
}

/// The machine's name servers while a client's TUN is there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NamesSnapshot {
    /// The servers.
    pub servers: Vec<IpAddr>,
    /// The server offers them; else the user named them.
    pub is_offered: bool,
    /// Who was given them, for people; nobody before it came about.
    pub set_by: Vec<String>,
    /// Why they are not set, or not any more; it is being tried again.
    pub error: Option<String>,
}

/// What the queues of a TUN device count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TunCounters {
    /// Packets and super-packets read.
    pub reads: u64,
    /// Of these, super-packets.
    pub super_reads: u64,
    /// Of these, packets that came alone: each cost a system call.
    pub plain_reads: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Packets and super-packets written.
    pub writes: u64,
    /// Of these, super-packets.
    pub super_writes: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Super-packets that the kernel refused; their packets were written one by one.
    pub refused: u64,
    /// Reads and writes that failed.
    pub errors: u64,
    /// How often a kind of super-packet was given up.
    pub step_downs: u64,
}

impl TunSnapshot {
    /// What two shards say of one device; leases are the process's already.
    pub(super) fn with(mut self, other: Self) -> Self {
        self.sessions += other.sessions;
        self.io += other.io;
        self
    }
}

impl AddAssign for TunCounters {
    fn add_assign(&mut self, other: Self) {
        self.reads += other.reads;
        self.super_reads += other.super_reads;
        self.plain_reads += other.plain_reads;
        self.bytes_read += other.bytes_read;
        self.writes += other.writes;
        self.super_writes += other.super_writes;
        self.bytes_written += other.bytes_written;
        self.refused += other.refused;
        self.errors += other.errors;
        self.step_downs += other.step_downs;
    }
}
