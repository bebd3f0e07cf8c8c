//! What is asked over a lane.

use std::os::fd::AsFd;

use packet_io::{InterfaceName, PrivilegedOption};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, sockopt};
use serde::{Deserialize, Serialize};

use crate::changes::{Request, decode, encode};
use crate::limits::SOCKET_BUFFER_BYTES_MAX;
use crate::mark::OUTER_MARK;

/// A call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Call {
    Change(Request),
    /// Set an option of the socket that comes with it.
    SetOption(SocketOption),
    /// Serve the lane that comes with it, besides those that are there.
    ServeToo,
}

/// An option of a socket of the tunnel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum SocketOption {
    /// The mark of packets that keep outside the tunnel, and no other.
    Mark,
    Interface(Option<String>),
    ReceiveBuffer(usize),
    SendBuffer(usize),
}

impl SocketOption {
    /// What stands for an option; `None` where nobody else sets it.
    pub(super) fn of(option: PrivilegedOption) -> Option<Self> {
        match option {
            PrivilegedOption::Mark(mark) => (mark == OUTER_MARK).then_some(Self::Mark),
            PrivilegedOption::Interface(interface) => {
                Some(Self::Interface(interface.map(|name| name.as_str().to_owned())))
            }
            PrivilegedOption::ReceiveBuffer(bytes) => Some(Self::ReceiveBuffer(bytes)),
            PrivilegedOption::SendBuffer(bytes) => Some(Self::SendBuffer(bytes)),
        }
    }

    /// Looks at the value, and at the socket, which has to be one of UDP or TCP; then sets it.
    pub(super) fn set(self, socket: impl AsFd) -> Result<(), Errno> {
        let socket = socket.as_fd();
        let is_inet = [AddressFamily::INET, AddressFamily::INET6].contains(&sockopt::socket_domain(socket)?);
        let is_plain = [SocketType::DGRAM, SocketType::STREAM].contains(&sockopt::socket_type(socket)?);
        if !(is_inet && is_plain) {
            return Err(Errno::PERM);
        }
        let buffer = |bytes: usize| match bytes {
            1..=SOCKET_BUFFER_BYTES_MAX => Ok(bytes),
            _ => Err(Errno::INVAL),
        };
        let option = match self {
            Self::Mark => PrivilegedOption::Mark(OUTER_MARK),
            Self::Interface(name) => {
                let name = name.map(|name| name.parse::<InterfaceName>());
                PrivilegedOption::Interface(name.transpose().map_err(|_| Errno::INVAL)?)
            }
            Self::ReceiveBuffer(bytes) => PrivilegedOption::ReceiveBuffer(buffer(bytes)?),
            Self::SendBuffer(bytes) => PrivilegedOption::SendBuffer(buffer(bytes)?),
        };
        let set = option.apply(socket);
        set.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::INVAL))
    }
}

/// Reads `input` as a call: what is understood is the same after it was written and read again.
#[doc(hidden)]
pub fn fuzz(input: &[u8]) {
    crate::changes::fuzz(input);
    if let Ok(call) = decode::<Call>(input)
        && let Ok(written) = encode(&call)
    {
        assert_eq!(decode::<Call>(&written).expect("what we write"), call);
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn only_sockets_of_the_internet_and_values_of_ours_are_taken() {
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (unix, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let file = std::fs::File::open("/proc/self/status").unwrap();
        assert_eq!(SocketOption::ReceiveBuffer(4_096).set(&unix), Err(Errno::PERM));
        assert_eq!(SocketOption::Interface(None).set(&file), Err(Errno::NOTSOCK));
        for wrong in [
            SocketOption::ReceiveBuffer(0),
            SocketOption::SendBuffer(SOCKET_BUFFER_BYTES_MAX + 1),
            SocketOption::Interface(Some("a/b".to_owned())),
            SocketOption::Interface(Some(String::new())),
        ] {
            assert_eq!(wrong.clone().set(&udp), Err(Errno::INVAL), "{wrong:?}");
        }
        SocketOption::Interface(Some("lo".to_owned())).set(&udp).unwrap();
    }

    #[test]
    fn a_mark_is_ours_or_nobodys() {
        assert_eq!(
            SocketOption::of(PrivilegedOption::Mark(OUTER_MARK)),
            Some(SocketOption::Mark)
        );
        assert_eq!(SocketOption::of(PrivilegedOption::Mark(OUTER_MARK + 1)), None);
        for text in [
            "{\"set_option\":{\"mark\":7}}",
            "{\"set_option\":\"priority\"}",
            "\"serve\"",
        ] {
            assert!(decode::<Call>(text.as_bytes()).is_err(), "{text}");
        }
    }
}
