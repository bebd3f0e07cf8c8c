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
    was_held_back: bool,
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
            was_held_back: false,
        };
        self.measure(now)
    }

    fn measure(&mut self, mut now: Self) -> Option<HeldBack> {
        let held_back = now.held_back - self.held_back;
        let idle = now.idle - self.idle;
        // Where nothing happened, as between two probes of a path that swallows all, all is as it was.
        now.was_held_back = match (held_back, idle) {
            (0, 0) => self.was_held_back,
            _ => held_back > IDLE_SHARE * idle,
        };
        let before = std::mem::replace(self, now);
        now.was_held_back.then_some(HeldBack {
            sent: now.sent - before.sent,
            lost: now.lost - before.lost,
        })
    }
}

/// So many times as often held back as without anything to send.
const IDLE_SHARE: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_swallows_all_holds_back_also_while_nothing_is_tried() {
        let mut meter = Meter::default();
        let held_back = Meter {
            sent: 100,
            lost: 90,
            held_back: 50,
            idle: 10,
            was_held_back: false,
        };
        assert_eq!(meter.measure(held_back), Some(HeldBack { sent: 100, lost: 90 }));
        assert_eq!(meter.measure(held_back), Some(HeldBack { sent: 0, lost: 0 }));
        let idle = Meter {
            idle: 11,
            ..held_back
        };
        assert_eq!(meter.measure(idle), None);
        assert_eq!(meter.measure(idle), None);
    }
}
