//! UDP offloads that the kernel supports, and which of them may be used.

use std::os::fd::AsFd;
use std::sync::OnceLock;

use packet::TRAIN_SEGMENTS_MAX;
use socket2::{Domain, Socket, Type};

use crate::sys::options;

/// Offloads that the configuration allows; both on by default. One that the kernel lacks stays off anyway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offloads {
    /// Send trains with `UDP_SEGMENT`; else their segments go one by one, several per system call.
    pub gso: bool,
    /// Receive datagrams coalesced with `UDP_GRO`.
    pub gro: bool,
}

impl Default for Offloads {
    fn default() -> Self {
        Self { gso: true, gro: true }
    }
}

/// Offloads that the running kernel has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// `UDP_SEGMENT`, Linux 4.18.
    pub gso: bool,
    /// `UDP_GRO`, Linux 5.0.
    pub gro: bool,
    /// Most segments of one train, 1 without GSO.
    pub gso_segments_max: usize,
}

impl Capabilities {
    /// What this kernel has; asked once per process, on a socket of its own.
    #[must_use]
    pub fn probe() -> Self {
        static PROBED: OnceLock<Capabilities> = OnceLock::new();
        *PROBED.get_or_init(|| {
            let accepts = |option, value| {
                let socket = Socket::new(Domain::IPV4, Type::DGRAM, None);
                socket.is_ok_and(|socket| options::set(socket.as_fd(), libc::SOL_UDP, option, value).is_ok())
            };
            let gso = accepts(libc::UDP_SEGMENT, 1200);
            let gro = accepts(libc::UDP_GRO, 1);
            Self {
                gso,
                gro,
                gso_segments_max: if gso { TRAIN_SEGMENTS_MAX } else { 1 },
            }
        })
    }
}
