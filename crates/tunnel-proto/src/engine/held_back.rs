//! Whether a connection has all sent that it has to send, or the path holds it back (specs/path.md).

use masque::HeldBack;
use quic::ConnectionReport;

/// Looks at one connection now and then.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Meter {
    sent: u64,
    lost: u64,
    held_back: u64,
    idle: u64,
}

impl Meter {
    /// How the connection fared since the last look, where the path held it back nearly all the time (PATH-2): pacing holds a
    /// flow back for a moment that has room, too.
    pub(crate) fn take(&mut self, report: &ConnectionReport) -> Option<HeldBack> {
        let now = Self {
            sent: report.counters.packets_sent,
            lost: report.counters.packets_lost,
            held_back: report.held_back,
            idle: report.idle,
        };
        let before = std::mem::replace(self, now);
        let held_back = now.held_back - before.held_back;
        let idle = now.idle - before.idle;
        (held_back > IDLE_SHARE * idle).then_some(HeldBack {
            sent: now.sent - before.sent,
            lost: now.lost - before.lost,
        })
    }
}

/// So many times as often held back as without anything to send.
const IDLE_SHARE: u64 = 4;
