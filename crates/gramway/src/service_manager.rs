//! What the service manager is told, by the protocol of sd_notify(3): that the program is ready, how it is doing, that
//! it ends, and at intervals that all its shards live.
//!
//! There is one manager of a process, as there is one standard error; without one, nothing is told. The socket is
//! connected before the sandbox closes.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tunnel::handle::{Controller, Notice};

use crate::exit::{Problem, sentence};
use crate::limits::MANAGER_PATIENCE;
use crate::log;

static MANAGER: OnceLock<UnixDatagram> = OnceLock::new();

/// Another process has taken over.
static IS_SUCCEEDED: AtomicBool = AtomicBool::new(false);

/// Connects to the manager that the environment names. What fails is told, because such a service never gets ready.
pub(crate) fn connect() -> Result<(), Problem> {
    let Some(place) = env::var_os("NOTIFY_SOCKET").filter(|place| !place.is_empty()) else {
        return Ok(());
    };
    let socket = open(&place)
        .map_err(|error| Problem::unavailable(format!("cannot reach NOTIFY_SOCKET: {}", sentence(&error))))?;
    MANAGER.get_or_init(|| socket);
    Ok(())
}

/// A path, or `@` and an abstract name.
fn open(place: &OsStr) -> io::Result<UnixDatagram> {
    let address = match place.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(place)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    // A manager that does not read must not hold packets up.
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn tell(text: &str) {
    if IS_SUCCEEDED.load(Ordering::Relaxed) {
        return;
    }
    if let Some(manager) = MANAGER.get() {
        // It is gone or busy, and misses a beat.
        let _ = manager.send(text.as_bytes());
    }
}

/// The program does its work from here on; a client may still be connecting. Its shards show that they live.
pub(crate) fn ready(controller: Controller) -> Result<(), Problem> {
    tell("READY=1\nSTATUS=running");
    let Some(interval) = watchdog_interval(|name| env::var(name).ok()) else {
        return Ok(());
    };
    if MANAGER.get().is_none() {
        return Ok(());
    }
    let beat = move || {
        loop {
            // Every shard has to answer: one that hangs in a loop does not.
            if controller.snapshot().is_some() {
                tell("WATCHDOG=1");
            }
            thread::sleep(interval);
        }
    };
    let thread = thread::Builder::new().name("watchdog".to_owned()).spawn(beat);
    thread
        .map(drop)
        .map_err(|error| Problem::bug(format!("cannot start the watchdog: {}", sentence(&error))))
}

/// The configuration is read again.
pub(crate) fn reloading() {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let microseconds = now.tv_sec * 1_000_000 + now.tv_nsec / 1_000;
    tell(&format!("RELOADING=1\nMONOTONIC_USEC={microseconds}"));
}

/// It was read, and counts or not.
pub(crate) fn reloaded(is_successful: bool) {
    let status = if is_successful {
        "running"
    } else {
        "running; the last reload failed"
    };
    tell(&format!("READY=1\nSTATUS={status}"));
}

/// Another process goes on with the service, and tells how it is doing from here on.
pub(crate) fn succeeded_by(process: u32) {
    if let Some(manager) = MANAGER.get() {
        // The manager ends the whole service with the process that it takes for the main one, so this is worth a wait.
        let text = format!("MAINPID={process}\nSTATUS=running");
        let told = manager
            .set_write_timeout(Some(MANAGER_PATIENCE))
            .and_then(|()| manager.set_nonblocking(false))
            .and_then(|()| manager.send(text.as_bytes()));
        let _ = manager.set_nonblocking(true);
        if let Err(error) = told {
            let text = format!(
                "the service manager was not told that process {process} goes on: {}; it may end both, restart the service",
                sentence(&error)
            );
            log::warning("service_manager", text);
        }
    }
    IS_SUCCEEDED.store(true, Ordering::Relaxed);
}

/// The program ends.
pub(crate) fn stopping() {
    tell("STOPPING=1\nSTATUS=ending");
}

/// How a client is doing, without addresses: every local user can read it.
pub(crate) fn follow(notice: &Notice) {
    let text = match notice {
        Notice::Connected { .. } => "connected".to_owned(),
        Notice::Stripes { up, of } | Notice::StripeLost { up, of, .. } => format!("{up} of {of} connections"),
        Notice::Reconnecting { .. } => "connecting again".to_owned(),
        Notice::Unreachable { .. } => "no server can be reached".to_owned(),
        _ => return,
    };
    tell(&format!("STATUS={text}"));
}

/// A third of the time that the manager waits: an answer of the shards may take seconds of it.
fn watchdog_interval(variable: impl Fn(&str) -> Option<String>) -> Option<Duration> {
    let meant = variable("WATCHDOG_PID").is_none_or(|id| id == std::process::id().to_string());
    let microseconds: u64 = variable("WATCHDOG_USEC")?.parse().ok()?;
    (meant && microseconds > 0).then(|| Duration::from_micros(microseconds) / 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watchdog_is_fed_where_it_watches_this_process() {
        let interval = |id: Option<String>, microseconds: &str| {
            watchdog_interval(|name| match name {
                "WATCHDOG_PID" => id.clone(),
                _ => Some(microseconds.to_owned()),
            })
        };
        let own = std::process::id().to_string();
        assert_eq!(interval(Some(own), "30000000"), Some(Duration::from_secs(10)));
        assert_eq!(interval(None, "3000000"), Some(Duration::from_secs(1)));
        assert_eq!(interval(Some("1".to_owned()), "30000000"), None);
        assert_eq!(interval(None, "0"), None);
        assert_eq!(interval(None, "soon"), None);
        assert_eq!(watchdog_interval(|_| None), None);
    }

    #[test]
    fn a_manager_is_reached_by_a_path_and_by_an_abstract_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let name = format!("@gramway-test-{}", std::process::id());
        let at_path = UnixDatagram::bind(&path).unwrap();
        let abstract_address = SocketAddr::from_abstract_name(&name[1..]).unwrap();
        let by_name = UnixDatagram::bind_addr(&abstract_address).unwrap();
        for (place, manager) in [(path.as_os_str(), at_path), (OsStr::new(&name), by_name)] {
            open(place).unwrap().send(b"READY=1").unwrap();
            let mut bytes = [0; 16];
            assert_eq!(manager.recv(&mut bytes).unwrap(), 7);
        }
        assert!(open(OsStr::new("/nowhere/notify")).is_err());
    }
}
