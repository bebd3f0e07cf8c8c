//! `recvmmsg` and `sendmmsg` over arrays that are used again by each call. For receiving they are as long as the batch
//! that they serve; for sending as long as the longest call so far, because most sockets only ever send one message at
//! a time and there may be thousands of them.
//!
//! The arrays hold raw pointers only inside a call: every call writes all pointers that the kernel will follow, from
//! borrows that live until it returns.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use bytes::BytesMut;

use super::addr::Name;
use super::cmsg::Control;

/// Headers and scatter lists; their pointers are stale outside a call.
#[derive(Default)]
struct Headers {
    messages: Vec<libc::mmsghdr>,
    iovecs: Vec<libc::iovec>,
}

// SAFETY: the pointers inside are never followed outside the call that wrote them, so it does not matter which thread
// holds the stale ones.
unsafe impl Send for Headers {}

impl Headers {
    fn new(capacity: usize) -> Self {
        Self {
            messages: Vec::with_capacity(capacity),
            iovecs: Vec::with_capacity(capacity),
        }
    }

    fn clear(&mut self) {
        self.messages.clear();
        self.iovecs.clear();
    }

    /// Writes one header per `parts` scatter lists, each with its name and control room; empty rooms become null.
    fn link<'a>(
        &mut self,
        parts: usize,
        rooms: impl Iterator<Item = (&'a mut [u8], &'a mut [u8])>,
    ) -> &mut [libc::mmsghdr] {
        let iovecs = self.iovecs.as_mut_ptr();
        for (index, (name, control)) in rooms.take(self.iovecs.len() / parts).enumerate() {
            // SAFETY: `mmsghdr` is plain old data of integers and pointers, for which all-zero bytes are valid.
            let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
            if !name.is_empty() {
                message.msg_hdr.msg_name = name.as_mut_ptr().cast();
                message.msg_hdr.msg_namelen = name.len() as libc::socklen_t;
            }
            if !control.is_empty() {
                message.msg_hdr.msg_control = control.as_mut_ptr().cast();
                message.msg_hdr.msg_controllen = control.len() as _;
            }
            message.msg_hdr.msg_iov = iovecs.wrapping_add(index * parts);
            message.msg_hdr.msg_iovlen = parts as _;
            self.messages.push(message);
        }
        &mut self.messages
    }
}

/// The arrays of one receiving side.
pub(crate) struct ReceiveArrays {
    headers: Headers,
    names: Vec<Name>,
    controls: Vec<Control>,
}

impl ReceiveArrays {
    pub(crate) fn new(slots: usize) -> Self {
        Self {
            headers: Headers::new(slots),
            names: vec![Name::EMPTY; slots],
            controls: vec![Control::EMPTY; slots],
        }
    }

    /// Receives into as many of `slots` as there are datagrams, at most `slot_bytes` each; what the slots held is
    /// gone. A slot's allocation is used again where nobody else holds a part of it.
    pub(crate) fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        slots: &mut [BytesMut],
        slot_bytes: usize,
    ) -> io::Result<usize> {
        self.headers.clear();
        for slot in &mut *slots {
            slot.clear();
            slot.reserve(slot_bytes);
            let room = &mut slot.spare_capacity_mut()[..slot_bytes];
            let iovec = libc::iovec {
                iov_base: room.as_mut_ptr().cast(),
                iov_len: room.len(),
            };
            self.headers.iovecs.push(iovec);
        }
        let rooms = self.names.iter_mut().zip(&mut self.controls);
        let messages = self.headers.link(
            1,
            rooms.map(|(name, control)| (&mut name.room()[..], &mut control.room()[..])),
        );
        // SAFETY: the descriptor is open for the borrow's life. Each header points at one name, one control room and
        // one scatter list, with their true lengths, in vectors that nothing touches until the call returns; each
        // scatter list points at `slot_bytes` of a slot's spare capacity, likewise untouched. Uninitialised room is
        // only written. A null timeout means none.
        let count = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                messages.as_mut_ptr(),
                messages.len() as libc::c_uint,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        if count < 0 {
            return Err(io::Error::last_os_error());
        }
        let count = (count as usize).min(messages.len());
        for (index, message) in messages[..count].iter().enumerate() {
            let len = (message.msg_len as usize).min(slot_bytes);
            // SAFETY: the kernel wrote `msg_len` bytes at the start of this empty slot's spare capacity, which is at
            // least `slot_bytes` long.
            unsafe { slots[index].set_len(len) };
            self.names[index].set_len(message.msg_hdr.msg_namelen as usize);
            self.controls[index].set_len(message.msg_hdr.msg_controllen as _);
        }
        Ok(count)
    }

    /// Source address of datagram `index` of the last call.
    pub(crate) fn name(&self, index: usize) -> &Name {
        &self.names[index]
    }

    /// Control messages of datagram `index` of the last call.
    pub(crate) fn control(&self, index: usize) -> &[u8] {
        self.controls[index].bytes()
    }

    /// Whether the kernel cut the payload or the control messages of datagram `index` short.
    pub(crate) fn truncated(&self, index: usize) -> bool {
        self.headers.messages[index].msg_hdr.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0
    }
}

/// The arrays of one sending side. They grow with what is sent at once: a process has thousands of sockets, of which
/// most send one train at a time.
#[derive(Default)]
pub(crate) struct SendArrays {
    headers: Headers,
    names: Vec<Name>,
    controls: Vec<Control>,
}

impl SendArrays {
    /// Sends `count` messages: `make` returns the parts of the payload of the one with this number, and leaves its
    /// address (none on a connected socket) and control messages in the rooms, which it finds empty. Returns how many
    /// messages the kernel took; an error concerns the first.
    pub(crate) fn send<'a, const PARTS: usize>(
        &mut self,
        socket: BorrowedFd<'_>,
        count: usize,
        mut make: impl FnMut(usize, &mut Name, &mut Control) -> [&'a [u8]; PARTS],
    ) -> io::Result<usize> {
        self.headers.clear();
        self.reserve(count, PARTS);
        let rooms = self.names.iter_mut().zip(&mut self.controls);
        for (index, (name, control)) in rooms.take(count).enumerate() {
            name.set_len(0);
            control.clear();
            let parts = make(index, name, control);
            // The kernel only reads through these pointers; the type is shared with receiving.
            let iovecs = parts.map(|part| libc::iovec {
                iov_base: part.as_ptr().cast_mut().cast(),
                iov_len: part.len(),
            });
            self.headers.iovecs.extend(iovecs);
        }
        let rooms = self.names.iter_mut().zip(&mut self.controls);
        let messages = self.headers.link(
            PARTS,
            rooms.map(|(name, control)| (name.bytes_mut(), control.bytes_mut())),
        );
        // SAFETY: the descriptor is open for the borrow's life. Each header points at one name, one control room and
        // `PARTS` scatter lists, with their true lengths, in vectors that nothing touches until the call returns; each
        // scatter list points at a part that lives for `'a`, which is longer than this call. The kernel writes
        // nothing but the headers' lengths.
        let sent = unsafe {
            libc::sendmmsg(
                socket.as_raw_fd(),
                messages.as_mut_ptr(),
                messages.len() as libc::c_uint,
                (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as _,
            )
        };
        if sent < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok((sent as usize).min(messages.len()))
        }
    }

    /// Rooms for so many messages.
    fn reserve(&mut self, count: usize, parts: usize) {
        self.headers.messages.reserve_exact(count);
        self.headers.iovecs.reserve_exact(count * parts);
        if let Some(more) = count.checked_sub(self.names.len()) {
            self.names.reserve_exact(more);
            self.controls.reserve_exact(more);
            self.names.resize(count, Name::EMPTY);
            self.controls.resize(count, Control::EMPTY);
        }
    }
}
