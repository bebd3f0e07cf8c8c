//! The packet socket of one IP version, and groups of them.

use std::io;
use std::os::fd::AsFd;

use socket2::{Domain, Protocol, Socket, Type};

use super::filter::{self, Flows};
use super::link;
use crate::buffers::BufferGrants;
use crate::socket::SocketOptions;
use crate::sys::{options, packet as sys};

/// The socket of one IP version.
pub(super) struct Version {
    pub(super) socket: Socket,
    pub(super) v4: bool,
    pub(super) drops_seen: u32,
    /// Buffers asked for and obtained.
    pub(super) grants: BufferGrants,
}

impl Version {
    /// A socket that receives packets of one version from interface `index`, 0 meaning all, and keeps none of them yet.
    pub(super) fn open(v4: bool, index: u32, options: &SocketOptions) -> io::Result<Self> {
        if cfg!(target_endian = "big") {
            // There the kernel's header has the order of the machine.
            return Err(io::ErrorKind::Unsupported.into());
        }
        let ethertype = if v4 { link::IPV4 } else { link::IPV6 };
        let socket = open_packet_socket()?;
        let descriptor = socket.as_fd();
        let set = || {
            options::attach_program(
                descriptor,
                libc::SOL_SOCKET,
                libc::SO_ATTACH_FILTER,
                &filter::nothing(),
            )?;
            options::set(descriptor, libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
            options::set(descriptor, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1)?;
            let grants = BufferGrants::apply(
                descriptor,
                options.receive_buffer_bytes,
                options.send_buffer_bytes,
            )?;
            sys::bind(descriptor, index, ethertype)?;
            Ok(grants)
        };
        let grants = set().map_err(|error| explain(&error, "be set up"))?;
        Ok(Self {
            socket,
            v4,
            drops_seen: 0,
            grants,
        })
    }

    pub(super) fn keep(&self, flows: &Flows) -> io::Result<()> {
        let program = filter::keep(flows);
        options::attach_program(
            self.socket.as_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            &program,
        )
        .map_err(|error| explain(&error, "filter"))
    }
}

/// A non-blocking packet socket that receives nothing until it is bound.
pub(super) fn open_packet_socket() -> io::Result<Socket> {
    Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(0))).and_then(|socket| {
        socket.set_nonblocking(true)?;
        Ok(socket)
    })
    .map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => io::Error::new(
            error.kind(),
            "TCP packets of our own need the capability CAP_NET_RAW: run the program by sudo, or as a systemd service \
             with AmbientCapabilities=CAP_NET_RAW",
        ),
        _ => explain(&error, "be opened"),
    })
}

/// Has the kernel spread flows over `group`.
pub(super) fn form_group(group: &[Version], v4: bool) -> io::Result<()> {
    let [first, others @ ..] = group else {
        return Ok(());
    };
    if others.is_empty() {
        return Ok(());
    }
    let (level, option) = (libc::SOL_PACKET, libc::PACKET_FANOUT);
    let kind = libc::PACKET_FANOUT_CBPF as libc::c_int;
    let descriptor = first.socket.as_fd();
    let new = kind | libc::PACKET_FANOUT_FLAG_UNIQUEID as libc::c_int;
    options::set(descriptor, level, option, new << 16)?;
    let id = options::number(descriptor, level, option)? & 0xffff;
    for other in others {
        options::set(other.socket.as_fd(), level, option, kind << 16 | id)?;
    }
    options::attach_program(descriptor, level, libc::PACKET_FANOUT_DATA, &filter::spread(v4))
}

pub(super) fn explain(error: &io::Error, verb: &str) -> io::Error {
    io::Error::new(error.kind(), format!("a packet socket cannot {verb}: {error}"))
}
