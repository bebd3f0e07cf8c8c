//! Binding and naming packet sockets (`linux/if_packet.h`).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::addr::{LinkName, Name};

/// Lets a packet socket receive packets of one EtherType from interface `index`, 0 meaning all.
pub(crate) fn bind(socket: BorrowedFd<'_>, index: u32, ethertype: u16) -> io::Result<()> {
    let mut name = Name::EMPTY;
    name.encode_link(index, ethertype);
    let bytes = name.bytes();
    // SAFETY: the descriptor is open for the borrow's life; pointer and length are those of `bytes`, which outlives the
    // call, and the kernel only reads it.
    let code = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            bytes.as_ptr().cast(),
            bytes.len() as libc::socklen_t,
        )
    };
    if code == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Kind and hardware address of the interface that a packet socket is bound to.
pub(crate) fn name(socket: BorrowedFd<'_>) -> io::Result<LinkName> {
    let mut name = Name::EMPTY;
    let mut length = name.room().len() as libc::socklen_t;
    // SAFETY: the descriptor is open for the borrow's life; the kernel writes at most `length` bytes to the room, whose
    // length that is, and the true length back; both outlive the call.
    let code = unsafe {
        libc::getsockname(
            socket.as_raw_fd(),
            name.room().as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if code != 0 {
        return Err(io::Error::last_os_error());
    }
    name.set_len(length as usize);
    name.decode_link()
        .ok_or_else(|| io::Error::other("the kernel gave a name that is not of a packet socket"))
}
