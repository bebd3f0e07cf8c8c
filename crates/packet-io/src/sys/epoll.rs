//! Waiting for events with a timeout in nanoseconds, also on kernels before 5.11, there in milliseconds.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// An event slot that the kernel fills.
pub(crate) const NO_EVENT: libc::epoll_event = libc::epoll_event { events: 0, u64: 0 };

/// Waits until there are events, `timeout` passes, or a signal comes (`Interrupted`); `None` waits for ever.
pub(crate) fn wait(
    epoll: BorrowedFd<'_>,
    events: &mut [libc::epoll_event],
    timeout: Option<Duration>,
) -> io::Result<usize> {
    let capacity = libc::c_int::try_from(events.len()).unwrap_or(libc::c_int::MAX);
    let Some(timeout) = timeout.filter(|timeout| timeout.subsec_nanos() % 1_000_000 != 0) else {
        return wait_millis(epoll, events, timeout);
    };
    let timespec = libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    // SAFETY: the descriptor is open for the borrow's life; the kernel writes at most `capacity` events, which is
    // not above the slice's length, and reads one timespec; a null signal mask of size 0 changes none.
    let count = unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait2,
            epoll.as_raw_fd(),
            events.as_mut_ptr(),
            capacity,
            &raw const timespec,
            std::ptr::null::<libc::sigset_t>(),
            0_usize,
        )
    };
    if count >= 0 {
        return Ok((count as usize).min(events.len()));
    }
    let error = io::Error::last_os_error();
    // Some containers answer EPERM to calls that they do not know.
    match error.raw_os_error() {
        Some(libc::ENOSYS | libc::EPERM) => wait_millis(epoll, events, Some(timeout)),
        _ => Err(error),
    }
}

fn wait_millis(
    epoll: BorrowedFd<'_>,
    events: &mut [libc::epoll_event],
    timeout: Option<Duration>,
) -> io::Result<usize> {
    let capacity = libc::c_int::try_from(events.len()).unwrap_or(libc::c_int::MAX);
    // Rounded up: a timer must not be found unexpired when the wait for it ends.
    let millis = timeout.map_or(-1, |timeout| {
        libc::c_int::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(libc::c_int::MAX)
    });
    // SAFETY: the descriptor is open for the borrow's life, and the kernel writes at most `capacity` events, which is
    // not above the slice's length.
    let count = unsafe { libc::epoll_wait(epoll.as_raw_fd(), events.as_mut_ptr(), capacity, millis) };
    if count < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((count as usize).min(events.len()))
}
