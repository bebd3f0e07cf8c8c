//! The control calls of a TUN device (`linux/if_tun.h`).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `linux/if_tun.h`; Linux 4.16.
const TUNSETFILTEREBPF: libc::Ioctl = libc::_IOR::<libc::c_int>(b'T' as u32, 225);

/// Attaches the open file `tun` to the interface `name`, or to a new one, with `flags`; returns the name that the
/// interface has got. A `%d` in the name is replaced by the first free number.
pub(crate) fn attach(tun: BorrowedFd<'_>, name: &str, flags: libc::c_int) -> io::Result<String> {
    let mut request = request(name, flags);
    // SAFETY: the descriptor is open for the borrow's life; TUNSETIFF reads and writes one `ifreq`, which `request`
    // is and which outlives the call.
    let code = unsafe { libc::ioctl(tun.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    check(code)?;
    // `c_char` has a sign on some processors.
    let given = request.ifr_name.iter().map(|byte| byte.to_ne_bytes()[0]);
    let given: Vec<u8> = given.take_while(|byte| *byte != 0).collect();
    Ok(String::from_utf8_lossy(&given).into_owned())
}

/// Sets the size of the header before each packet, in bytes, and that its numbers are little-endian.
pub(crate) fn set_header(tun: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    let size = bytes as libc::c_int;
    // SAFETY: the descriptor is open for the borrow's life; TUNSETVNETHDRSZ reads one `int`, which outlives the call.
    let code = unsafe { libc::ioctl(tun.as_raw_fd(), libc::TUNSETVNETHDRSZ, &raw const size) };
    check(code)?;
    let little: libc::c_int = 1;
    // SAFETY: the descriptor is open for the borrow's life; TUNSETVNETLE reads one `int`, which outlives the call.
    let code = unsafe { libc::ioctl(tun.as_raw_fd(), libc::TUNSETVNETLE, &raw const little) };
    check(code)
}

/// Says which packets the reader takes unfinished (`TUN_F_*`); `InvalidInput` where the kernel does not know one.
pub(crate) fn set_offloads(tun: BorrowedFd<'_>, features: libc::c_uint) -> io::Result<()> {
    // SAFETY: the descriptor is open for the borrow's life; TUNSETOFFLOAD takes its argument by value.
    let code = unsafe {
        libc::ioctl(
            tun.as_raw_fd(),
            libc::TUNSETOFFLOAD,
            libc::c_ulong::from(features),
        )
    };
    check(code)
}

/// Switches the queue on or off (`IFF_ATTACH_QUEUE`, `IFF_DETACH_QUEUE`).
pub(crate) fn set_queue(tun: BorrowedFd<'_>, flag: libc::c_int) -> io::Result<()> {
    let request = request("", flag);
    // SAFETY: the descriptor is open for the borrow's life; TUNSETQUEUE reads one `ifreq`, which `request` is and
    // which outlives the call.
    let code = unsafe { libc::ioctl(tun.as_raw_fd(), libc::TUNSETQUEUE, &raw const request) };
    check(code)
}

/// Has the kernel run a socket filter for each packet that it is about to queue: 0 drops it.
pub(crate) fn set_filter(tun: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    let program = program.as_raw_fd();
    // SAFETY: both descriptors are open for their borrows' lives; TUNSETFILTEREBPF reads one `int`, which outlives the
    // call.
    let code = unsafe { libc::ioctl(tun.as_raw_fd(), TUNSETFILTEREBPF, &raw const program) };
    check(code)
}

fn request(name: &str, flags: libc::c_int) -> libc::ifreq {
    let mut ifr_name = [0; libc::IFNAMSIZ];
    // The last byte stays zero.
    for (place, byte) in ifr_name[..libc::IFNAMSIZ - 1].iter_mut().zip(name.bytes()) {
        *place = libc::c_char::from_ne_bytes([byte]);
    }
    libc::ifreq {
        ifr_name,
        ifr_ifru: libc::__c_anonymous_ifr_ifru {
            ifru_flags: flags as libc::c_short,
        },
    }
}

fn check(code: libc::c_int) -> io::Result<()> {
    if code < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
