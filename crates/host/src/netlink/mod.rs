//! A netlink socket that asks and waits for the answer. The message formats are small and fixed, and one codec serves
//! routing as well as netfilter, so this stands on `rustix` alone.

mod message;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
};

pub(super) use message::{
    ACKNOWLEDGE, AttributeReader, Attributes, CREATE, DUMP, EXCLUSIVE, Message, Messages, REPLACE, number,
};

use crate::limits::{NETLINK_ANSWER_TIME, NETLINK_BUFFER_BYTES, NETLINK_DUMP_TRIES};

/// A subsystem of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    /// Links, addresses, routes.
    Route,
    /// Packet filter and NAT.
    Netfilter,
}

/// A socket to one subsystem.
#[derive(Debug)]
pub(super) struct Socket {
    descriptor: OwnedFd,
    number: u32,
    buffer: Vec<u8>,
}

impl Socket {
    /// Opens a socket for questions.
    pub(super) fn open(family: Family) -> io::Result<Self> {
        let socket = Self::bound(family, 0, SocketFlags::CLOEXEC)?;
        set_socket_timeout(&socket.descriptor, Timeout::Recv, Some(NETLINK_ANSWER_TIME))?;
        Ok(socket)
    }

    /// Opens a socket that hears what the groups of this mask are told, and does not block.
    pub(super) fn listener(groups: u32) -> io::Result<Self> {
        Self::bound(
            Family::Route,
            groups,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        )
    }

    fn bound(family: Family, groups: u32, flags: SocketFlags) -> io::Result<Self> {
        // The protocol of routing has number 0, which is also what no protocol stands for.
        let protocol = (family == Family::Netfilter).then_some(netlink::NETFILTER);
        let descriptor = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?;
        bind(&descriptor, &SocketAddrNetlink::new(0, groups))?;
        Ok(Self {
            descriptor,
            number: 0,
            buffer: vec![0; NETLINK_BUFFER_BYTES],
        })
    }

    /// Sends messages and waits until the kernel has answered all that ask for it.
    pub(super) fn request(&mut self, messages: Messages) -> io::Result<()> {
        self.ask(messages, |_| ())
    }

    /// The same; what the kernel tells before its last answer goes to `each`.
    pub(super) fn ask(
        &mut self,
        mut messages: Messages,
        mut each: impl FnMut(Message<'_>),
    ) -> io::Result<()> {
        self.exchange(&mut messages, &mut each).map(drop)
    }

    /// Lists, and starts again where the list changed meanwhile.
    pub(super) fn list<T>(
        &mut self,
        mut messages: Messages,
        mut read: impl FnMut(Message<'_>) -> Option<T>,
    ) -> io::Result<Vec<T>> {
        for _ in 0..NETLINK_DUMP_TRIES {
            let mut found = Vec::new();
            if self.exchange(&mut messages, &mut |message| found.extend(read(message)))? {
                return Ok(found);
            }
        }
        Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            "the list changes all the time",
        ))
    }

    /// Whether what was told is whole.
    fn exchange(&mut self, messages: &mut Messages, each: &mut dyn FnMut(Message<'_>)) -> io::Result<bool> {
        let (first, count) = (self.number.wrapping_add(1), messages.count());
        self.number = self.number.wrapping_add(count);
        let (bytes, mut answers) = messages.numbered(first);
        send(&self.descriptor, bytes, SendFlags::empty())?;
        let mut whole = true;
        while answers > 0 {
            let length = self.receive()?;
            for message in message::messages(&self.buffer[..length]) {
                // Others belong to an exchange that failed before its last answer.
                if message.number.wrapping_sub(first) >= count {
                    continue;
                }
                whole &= message.flags & message::INTERRUPTED == 0;
                match message.kind {
                    message::ERROR | message::DONE if message.error() != 0 => {
                        return Err(io::Error::from_raw_os_error(message.error()));
                    }
                    message::ERROR | message::DONE => answers = answers.saturating_sub(1),
                    _ => each(message),
                }
            }
        }
        Ok(whole)
    }

    /// Reads one datagram of news and gives its messages to `each`; `false` where there is none.
    pub(super) fn hear(&mut self, each: impl FnMut(Message<'_>)) -> io::Result<bool> {
        match self.receive() {
            Ok(length) => message::messages(&self.buffer[..length]).for_each(each),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    fn receive(&mut self) -> io::Result<usize> {
        loop {
            match recv(&self.descriptor, &mut self.buffer[..], RecvFlags::TRUNC) {
                Ok((_, length)) if length <= self.buffer.len() => return Ok(length),
                Ok((_, length)) => {
                    let text = format!("the kernel's answer has {length} bytes");
                    return Err(io::Error::new(io::ErrorKind::InvalidData, text));
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
