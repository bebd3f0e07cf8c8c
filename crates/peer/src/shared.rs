//! What the endpoint's thread and the program's handles share, and how the thread is woken, or a call sends in its
//! place. [`state`] is what the lock holds, [`events`] what the peers' events do to it.
//!
//! The lock is held for the work on one received message, on one outbox or on one call of the program, never during a
//! system call of the thread. Most messages of the program do without it ([`crate::intake`]).

mod events;
mod state;

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;
use std::time::Instant;

use packet_io::{DatagramSocket, UdpSocket};
use peer_proto::{Outbox, Parameters, PeerId};

use crate::companion::Companions;
use crate::intake::Intake;
use crate::transmit::{Caller, socket_options, transmit};

pub(crate) use state::State;

/// How the event loop is woken.
pub(crate) enum DriverWaker {
    /// Of a thread.
    Thread(packet_io::Waker),
    /// Of a task, from its first turn on.
    Task(OnceLock<Waker>),
}

impl DriverWaker {
    /// Whether waking takes as long as the system's scheduler does. A task runs on the caller's thread as soon as the
    /// caller waits, where that is one of the runtime's, and with all that it has sent by then.
    fn is_thread(&self) -> bool {
        matches!(self, Self::Thread(_))
    }

    fn wake(&self) {
        match self {
            Self::Thread(waker) => waker.wake(),
            Self::Task(waker) => {
                if let Some(waker) = waker.get() {
                    waker.wake_by_ref();
                }
            }
        }
    }
}

pub(crate) struct Shared {
    state: Mutex<State>,
    pub(crate) intake: Intake,
    caller: Mutex<Caller>,
    pub(crate) id: PeerId,
    pub(crate) local: SocketAddr,
    pub(crate) waker: DriverWaker,
    /// Threads that end with the endpoint.
    pub(crate) companions: Companions,
    /// The thread waits for its socket, or is about to.
    sleeps: AtomicBool,
    /// It sleeps until the socket takes more.
    is_blocked: AtomicBool,
    /// The program changed something since the thread last was about to wait.
    has_changed: AtomicBool,
    /// The last handle of the endpoint is gone.
    pub(crate) is_abandoned: AtomicBool,
}

impl Shared {
    pub(crate) fn new(parameters: Parameters, socket: &UdpSocket, waker: DriverWaker) -> io::Result<Self> {
        let state = State::new(parameters);
        let id = state.peers.id();
        let local = socket.local_addr()?;
        let caller = Caller {
            socket: UdpSocket::adopt(socket.as_fd().try_clone_to_owned()?, &socket_options())?,
            outbox: Outbox::default(),
            sent_at: None,
            handed_at: None,
            is_followed: false,
        };
        Ok(Self {
            state: Mutex::new(state),
            intake: Intake::default(),
            caller: Mutex::new(caller),
            id,
            local,
            waker,
            companions: Companions::default(),
            sleeps: AtomicBool::new(false),
            is_blocked: AtomicBool::new(false),
            has_changed: AtomicBool::new(false),
            is_abandoned: AtomicBool::new(false),
        })
    }

    /// The state as it is, for the thread and for calls that change nothing.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call of the program that may give the thread something to do.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut State, Instant) -> T) -> T {
        let now = Instant::now();
        let mut woken = Vec::new();
        let mut state = self.lock();
        // In the order in which the program sent.
        state.take_in(now, &self.intake, &mut woken);
        let result = change(&mut state, now);
        state.take_events(now, &mut woken);
        let (may_send, is_due) = (state.may_send(), state.is_due_before_waking());
        drop(state);
        woken.into_iter().for_each(Waker::wake);
        if may_send {
            self.hand_over();
        } else if is_due {
            self.wake_thread();
        }
        result
    }

    /// There is something to send.
    pub(crate) fn hand_over(&self) {
        if !(self.sleeps.load(Ordering::SeqCst) && self.flush_here()) {
            self.wake_thread();
        }
    }

    /// Sends in the place of the sleeping thread, which saves the time until it runs; whether nothing is left for it to
    /// do. What the socket does not take is lost like what the path loses, so that nothing is sent while the thread
    /// waits for it to take more.
    ///
    /// A task runs soon, and with all that the caller has sent by then: in its place what comes alone is sent.
    fn flush_here(&self) -> bool {
        let Ok(mut caller) = self.caller.try_lock() else {
            return false;
        };
        if self.is_blocked.load(Ordering::SeqCst) {
            return false;
        }
        let now = Instant::now();
        let is_task = !self.waker.is_thread();
        if is_task && !caller.comes_alone(now) || !caller.may_send(now) {
            return false;
        }
        let mut woken = Vec::new();
        let mut state = self.lock();
        if state.is_sent_by_thread() || is_task && state.comes_in_bursts {
            return false;
        }
        caller.sent_at = Some(now);
        state.take_in(now, &self.intake, &mut woken);
        let Caller { socket, outbox, .. } = &mut *caller;
        let more = state.flush(now, outbox);
        state.take_events(now, &mut woken);
        let is_done = !more && !state.is_due_before_waking();
        drop(state);
        woken.into_iter().for_each(Waker::wake);
        // Where the socket took no more, the thread finds that out, and no call sends until it takes more.
        let is_full = transmit(socket, outbox);
        outbox.release(usize::MAX);
        is_done && !is_full
    }

    /// A name of the rendezvous is resolved, to no address where it cannot be.
    pub(crate) fn resolved(&self, number: u64, addresses: &[SocketAddr]) {
        self.change(|state, now| {
            if let Some(meetings) = &mut state.meetings {
                meetings.handle_resolved(now, number, addresses);
            }
        });
    }

    pub(crate) fn wake_thread(&self) {
        self.has_changed.store(true, Ordering::SeqCst);
        if self.sleeps.swap(false, Ordering::SeqCst) {
            self.waker.wake();
        }
    }

    /// The thread is about to wait; whoever changes something from here on wakes it. Whether somebody did so before.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.sleeps.store(true, Ordering::SeqCst);
        self.has_changed.swap(false, Ordering::SeqCst)
    }

    /// Whether the thread waits for the socket to take more.
    pub(crate) fn set_blocked(&self, is_blocked: bool) {
        self.is_blocked.store(is_blocked, Ordering::SeqCst);
    }

    pub(crate) fn awake(&self) {
        self.sleeps.store(false, Ordering::SeqCst);
    }
}
