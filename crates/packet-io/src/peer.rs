//! Who is at the other end of a Unix socket.

use std::io;
use std::os::fd::BorrowedFd;

use crate::sys::options;

/// The process at the other end, at the time it connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerCredentials {
    /// Effective user.
    pub user: u32,
    /// Effective group.
    pub group: u32,
    /// `None`: it is in a PID namespace that this process does not see.
    pub process: Option<i32>,
}

/// Asks the kernel. `rustix` has the same question, but its answer cannot hold a process that has no number here.
///
/// # Errors
/// It is no Unix socket.
pub fn peer_credentials(socket: BorrowedFd<'_>) -> io::Result<PeerCredentials> {
    let credentials = options::peer_credentials(socket)?;
    Ok(PeerCredentials {
        user: credentials.uid,
        group: credentials.gid,
        process: Some(credentials.pid).filter(|&process| process > 0),
    })
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, OwnedFd};
    use std::os::unix::net::UnixStream;
    use std::process::{Command, Stdio};

    use super::*;

    const IS_ELSEWHERE: &str = "PACKET_IO_TEST_IS_IN_ANOTHER_PID_NAMESPACE";

    #[test]
    fn a_process_at_the_other_end_is_told() {
        let (one, _other) = UnixStream::pair().unwrap();
        let credentials = peer_credentials(one.as_fd()).unwrap();
        assert_eq!(credentials.process, i32::try_from(std::process::id()).ok());
        assert_eq!(credentials.user, rustix::process::geteuid().as_raw());
        assert_eq!(credentials.group, rustix::process::getegid().as_raw());
    }

    #[test]
    fn a_process_of_another_pid_namespace_has_no_number() {
        if std::env::var_os(IS_ELSEWHERE).is_some() {
            let credentials = peer_credentials(io::stdin().as_fd()).unwrap();
            assert_eq!(credentials.process, None);
            assert_eq!(credentials.user, rustix::process::geteuid().as_raw());
            return;
        }
        let (one, _other) = UnixStream::pair().unwrap();
        let inside = Command::new("unshare")
            .args(["--map-root-user", "--pid", "--fork"])
            .arg(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "peer::tests::a_process_of_another_pid_namespace_has_no_number",
            ])
            .env(IS_ELSEWHERE, "1")
            .stdin(Stdio::from(OwnedFd::from(one)))
            .output();
        // 1 is `unshare` itself; a test that fails ends with 101.
        let Some(inside) = inside.ok().filter(|inside| inside.status.code() != Some(1)) else {
            eprintln!("not run, `unshare --map-root-user --pid` fails here");
            return;
        };
        let told = String::from_utf8_lossy(&inside.stdout);
        assert!(inside.status.success() && told.contains("1 passed"), "{told}");
    }
}
