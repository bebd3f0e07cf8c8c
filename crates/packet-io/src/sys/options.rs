//! Socket options that no safe wrapper offers.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Numbers that `SO_MEMINFO` reports, and which of them counts drops (`linux/sock_diag.h`).
const MEMINFO_NUMBERS: usize = 9;
const MEMINFO_DROPS: usize = 8;

/// Lets a socket have addresses of other machines, before it is bound.
pub(crate) fn set_transparent(socket: BorrowedFd<'_>, v6: bool) -> io::Result<()> {
    if v6 {
        set(socket, libc::IPPROTO_IPV6, libc::IPV6_TRANSPARENT, 1)
    } else {
        set(socket, libc::IPPROTO_IP, libc::IP_TRANSPARENT, 1)
    }
}

/// Has the kernel tell the address and port that each datagram is for.
pub(crate) fn report_targets(socket: BorrowedFd<'_>, v6: bool) -> io::Result<()> {
    if v6 {
        set(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVORIGDSTADDR, 1)
    } else {
        set(socket, libc::IPPROTO_IP, libc::IP_RECVORIGDSTADDR, 1)
    }
}

/// Sets an option whose value is an `int`.
pub(crate) fn set(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    let len = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the descriptor is open for the borrow's life; pointer and length are those of `value`, which outlives
    // the call, and the kernel only reads it.
    let code = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), len) };
    if code == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Hands the kernel a program of its classic virtual machine, for what `level` and `option` say.
pub(crate) fn attach_program(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
    program: &[libc::sock_filter],
) -> io::Result<()> {
    let Ok(len) = u16::try_from(program.len()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let program = libc::sock_fprog {
        len,
        // The kernel only reads through this pointer.
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: the descriptor is open for the borrow's life; the option's value is one `sock_fprog`, whose pointer and
    // length are those of a slice that outlives the call, and the kernel copies both.
    let code = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const program).cast(),
            size_of_val(&program) as libc::socklen_t,
        )
    };
    if code == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Values that options are read into.
///
/// # Safety
/// Every pattern of bits is a value.
unsafe trait Plain {}

// SAFETY: numbers and what consists of them.
unsafe impl Plain for u64 {}

// SAFETY: as above.
unsafe impl Plain for libc::c_int {}

// SAFETY: as above.
unsafe impl Plain for [u32; MEMINFO_NUMBERS] {}

// SAFETY: as above.
unsafe impl Plain for libc::ucred {}

/// Reads an option whose value is an `int`.
pub(crate) fn number(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
) -> io::Result<libc::c_int> {
    get(socket, level, option, 0)
}

/// Reads an option; what the kernel does not write of the value stays as it is in `value`.
fn get<T: Plain>(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
    mut value: T,
) -> io::Result<T> {
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the descriptor is open for the borrow's life; the kernel writes at most `len` bytes to `value`, whose
    // size that is and which has no invalid values, and the length back to `len`; both outlive the call.
    let code = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw mut value).cast(),
            &raw mut len,
        )
    };
    if code == 0 {
        Ok(value)
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Datagrams that the socket dropped because its buffer was full, since it exists; wraps. Linux 4.12.
pub(crate) fn drops(socket: BorrowedFd<'_>) -> io::Result<u32> {
    let numbers = get(
        socket,
        libc::SOL_SOCKET,
        libc::SO_MEMINFO,
        [0_u32; MEMINFO_NUMBERS],
    )?;
    Ok(numbers[MEMINFO_DROPS])
}

/// The number of the socket's network namespace. Linux 5.14.
pub(crate) fn network_cookie(socket: BorrowedFd<'_>) -> io::Result<u64> {
    get(socket, libc::SOL_SOCKET, libc::SO_NETNS_COOKIE, 0)
}

/// Who was at the other end of a Unix socket when it connected; process 0 is one of another PID namespace.
pub(crate) fn peer_credentials(socket: BorrowedFd<'_>) -> io::Result<libc::ucred> {
    let nobody = libc::ucred {
        pid: 0,
        uid: libc::uid_t::MAX,
        gid: libc::gid_t::MAX,
    };
    get(socket, libc::SOL_SOCKET, libc::SO_PEERCRED, nobody)
}
