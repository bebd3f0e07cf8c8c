//! Whether a TUN device overflows, because a flood comes that its shard cannot carry.
//!
//! What waits in the device waits in one line, a thousand super-packets of a flood in front of the one packet of
//! another flow, and where it is full, that one is dropped as likely as any. So while it overflows, what the shard has
//! no room for is read on, but of super-packets only the start, which costs the kernel no copy: short packets pass, and
//! the flood is given up.

use std::time::Instant;

use packet_io::TunOverflow;

use crate::limits;

/// What a shard knows of its device.
#[derive(Debug, Default)]
pub(in crate::driver) struct Shedding {
    /// `None` where the kernel does not tell.
    overflow: Option<TunOverflow>,
    judge: Judge,
}

#[derive(Debug, Default)]
struct Judge {
    looked_at: Option<Instant>,
    dropped: u64,
    until: Option<Instant>,
}

impl Shedding {
    /// Of the device `name`.
    pub(in crate::driver) fn of(name: &str) -> Self {
        let overflow = TunOverflow::open(name).ok();
        Self {
            overflow,
            judge: Judge::default(),
        }
    }

    /// Whether the device overflows. To be asked where what came before waits still.
    pub(in crate::driver) fn is_due(&mut self, now: Instant) -> bool {
        let Some(overflow) = &self.overflow else {
            return false;
        };
        if self.judge.wants_look(now)
            && let Ok(dropped) = overflow.packets()
        {
            self.judge.look(now, dropped);
        }
        self.judge.overflows(now)
    }

    /// A datagram of a flood was given up.
    pub(in crate::driver) fn gave_up(&mut self, now: Instant) {
        self.judge.until = Some(now + limits::SHED_TIME);
    }
}

impl Judge {
    fn wants_look(&self, now: Instant) -> bool {
        self.looked_at
            .is_none_or(|at| now.saturating_duration_since(at) >= limits::SHED_LOOK)
    }

    /// The device has dropped so many packets since it exists.
    fn look(&mut self, now: Instant, dropped: u64) {
        let is_first = self.looked_at.replace(now).is_none();
        let before = std::mem::replace(&mut self.dropped, dropped);
        if dropped > before && !is_first {
            self.until = Some(now + limits::SHED_TIME);
        }
    }

    fn overflows(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_overflows_from_a_drop_on_until_none_was_for_a_while() {
        // tidy-allow(pure): first instant of virtual time
        let start = Instant::now();
        let mut judge = Judge::default();
        judge.look(start, 7);
        assert!(!judge.overflows(start), "that was before anybody asked");
        let second = start + limits::SHED_LOOK;
        assert!(judge.wants_look(second) && !judge.wants_look(second - limits::SHED_LOOK / 2));
        judge.look(second, 7);
        assert!(!judge.overflows(second));
        let third = second + limits::SHED_LOOK;
        judge.look(third, 8);
        assert!(judge.overflows(third));
        let last = third + limits::SHED_TIME;
        judge.look(last, 8);
        assert!(judge.overflows(last - limits::SHED_LOOK) && !judge.overflows(last));
    }
}
