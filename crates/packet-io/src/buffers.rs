//! Socket buffers: the requested size if the process may set it, else what the kernel grants, which is reported.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::net::sockopt;

use crate::privileges::PrivilegedOption;

/// One buffer: the requested size and the granted one, in bytes of payload and its overhead. The kernel doubles what is
/// requested and reports the double; both figures here are halved again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Asked for; 0 where the system's default was left.
    pub wanted: usize,
    /// Obtained.
    pub obtained: usize,
}

impl Grant {
    /// Asks for a receive buffer of this size in bytes, 0 meaning the present one.
    pub(crate) fn of_receive_buffer(socket: impl AsFd, wanted: usize) -> io::Result<Self> {
        let socket = socket.as_fd();
        let obtained = || io::Result::Ok(sockopt::socket_recv_buffer_size(socket)? / 2);
        if wanted > 0 {
            sockopt::set_socket_recv_buffer_size(socket, wanted)?;
            exceed(
                PrivilegedOption::ReceiveBuffer(wanted),
                socket,
                obtained()? < wanted,
            );
        }
        let obtained = obtained()?;
        Ok(Self { wanted, obtained })
    }

    /// The same for the send buffer.
    fn of_send_buffer(socket: BorrowedFd<'_>, wanted: usize) -> io::Result<Self> {
        let obtained = || io::Result::Ok(sockopt::socket_send_buffer_size(socket)? / 2);
        if wanted > 0 {
            sockopt::set_socket_send_buffer_size(socket, wanted)?;
            exceed(PrivilegedOption::SendBuffer(wanted), socket, obtained()? < wanted);
        }
        let obtained = obtained()?;
        Ok(Self { wanted, obtained })
    }
}

/// Where the kernel has cut a buffer to the sysctl's limit, a privilege leads beyond it.
fn exceed(option: PrivilegedOption, socket: BorrowedFd<'_>, is_cut: bool) {
    if is_cut {
        // Without it the buffer is what the kernel grants everybody.
        let _ = option.set(socket);
    }
}

/// Buffers of one socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferGrants {
    /// `SO_RCVBUF`.
    pub receive: Grant,
    /// `SO_SNDBUF`.
    pub send: Grant,
}

impl BufferGrants {
    /// Asks for the given sizes in bytes, 0 meaning the system's default.
    pub(crate) fn apply(socket: impl AsFd, receive: usize, send: usize) -> io::Result<Self> {
        let socket = socket.as_fd();
        Ok(Self {
            receive: Grant::of_receive_buffer(socket, receive)?,
            send: Grant::of_send_buffer(socket, send)?,
        })
    }

    /// One sentence if a buffer is smaller than requested, with the command that allows more.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        let short = |name: &str, sysctl: &str, grant: Grant| {
            (grant.obtained < grant.wanted).then(|| {
                let Grant { wanted, obtained } = grant;
                let granted = format!("the {name} buffer got {obtained} of {wanted} bytes");
                (granted, format!("sysctl -w net.core.{sysctl}={wanted}"))
            })
        };
        let receive = short("receive", "rmem_max", self.receive);
        let send = short("send", "wmem_max", self.send);
        let (granted, commands): (Vec<_>, Vec<_>) = receive.into_iter().chain(send).unzip();
        (!granted.is_empty()).then(|| {
            let (granted, commands) = (granted.join(" and "), commands.join("; "));
            format!("{granted}, so bursts may be lost; as root, run: {commands}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_below_need_names_the_exact_command() {
        let full = Grant {
            wanted: 1000,
            obtained: 1000,
        };
        let short = Grant {
            wanted: 1000,
            obtained: 10,
        };
        assert_eq!(
            BufferGrants {
                receive: full,
                send: full
            }
            .warning(),
            None
        );
        let warning = BufferGrants {
            receive: short,
            send: full,
        }
        .warning()
        .unwrap();
        assert!(
            warning.ends_with("run: sysctl -w net.core.rmem_max=1000"),
            "{warning}"
        );
        let warning = BufferGrants {
            receive: short,
            send: short,
        }
        .warning()
        .unwrap();
        assert!(
            warning.ends_with("sysctl -w net.core.rmem_max=1000; sysctl -w net.core.wmem_max=1000"),
            "{warning}"
        );
    }
}
