//! Tries what was built, as root: the image in empty root directories ([`image`]), and the package on a machine of its
//! own ([`installation`]). Bytes have to pass between a server and a client in both.

mod image;
mod installation;

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};

/// How long each step may take, with a machine that is busy with other things.
const STEP_LIMIT: Duration = Duration::from_secs(30);

/// Bytes that go through the tunnel and come back: more than all buffers on the way hold.
const TRAFFIC_BYTES: usize = 32 << 20;

/// The port of the client's forward, and that of its target. Each trial has a network of its own.
const FORWARD_PORT: u16 = 5_000;
const TARGET_PORT: u16 = 6_000;

/// Runs all trials; output of the programs is in errors.
pub(super) fn run(containerfile: &Path, package: &Path) -> Result<()> {
    image::run(containerfile)?;
    println!("tried: a server and a client in the image's root directory, and a TCP forward between them");
    let missing = testbed::programs::find(&["dpkg"]).is_none();
    let missing = missing.then(|| "needs the program dpkg".to_owned());
    if let Some(reason) = testbed::machine::obstacle().or(missing) {
        println!("the package was not tried: {reason}");
        return Ok(());
    }
    installation::run(package)?;
    println!("tried: the package installed, its services started by systemd, upgraded, removed and purged");
    Ok(())
}

/// The forward of a client, as `-L` takes it.
fn forward() -> String {
    format!("tcp:{FORWARD_PORT}=127.0.0.1:{TARGET_PORT}")
}

/// The target of the forward, which servers refuse by default because it is their own machine.
fn allowed_target() -> String {
    format!("127.0.0.1/32:{TARGET_PORT}")
}

/// Listens as the target; to be called in the network of the trial.
fn target() -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, TARGET_PORT))?;
    thread::spawn(move || answer(&listener));
    Ok(())
}

/// Sends everything back, connection by connection.
fn answer(listener: &TcpListener) {
    for stream in listener.incoming().flatten() {
        thread::spawn(move || {
            // A connection that fails is seen at its other end.
            let _ = io::copy(&mut &stream, &mut &stream);
            let _ = stream.shutdown(Shutdown::Write);
        });
    }
}

/// Opens a connection by way of the client; to be called in the network of the trial.
fn connect() -> io::Result<TcpStream> {
    TcpStream::connect((Ipv4Addr::LOCALHOST, FORWARD_PORT))
}

/// Sends bytes of a known order, and compares what comes back.
fn exchange(stream: TcpStream) -> Result<()> {
    stream.set_read_timeout(Some(STEP_LIMIT))?;
    stream.set_write_timeout(Some(STEP_LIMIT))?;
    let sent: Vec<u8> = (0..TRAFFIC_BYTES).map(|index| (index % 251) as u8).collect();
    let mut received = Vec::new();
    thread::scope(|scope| {
        let writing = scope.spawn(|| {
            (&stream).write_all(&sent)?;
            stream.shutdown(Shutdown::Write)
        });
        let read = (&stream).read_to_end(&mut received);
        writing.join().expect("writing does not panic")?;
        read
    })?;
    if received != sent {
        bail!("{} of {TRAFFIC_BYTES} bytes came back, or others", received.len());
    }
    Ok(())
}
