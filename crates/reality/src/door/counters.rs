//! What became of datagrams and hellos at a door.

use std::ops::AddAssign;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts since the start. Each datagram of a client is in one of `passed`, `forged`, `relayed`, `taken`,
        /// `shed`, `discarded`, or still waits; each of the cover in `answered`, `clamped`, `late`, or waits.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct DoorCounters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl AddAssign for DoorCounters {
            fn add_assign(&mut self, other: Self) {
                $(self.$name += other.$name;)*
            }
        }

        impl DoorCounters {
            /// Names and values.
            pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }
        }
    };
}

counters! {
    /// Datagrams of handshakes that were taken over, left to QUIC.
    passed,
    /// Datagrams of such handshakes that no client of ours sent.
    forged,
    /// Datagrams that went to the cover.
    relayed,
    /// Datagrams that waited, and went to QUIC when their connection was taken over.
    taken,
    /// Datagrams of new addresses that came too fast.
    shed,
    /// Datagrams that waited, and were given up with their flow or for want of room.
    discarded,
    /// Datagrams of the cover that were sent to their strangers.
    answered,
    /// Datagrams of the cover beyond three times what came from an address that is not proved.
    clamped,
    /// Datagrams of the cover without a flow, or to a connection that was taken over meanwhile.
    late,
    /// Flows that began.
    flows,
    /// Flows that ended because there were too many.
    evicted,
    /// Hellos that were begun to be read.
    read,
    /// First datagrams that went unread, because there were too many.
    unread,
    /// Hellos that were ours, but for the replay window.
    recognised,
    /// Recognised hellos that the replay window refused.
    refused,
    /// Recognised hellos whose record came too late, or whose connection moved on.
    given_up,
    /// Connections that were taken over.
    taken_over,
}
