//! The TCP side of a relay hop: two threads per connection that copy bytes (in the kernel, where it can splice).

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;

use crate::Error;
use crate::error::During;

/// Accepts on `listen` for as long as the process lives and connects each stream to `target`.
///
/// # Errors
/// When the address is taken.
pub(crate) fn start(listen: SocketAddr, target: SocketAddr) -> Result<(), Error> {
    let listener = TcpListener::bind(listen).during(|| format!("bind a TCP relay to {listen}"))?;
    thread::spawn(move || {
        for accepted in listener.incoming().flatten() {
            thread::spawn(move || join(accepted, target));
        }
    });
    Ok(())
}

/// Copies both ways until both have ended. A target that refuses ends the accepted stream.
fn join(accepted: TcpStream, target: SocketAddr) {
    let Ok(upstream) = TcpStream::connect(target) else {
        return;
    };
    let _ = accepted.set_nodelay(true);
    let _ = upstream.set_nodelay(true);
    let (Ok(accepted_writer), Ok(upstream_writer)) = (accepted.try_clone(), upstream.try_clone()) else {
        return;
    };
    let forth = thread::spawn(move || copy(accepted, upstream_writer));
    copy(upstream, accepted_writer);
    let _ = forth.join();
}

/// Copies to the end and passes the half-close on; a reset ends both directions.
fn copy(mut from: TcpStream, mut to: TcpStream) {
    let how = if io::copy(&mut from, &mut to).is_ok() {
        Shutdown::Write
    } else {
        Shutdown::Both
    };
    let _ = to.shutdown(how);
    if how == Shutdown::Both {
        let _ = from.shutdown(how);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::time::Duration;

    use super::*;

    #[test]
    fn bytes_and_half_close_pass() {
        let target = TcpListener::bind("127.0.0.1:0").unwrap();
        let probe = TcpListener::bind("127.0.0.1:0").unwrap();
        let listen = probe.local_addr().unwrap();
        drop(probe);
        start(listen, target.local_addr().unwrap()).unwrap();
        let mut client = TcpStream::connect(listen).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        client.write_all(b"question").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let (mut server, _) = target.accept().unwrap();
        server.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut text = String::new();
        server.read_to_string(&mut text).unwrap();
        server.write_all(format!("answer to {text}").as_bytes()).unwrap();
        drop(server);
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "answer to question");
    }
}
