//! The settings that sessions, queues and a client's TUN go by.

use std::time::Duration;

use masque::ip::Prefix;

use crate::access::LineRates;

/// What happens to a payload that does not fit one DATAGRAM frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Oversize {
    /// Split over several datagrams where the peer is Gramway too; else dropped and counted.
    #[default]
    Split,
    /// Always dropped and counted.
    Drop,
}

/// Which datagram a full queue gives up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueuePolicy {
    /// The datagram that finds no room.
    #[default]
    DropNewest,
    /// The datagrams that have waited longest.
    DropOldest,
}

/// Protocol of a forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// UDP datagrams.
    Udp,
    /// TCP connections.
    Tcp,
}

/// Which routes a client's TUN device gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TunRoutes {
    /// Those that the server advertises, but no default route.
    Advertised,
    /// None.
    None,
    /// These.
    These(Vec<Prefix>),
}

/// Settings of an engine in either role.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// A UDP session without traffic for so long is closed (RFC 9298 section 3.1 recommends at least two minutes).
    pub udp_idle_timeout: Duration,
    /// Server: a TCP connection that moves nothing for so long is reset (RFC 5382 REQ-5 recommends at least 2 h 4 min).
    pub tcp_idle_timeout: Duration,
    /// What happens to payloads beyond one DATAGRAM frame.
    pub oversize: Oversize,
    /// Which datagram a full queue gives up.
    pub queue_policy: QueuePolicy,
    /// Client: ask for repair of UDP forwards and of IP packets that want little delay, in so much time, 1 to 500 ms
    /// (specs/repair.md); `None`: none. A server repairs for whoever asks.
    pub repair: Option<Duration>,
    /// Server: what its line carries, which users share evenly where it is full. Needs [`crate::Engine::share_line`].
    pub line: LineRates,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            udp_idle_timeout: crate::limits::UDP_IDLE_TIMEOUT,
            tcp_idle_timeout: crate::limits::TCP_IDLE_TIMEOUT,
            oversize: Oversize::default(),
            queue_policy: QueuePolicy::default(),
            repair: None,
            line: LineRates::default(),
        }
    }
}
