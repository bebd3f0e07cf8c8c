//! A netlink socket that asks and waits for the answer.
//!
//! The netlink-packet crates encode and decode messages. Sequence numbers, interrupted listings and limits are decided
//! here. A message that those crates cannot decode is skipped in answers and listings; listeners are told of it.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkBuffer, NetlinkDeserializable,
    NetlinkHeader, NetlinkMessage, NetlinkPayload, NetlinkSerializable, Parseable,
};
use netlink_packet_netfilter::NetfilterMessage;
use netlink_packet_route::RouteNetlinkMessage;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
};

use crate::limits::{NETLINK_ANSWER_TIME, NETLINK_BUFFER_BYTES, NETLINK_DUMP_TRIES};

/// A subsystem of the kernel, known by its messages.
pub(super) trait Subsystem: NetlinkSerializable + NetlinkDeserializable {
    const PROTOCOL: Option<Protocol>;
}

/// Links, addresses, routes.
impl Subsystem for RouteNetlinkMessage {
    // Its protocol has number 0, which is also what no protocol stands for.
    const PROTOCOL: Option<Protocol> = None;
}

/// Packet filter and NAT.
impl Subsystem for NetfilterMessage {
    const PROTOCOL: Option<Protocol> = Some(netlink::NETFILTER);
}

/// A socket to the subsystem of these messages.
#[derive(Debug)]
pub(super) struct Socket<M> {
    descriptor: OwnedFd,
    number: u32,
    buffer: Vec<u8>,
    messages: PhantomData<M>,
}

impl<M: Subsystem> Socket<M> {
    /// Opens a socket for questions.
    pub(super) fn open() -> io::Result<Self> {
        let socket = Self::bound(0, SocketFlags::CLOEXEC)?;
        set_socket_timeout(&socket.descriptor, Timeout::Recv, Some(NETLINK_ANSWER_TIME))?;
        Ok(socket)
    }

    /// Opens a socket that hears what the groups of this mask are told, and does not block.
    pub(super) fn listener(groups: u32) -> io::Result<Self> {
        Self::bound(groups, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
    }

    fn bound(groups: u32, flags: SocketFlags) -> io::Result<Self> {
        let descriptor = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, M::PROTOCOL)?;
        bind(&descriptor, &SocketAddrNetlink::new(0, groups))?;
        Ok(Self {
            descriptor,
            number: 0,
            buffer: vec![0; NETLINK_BUFFER_BYTES],
            messages: PhantomData,
        })
    }

    /// Asks for a change and waits until it is made.
    pub(super) fn change(&mut self, flags: u16, message: M) -> io::Result<()> {
        self.transact([(flags | NLM_F_ACK, message)])
    }

    /// Sends messages together and waits until the kernel has answered all that ask for it.
    pub(super) fn transact(&mut self, messages: impl IntoIterator<Item = (u16, M)>) -> io::Result<()> {
        let mut requests: Vec<_> = messages
            .into_iter()
            .map(|(flags, message)| request(flags, message))
            .collect();
        self.exchange(&mut requests, &mut |_| ()).map(drop)
    }

    /// Asks about one object; what the kernel tells before its last answer goes to `each`.
    pub(super) fn ask(&mut self, message: M, mut each: impl FnMut(M)) -> io::Result<()> {
        self.exchange(&mut [request(NLM_F_ACK, message)], &mut each)
            .map(drop)
    }

    /// Lists, and starts again where the list changed meanwhile.
    pub(super) fn list<T>(&mut self, message: M, mut read: impl FnMut(M) -> Option<T>) -> io::Result<Vec<T>> {
        let mut requests = [request(NLM_F_DUMP, message)];
        for _ in 0..NETLINK_DUMP_TRIES {
            let mut found = Vec::new();
            if self.exchange(&mut requests, &mut |message| found.extend(read(message)))? {
                return Ok(found);
            }
        }
        Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            "the list changes all the time",
        ))
    }

    /// Whether what was told is whole.
    fn exchange(&mut self, requests: &mut [NetlinkMessage<M>], each: &mut dyn FnMut(M)) -> io::Result<bool> {
        let first = self.number.wrapping_add(1);
        let mut bytes = Vec::new();
        let mut answers = 0_usize;
        for request in &mut *requests {
            self.number = self.number.wrapping_add(1);
            request.header.sequence_number = self.number;
            request.finalize();
            let start = bytes.len();
            bytes.resize(start + request.buffer_len().next_multiple_of(4), 0);
            request.serialize(&mut bytes[start..]);
            answers += usize::from(is_answered(request.header.flags));
        }
        let last = self.number;
        send(&self.descriptor, &bytes, SendFlags::empty())?;
        let mut whole = true;
        while answers > 0 {
            let length = self.receive()?;
            for (header, payload) in messages(&self.buffer[..length]) {
                // Others belong to an exchange that failed before its last answer.
                if header.sequence_number.wrapping_sub(first) > last.wrapping_sub(first) {
                    continue;
                }
                whole &= header.flags & NLM_F_DUMP_INTR == 0;
                let code = match payload {
                    Some(NetlinkPayload::Error(error)) => error.raw_code(),
                    Some(NetlinkPayload::Done(done)) => done.code,
                    Some(NetlinkPayload::InnerMessage(message)) => {
                        each(message);
                        continue;
                    }
                    _ => continue,
                };
                if code != 0 {
                    return Err(io::Error::from_raw_os_error(code.wrapping_neg()));
                }
                answers = answers.saturating_sub(1);
            }
        }
        Ok(whole)
    }

    /// Reads one datagram of news and gives its messages to `each`, `None` for one that cannot be decoded; `false`
    /// where there is no news.
    pub(super) fn hear(&mut self, mut each: impl FnMut(Option<M>)) -> io::Result<bool> {
        let Some(length) = self.receive_news()? else {
            return Ok(false);
        };
        for (_, payload) in messages(&self.buffer[..length]) {
            each(match payload {
                Some(NetlinkPayload::InnerMessage(message)) => Some(message),
                _ => None,
            });
        }
        Ok(true)
    }

    /// Drops one datagram of news undecoded; `false` where there is none.
    pub(super) fn skip(&mut self) -> io::Result<bool> {
        self.receive_news().map(|length| length.is_some())
    }

    fn receive_news(&mut self) -> io::Result<Option<usize>> {
        match self.receive() {
            Ok(length) => Ok(Some(length)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
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

impl<M> AsFd for Socket<M> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Whether the kernel answers such a request where it succeeds. Each bit of a listing's flag means something else in a
/// change.
fn is_answered(flags: u16) -> bool {
    flags & NLM_F_ACK != 0 || flags & NLM_F_DUMP == NLM_F_DUMP
}

fn request<M: Subsystem>(flags: u16, message: M) -> NetlinkMessage<M> {
    let mut header = NetlinkHeader::default();
    header.flags = flags | NLM_F_REQUEST;
    NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message))
}

/// The messages of one received datagram, without payload where it cannot be decoded; what does not fit its own length
/// ends them.
fn messages<M: Subsystem>(
    mut bytes: &[u8],
) -> impl Iterator<Item = (NetlinkHeader, Option<NetlinkPayload<M>>)> {
    std::iter::from_fn(move || {
        let header = NetlinkHeader::parse(&NetlinkBuffer::new_checked(bytes).ok()?).ok()?;
        let payload = NetlinkMessage::deserialize(bytes).ok();
        let length = usize::try_from(header.length).ok()?.next_multiple_of(4);
        bytes = bytes.get(length..).unwrap_or_default();
        Some((header, payload.map(|message| message.payload)))
    })
}

/// Reads `input` as a datagram of either subsystem: each message that it holds is decoded as it is alone, and its
/// routes are read.
#[doc(hidden)]
pub fn fuzz(input: &[u8]) {
    fn all<M: Subsystem>(input: &[u8]) -> Vec<M> {
        let (mut decoded, mut start) = (Vec::new(), 0);
        for (header, payload) in messages::<M>(input) {
            let length = usize::try_from(header.length).expect("it fits a datagram");
            let alone = &input[start..start + length];
            assert_eq!(
                messages::<M>(alone).next().expect("whole").1.is_some(),
                payload.is_some()
            );
            start += length.next_multiple_of(4);
            if let Some(NetlinkPayload::InnerMessage(message)) = payload {
                decoded.push(message);
            }
        }
        decoded
    }
    for message in all::<RouteNetlinkMessage>(input) {
        crate::route::read(message);
    }
    all::<NetfilterMessage>(input);
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
    use netlink_packet_route::link::{LinkAttribute, LinkMessage};

    use super::*;

    fn bytes(number: u32, attribute: LinkAttribute) -> Vec<u8> {
        let mut link = LinkMessage::default();
        link.attributes.push(attribute);
        let mut message = request(0, RouteNetlinkMessage::NewLink(link));
        message.header.sequence_number = number;
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        bytes
    }

    fn read(bytes: &[u8]) -> Vec<(u32, bool)> {
        messages::<RouteNetlinkMessage>(bytes)
            .map(|(header, payload)| (header.sequence_number, payload.is_some()))
            .collect()
    }

    #[test]
    fn a_message_that_cannot_be_decoded_hides_no_other() {
        let mut wrong = bytes(2, LinkAttribute::Mtu(1280));
        // The attribute claims to be longer than its message.
        wrong[32] += 4;
        let datagram = [
            bytes(1, LinkAttribute::IfName("odd".to_owned())),
            wrong,
            bytes(3, LinkAttribute::Mtu(1500)),
        ]
        .concat();
        assert_eq!(read(&datagram), [(1, true), (2, false), (3, true)]);
    }

    #[test]
    fn a_change_that_asks_for_no_answer_is_not_waited_for() {
        for (flags, expected) in [
            (NLM_F_ACK, true),
            (NLM_F_DUMP, true),
            (NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK, true),
            (NLM_F_CREATE | NLM_F_EXCL, false),
            (NLM_F_CREATE | NLM_F_REPLACE, false),
        ] {
            assert_eq!(is_answered(flags), expected, "{flags:#x}");
        }
    }

    #[test]
    fn lengths_that_lie_end_the_reading() {
        for length in [0_u32, 3, 15, 17, u32::MAX] {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&length.to_ne_bytes());
            assert_eq!(read(&bytes), []);
        }
    }
}
