//! `recvmmsg` and `sendmmsg` on a connected socket, over arrays on the stack: no addresses, no control messages.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::limits::SEQPACKET_BATCH_MAX;
use crate::seqpacket::SeqpacketMessage;

/// Headers without name, control room and scatter list.
fn empty_headers() -> [libc::mmsghdr; SEQPACKET_BATCH_MAX] {
    // SAFETY: `mmsghdr` is plain old data of integers and pointers, for which all-zero bytes are valid.
    unsafe { std::mem::zeroed() }
}

/// Receives at most one message per buffer; both slices have the same length, at most `SEQPACKET_BATCH_MAX`.
pub(crate) fn receive(
    socket: BorrowedFd<'_>,
    buffers: &mut [IoSliceMut<'_>],
    messages: &mut [SeqpacketMessage],
) -> io::Result<usize> {
    let mut headers = empty_headers();
    for (header, buffer) in headers.iter_mut().zip(buffers.iter_mut()) {
        // The standard library guarantees that `IoSliceMut` has the layout of `iovec` on Unix.
        header.msg_hdr.msg_iov = std::ptr::from_mut(buffer).cast();
        header.msg_hdr.msg_iovlen = 1;
    }
    let count = buffers.len().min(headers.len());
    // SAFETY: the descriptor is open for the borrow's life. The first `count` headers each point at one scatter list
    // of a buffer that is borrowed mutably until the call returns, with its true length. A null timeout means none.
    let received = unsafe {
        libc::recvmmsg(
            socket.as_raw_fd(),
            headers.as_mut_ptr(),
            count as libc::c_uint,
            libc::MSG_DONTWAIT as _,
            std::ptr::null_mut(),
        )
    };
    if received < 0 {
        return Err(io::Error::last_os_error());
    }
    let received = (received as usize).min(count);
    for ((message, header), buffer) in messages.iter_mut().zip(&headers).zip(buffers).take(received) {
        *message = SeqpacketMessage {
            len: (header.msg_len as usize).min(buffer.len()),
            truncated: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
        };
    }
    Ok(received)
}

/// Sends `contents` in messages of `segment` bytes, as many as fit one call; `segment` is at least 1.
pub(crate) fn send(socket: BorrowedFd<'_>, contents: &[u8], segment: usize) -> io::Result<usize> {
    let empty = libc::iovec {
        iov_base: std::ptr::null_mut(),
        iov_len: 0,
    };
    let mut vectors = [empty; SEQPACKET_BATCH_MAX];
    let mut headers = empty_headers();
    let mut count = 0;
    for ((header, vector), message) in headers.iter_mut().zip(&mut vectors).zip(contents.chunks(segment)) {
        // The kernel only reads through this pointer; the type is shared with receiving.
        vector.iov_base = message.as_ptr().cast_mut().cast();
        vector.iov_len = message.len();
        header.msg_hdr.msg_iov = std::ptr::from_mut(vector);
        header.msg_hdr.msg_iovlen = 1;
        count += 1;
    }
    // SAFETY: the descriptor is open for the borrow's life. The first `count` headers each point at one scatter list
    // in `vectors`, which points at a part of `contents`; all three live until the call returns. The kernel writes
    // nothing but the headers' lengths.
    let sent = unsafe {
        libc::sendmmsg(
            socket.as_raw_fd(),
            headers.as_mut_ptr(),
            count as libc::c_uint,
            (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as _,
        )
    };
    if sent < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok((sent as usize).min(count))
    }
}
