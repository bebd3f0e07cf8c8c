//! A socket that another process takes over, and the way back: what that process receives of connections that are not
//! its own, it hands to the one that has them, in messages between the two.
//!
//! A message is one received message with its path: `remote` (IPv6 or mapped IPv4, port, scope), `local` (whether it is
//! known, and the address), the ECN mark and the segment size, all big-endian; then the datagrams.

use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use packet::Ecn;
use packet_io::{ReceiveBatch, ReceiveMeta, SLOT_BYTES_MAX, UdpSocket};
use quic::{Kin, Path};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags, SocketType, recv, sendmsg,
    socketpair,
};

use crate::limits::{HANDED_BACK_BUFFER_BYTES, SHARDS_MAX};

/// Bytes of a message before the datagrams.
const HEADER_BYTES: usize = 16 + 2 + 4 + 1 + 16 + 1 + 4;

/// What the other process gets of one shard.
#[derive(Debug)]
pub struct OfferedSocket {
    /// The socket at which the server listens.
    pub socket: OwnedFd,
    /// Where it hands back what belongs to connections of this process.
    pub back: OwnedFd,
}

/// The offering side, beside the socket.
pub(super) struct Offered {
    /// Where the other process's messages come.
    back: OwnedFd,
    /// Watches this and, until it is taken over, the socket.
    watcher: OwnedFd,
    is_taken_over: bool,
    watches_for_room: bool,
    buffer: Vec<u8>,
}

impl Offered {
    pub(super) fn new(socket: &UdpSocket) -> io::Result<(Self, OfferedSocket)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (back, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        // The kernel grants what it allows.
        set_socket_send_buffer_size(&theirs, HANDED_BACK_BUFFER_BYTES)?;
        let watcher = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&watcher, &back, EventData::new_u64(0), EventFlags::IN)?;
        epoll::add(&watcher, socket, EventData::new_u64(1), EventFlags::IN)?;
        let offered = OfferedSocket {
            socket: socket.as_fd().try_clone_to_owned()?,
            back: theirs,
        };
        let own = Self {
            back,
            watcher,
            is_taken_over: false,
            watches_for_room: false,
            buffer: vec![0; HEADER_BYTES + SLOT_BYTES_MAX],
        };
        Ok((own, offered))
    }

    pub(super) fn is_taken_over(&self) -> bool {
        self.is_taken_over
    }

    /// The socket is read no more; it is still written.
    pub(super) fn hand_over(&mut self, socket: &UdpSocket) {
        self.is_taken_over = true;
        // It is watched since it was offered.
        let _ = epoll::delete(&self.watcher, socket);
        // What waits for room waits on.
        let waits = std::mem::take(&mut self.watches_for_room);
        self.watch_for_room(socket, waits);
    }

    /// Has the watcher wake for room to write, or no longer.
    pub(super) fn watch_for_room(&mut self, socket: &UdpSocket, watches: bool) {
        if watches == self.watches_for_room {
            return;
        }
        self.watches_for_room = watches;
        let data = EventData::new_u64(1);
        let _ = match (self.is_taken_over, watches) {
            (true, true) => epoll::add(&self.watcher, socket, data, EventFlags::OUT),
            (true, false) => epoll::delete(&self.watcher, socket),
            (false, true) => epoll::modify(&self.watcher, socket, data, EventFlags::IN | EventFlags::OUT),
            (false, false) => epoll::modify(&self.watcher, socket, data, EventFlags::IN),
        };
    }

    /// Takes what was handed back.
    pub(super) fn receive(&mut self, batch: &mut ReceiveBatch) -> usize {
        batch.clear();
        while batch.len() < batch.capacity() {
            match recv(&self.back, &mut self.buffer[..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => {
                    // The other process has ended.
                    let _ = epoll::delete(&self.watcher, &self.back);
                    break;
                }
                Ok((length, _)) => {
                    let message = &self.buffer[..length.min(self.buffer.len())];
                    if let Some((meta, datagrams)) = decode(message) {
                        batch.push(meta, datagrams);
                    }
                }
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        batch.len()
    }
}

impl AsFd for Offered {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.watcher.as_fd()
    }
}

/// The process whose sockets this one took over: by shard, where datagrams are handed back that are its own, or of one
/// before it. An end of file there says that the shard has ended.
pub(crate) struct Predecessor {
    shards: Vec<OwnedFd>,
    /// Shards that have not ended, one bit each.
    alive: AtomicU32,
    kin: Kin,
}

impl Predecessor {
    pub(crate) fn new(shards: Vec<OwnedFd>, kin: Kin) -> Self {
        let all = shards
            .iter()
            .enumerate()
            .fold(0, |all, (index, _)| all | bit(index));
        Self {
            shards,
            alive: AtomicU32::new(all),
            kin,
        }
    }

    /// The way back to a shard.
    pub(crate) fn way(&self, shard: usize) -> io::Result<OwnedFd> {
        self.shards.get(shard).ok_or(io::ErrorKind::NotFound)?.try_clone()
    }

    pub(crate) fn lives(&self, shard: usize) -> bool {
        self.alive.load(Ordering::Relaxed) & bit(shard) != 0
    }

    /// A shard has ended. After the last one, datagrams are answered here.
    pub(crate) fn shard_has_ended(&self, shard: usize) {
        let others = !bit(shard);
        if self.alive.fetch_and(others, Ordering::Relaxed) & others == 0 {
            self.kin.set_predecessor(false);
        }
    }

    /// Hands datagrams back to a shard. How many of them it had no room for.
    pub(crate) fn hand_back(
        &self,
        shard: u8,
        path: Path,
        ecn: Ecn,
        datagrams: &[u8],
        segment_size: usize,
    ) -> u64 {
        let Some(back) = self.shards.get(usize::from(shard)) else {
            return 0;
        };
        let header = encode(path, ecn, segment_size);
        let parts = [IoSlice::new(&header), IoSlice::new(datagrams)];
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        match sendmsg(back, &parts, &mut SendAncillaryBuffer::default(), flags) {
            Ok(_) => 0,
            Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => {
                self.shard_has_ended(usize::from(shard));
                0
            }
            Err(_) => datagrams.len().div_ceil(segment_size.max(1)) as u64,
        }
    }
}

fn bit(shard: usize) -> u32 {
    const { assert!(SHARDS_MAX <= u32::BITS as usize) };
    1 << shard
}

fn encode(path: Path, ecn: Ecn, segment_size: usize) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    let mapped = |ip: IpAddr| match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    };
    let scope = match path.remote {
        SocketAddr::V6(v6) => v6.scope_id(),
        SocketAddr::V4(_) => 0,
    };
    header[..16].copy_from_slice(&mapped(path.remote.ip()));
    header[16..18].copy_from_slice(&path.remote.port().to_be_bytes());
    header[18..22].copy_from_slice(&scope.to_be_bytes());
    if let Some(local) = path.local {
        header[22] = 1;
        header[23..39].copy_from_slice(&mapped(local));
    }
    header[39] = ecn.bits();
    header[40..].copy_from_slice(&(segment_size as u32).to_be_bytes());
    header
}

/// What was received, and its datagrams; `None` where it is none.
fn decode(message: &[u8]) -> Option<(ReceiveMeta, &[u8])> {
    let (header, datagrams) = message.split_first_chunk::<HEADER_BYTES>()?;
    let address =
        |bytes: &[u8]| -> Option<Ipv6Addr> { Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?)) };
    let word = |bytes: &[u8]| Some(u32::from_be_bytes(bytes.try_into().ok()?));
    let ip = address(&header[..16])?;
    let port = u16::from_be_bytes([header[16], header[17]]);
    let source = match ip.to_ipv4_mapped() {
        Some(v4) => SocketAddr::new(v4.into(), port),
        None => SocketAddrV6::new(ip, port, 0, word(&header[18..22])?).into(),
    };
    let local = match header[22] {
        0 => None,
        _ => Some(IpAddr::V6(address(&header[23..39])?).to_canonical()),
    };
    let meta = ReceiveMeta {
        source,
        local,
        target: None,
        ecn: Ecn::from_bits(header[39]),
        segment_size: word(&header[40..])? as usize,
        len: datagrams.len(),
        truncated: false,
    };
    Some((meta, datagrams))
}

#[cfg(test)]
mod tests {
    use packet_io::{DatagramSocket, Outgoing, SocketOptions};
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;
    use crate::carrier::{Carrier, UdpCarrier, adopted};

    #[test]
    fn what_is_handed_back_is_as_it_was_received() {
        let paths = [
            ("192.0.2.1:4433", Some("192.0.2.2")),
            ("[2001:db8::1]:1", Some("2001:db8::2")),
            ("[fe80::1%7]:65535", None),
        ];
        for (remote, local) in paths {
            let path = Path {
                remote: remote.parse().unwrap(),
                local: local.map(|local| local.parse().unwrap()),
            };
            let message = [&encode(path, Ecn::Ect0, 1_200)[..], b"datagrams"].concat();
            let (meta, datagrams) = decode(&message).unwrap();
            assert_eq!((meta.source, meta.local), (path.remote, path.local));
            assert_eq!((meta.ecn, meta.segment_size, meta.len), (Ecn::Ect0, 1_200, 9));
            assert_eq!(datagrams, b"datagrams");
        }
        assert!(decode(&[0; HEADER_BYTES - 1]).is_none());
    }

    fn send_to(address: SocketAddr, payload: &[u8]) {
        let mut client = UdpSocket::connect(None, address, &SocketOptions::default()).unwrap();
        assert_eq!(
            client
                .send(&[Outgoing::connected(payload, 100)])
                .unwrap()
                .segments,
            1
        );
    }

    fn received(carrier: &mut dyn Carrier) -> Vec<Vec<u8>> {
        let mut batch = ReceiveBatch::new(8, SLOT_BYTES_MAX);
        let count = carrier.receive(&mut batch).unwrap();
        (0..count).map(|index| batch.take(index).1.to_vec()).collect()
    }

    #[test]
    fn a_socket_is_read_by_both_until_it_is_taken_over_and_then_the_former_reads_what_is_handed_back() {
        let options = SocketOptions::default();
        let socket = UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &options).unwrap();
        let address = socket.local_addr().unwrap();
        let mut former = adopted(socket);
        let offered = former.offer().unwrap();
        let mut next = adopted(UdpSocket::adopt(offered.socket, &options).unwrap());
        assert_eq!(next.local_addr(), Some(address));

        send_to(address, b"one");
        assert_eq!(received(former.as_mut()), [b"one"]);
        former.hand_over();
        send_to(address, b"two");
        assert!(received(former.as_mut()).is_empty());
        assert_eq!(received(next.as_mut()), [b"two"]);

        let kin = Kin::default();
        kin.set_predecessor(true);
        let predecessor = Predecessor::new(vec![offered.back], kin);
        let path = Path {
            remote: "192.0.2.1:5".parse().unwrap(),
            local: None,
        };
        assert_eq!(predecessor.hand_back(0, path, Ecn::NotEct, b"back", 4), 0);
        predecessor.hand_back(1, path, Ecn::NotEct, b"nobody", 6);
        assert_eq!(received(former.as_mut()), [b"back"]);
        // One that does not read loses what finds no room.
        let much = [0; SLOT_BYTES_MAX];
        let lost = (0..1_000).map(|_| predecessor.hand_back(0, path, Ecn::NotEct, &much, 1_000));
        assert!(lost.sum::<u64>() > 0);
        assert!(predecessor.lives(0) && !predecessor.lives(1));
        drop(former);
        assert_eq!(predecessor.hand_back(0, path, Ecn::NotEct, b"late", 4), 0);
        assert!(!predecessor.lives(0));
        // The socket lives on, with what is in it.
        send_to(address, b"three");
        assert_eq!(received(next.as_mut()), [b"three"]);
    }

    #[test]
    fn what_waits_for_room_waits_on_where_the_socket_is_offered_and_taken_over() {
        let is_ready = |carrier: &UdpCarrier| {
            let mut watched = [PollFd::new(carrier, PollFlags::IN)];
            poll(&mut watched, Some(&Timespec::default())).unwrap() > 0
        };
        let options = SocketOptions::default();
        let socket = UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &options).unwrap();
        let mut carrier = UdpCarrier {
            socket,
            offered: None,
            waits_for_room: true,
        };
        // There is room, of which it has not been told.
        let _offered = carrier.offer().unwrap();
        assert!(is_ready(&carrier));
        carrier.hand_over();
        assert!(is_ready(&carrier));
        carrier.send(&[]);
        assert!(!is_ready(&carrier));
    }

    #[test]
    fn a_socket_that_nobody_took_over_is_read_as_before() {
        let options = SocketOptions::default();
        let socket = UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &options).unwrap();
        let address = socket.local_addr().unwrap();
        let mut carrier = adopted(socket);
        drop(carrier.offer().unwrap());
        carrier.withdraw();
        send_to(address, b"one");
        assert_eq!(received(carrier.as_mut()), [b"one"]);
        assert!(UdpSocket::adopt(tempfile::tempfile().unwrap().into(), &options).is_err());
    }
}
