//! Readiness of descriptors for one thread's event loop, level-triggered, and a way for other threads to wake it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use crate::limits::EVENTS_MAX;
use crate::sys;

/// Which events to report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest {
    /// That a read would not block.
    pub readable: bool,
    /// That a write would not block.
    pub writable: bool,
}

impl Interest {
    /// Reading only.
    pub const READABLE: Self = Self {
        readable: true,
        writable: false,
    };
    /// Writing only.
    pub const WRITABLE: Self = Self {
        readable: false,
        writable: true,
    };
    /// Reading and writing.
    pub const BOTH: Self = Self {
        readable: true,
        writable: true,
    };
    /// Only errors and hang-ups, which cannot be switched off.
    pub const NONE: Self = Self {
        readable: false,
        writable: false,
    };

    fn flags(self) -> EventFlags {
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN, self.readable);
        flags.set(EventFlags::OUT, self.writable);
        flags
    }
}

/// One descriptor that is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The number given when the descriptor was added.
    pub token: u64,
    /// A read does not block; it may return data, the end, or an error.
    pub readable: bool,
    /// A write does not block; it may return an error.
    pub writable: bool,
    /// An error is pending or both directions are closed. Readable and writable are then set too, so that a read or
    /// write comes to meet it.
    pub hangup: bool,
}

/// An epoll instance.
pub struct Poller {
    epoll: OwnedFd,
    events: Vec<libc::epoll_event>,
}

impl Poller {
    /// A poller without descriptors.
    ///
    /// # Errors
    /// The kernel's refusal, e.g. too many open files.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            events: vec![sys::epoll::NO_EVENT; EVENTS_MAX],
        })
    }

    /// Watches `source`, whose events carry `token`.
    ///
    /// # Errors
    /// `AlreadyExists` where it is watched, or the kernel's refusal.
    pub fn add(&self, source: &impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::add(
            &self.epoll,
            source,
            EventData::new_u64(token),
            interest.flags(),
        )?)
    }

    /// Changes token and interest of `source`.
    ///
    /// # Errors
    /// `NotFound` where it is not watched.
    pub fn modify(&self, source: &impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::modify(
            &self.epoll,
            source,
            EventData::new_u64(token),
            interest.flags(),
        )?)
    }

    /// Watches `source` no longer. Closing its last descriptor does the same.
    ///
    /// # Errors
    /// `NotFound` where it is not watched.
    pub fn remove(&self, source: &impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, source)?)
    }

    /// Replaces what `ready` holds by what is ready; waits for something until `timeout` passes, for ever when it is
    /// `None`. The wait may end early with nothing (a signal).
    ///
    /// # Errors
    /// None in practice; the kernel's otherwise.
    pub fn wait(&mut self, ready: &mut Vec<Ready>, timeout: Option<Duration>) -> io::Result<()> {
        ready.clear();
        let count = match sys::epoll::wait(self.epoll.as_fd(), &mut self.events, timeout) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            other => other?,
        };
        ready.extend(self.events[..count].iter().map(|event| {
            let flags = EventFlags::from_bits_retain(event.events);
            let hangup = flags.intersects(EventFlags::ERR | EventFlags::HUP);
            Ready {
                token: event.u64,
                readable: hangup || flags.contains(EventFlags::IN),
                writable: hangup || flags.contains(EventFlags::OUT),
                hangup,
            }
        }));
        Ok(())
    }
}

/// Its descriptor is readable where a wait would not wait, for another event loop that watches it.
impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

/// Ends a poller's wait from any thread. Clones wake the same poller.
#[derive(Clone, Debug)]
pub struct Waker {
    event: Arc<OwnedFd>,
}

impl Waker {
    /// A waker of `poller`, whose events carry `token`. There is nothing to read: a wake is one event, and several
    /// wakes before a wait may be one.
    ///
    /// # Errors
    /// The kernel's refusal, e.g. too many open files.
    pub fn new(poller: &Poller, token: u64) -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        // Edge-triggered, so that nobody has to read the counter down.
        epoll::add(
            &poller.epoll,
            &event,
            EventData::new_u64(token),
            EventFlags::IN | EventFlags::ET,
        )?;
        Ok(Self {
            event: Arc::new(event),
        })
    }

    /// Ends the poller's wait, or its next one where it is not waiting.
    pub fn wake(&self) {
        // It can fail only when the 64-bit counter is full, and then the event is pending anyway.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }
}

/// Ends a poller's wait after a time, to the nanosecond: for a poller that another event loop waits for
/// ([`Poller::wait`] has a timeout of its own).
#[derive(Debug)]
pub struct Timer(OwnedFd);

impl Timer {
    /// A timer of `poller` that is not set, whose events carry `token`. There is nothing to read.
    ///
    /// # Errors
    /// The kernel's refusal, e.g. too many open files.
    pub fn new(poller: &Poller, token: u64) -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        // Edge-triggered, so that nobody has to read the count down.
        let data = EventData::new_u64(token);
        epoll::add(&poller.epoll, &timer, data, EventFlags::IN | EventFlags::ET)?;
        Ok(Self(timer))
    }

    /// Ends the wait once, after so long instead of what was set before; at once where that is nothing.
    ///
    /// # Errors
    /// None in practice; the kernel's otherwise.
    pub fn set(&self, after: Duration) -> io::Result<()> {
        // Nothing would unset it.
        let after = after.max(Duration::from_nanos(1));
        let spec = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec::try_from(after).unwrap_or(Timespec {
                tv_sec: i64::MAX,
                tv_nsec: 0,
            }),
        };
        timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &spec)?;
        Ok(())
    }
}
