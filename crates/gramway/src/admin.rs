//! The admin socket of a running process: a Unix socket in the state directory (mode 0600) that answers every
//! connection with one JSON object of all counters, and closes. It runs on a thread of its own and serves one reader at
//! a time.

use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use serde_json::Value;
use tunnel::handle::Controller;

use crate::exit::Problem;
use crate::limits::{ADMIN_WRITE_LIMIT, SOCKET_PATH_BYTES_MAX};
use crate::state::StateDirectory;
use crate::users::Register;

/// The server's socket; the directory's lock makes sure that there is only one.
pub(crate) const SERVER_SOCKET: &str = "server.sock";

/// Pause after a failed accept, such as one without a free file descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// The name of this process's client socket.
pub(crate) fn client_socket() -> String {
    format!("client-{}.sock", std::process::id())
}

/// Whether a file in the state directory is an admin socket by its name.
pub(crate) fn is_socket_name(name: &OsStr) -> bool {
    let name = name.as_bytes();
    name == SERVER_SOCKET.as_bytes() || (name.starts_with(b"client-") && name.ends_with(b".sock"))
}

/// The counters of this process, what its sandbox holds and what is known of a server's `users`, as one JSON object.
pub(crate) fn answer(
    controller: Controller,
    sandbox: Value,
    users: Option<Arc<Register>>,
) -> impl Fn() -> Option<String> + Send + 'static {
    move || {
        let mut counters = serde_json::to_value(controller.snapshot()?).ok()?;
        counters
            .as_object_mut()?
            .insert("sandbox".to_owned(), sandbox.clone());
        if let Some(users) = &users {
            users.complete(counters.get_mut("users")?.as_object_mut()?);
        }
        Some(counters.to_string())
    }
}

/// A socket that answers; dropping it removes the file.
#[derive(Debug)]
pub(crate) struct AdminSocket {
    path: PathBuf,
}

impl AdminSocket {
    /// Opens the socket in place of a dead one; `answer` gives the JSON, or `None` if the counters are not available.
    /// A `status` that comes while it is made waits with its judgement, by the directory's lock: a socket that has a
    /// name, but does not listen yet, looks like that of a dead process.
    pub(crate) fn open(
        directory: &StateDirectory,
        name: &str,
        answer: impl Fn() -> Option<String> + Send + 'static,
    ) -> Result<Self, Problem> {
        let path = directory.file(name);
        let cannot = |error: io::Error| Problem::file("open the admin socket", &path, &error);
        let _lock = directory.lock_sockets().map_err(cannot)?;
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(cannot(error)),
            _ => {}
        }
        let (short, _held) = socket_path(directory.path(), OsStr::new(name)).map_err(cannot)?;
        let listener = UnixListener::bind(short).map_err(cannot)?;
        let socket = Self { path: path.clone() };
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).map_err(cannot)?;
        thread::Builder::new()
            .name("admin".to_owned())
            .spawn(move || serve(&listener, answer))
            .map_err(cannot)?;
        Ok(socket)
    }
}

impl Drop for AdminSocket {
    fn drop(&mut self) {
        // A file that stays is pruned by the next `status`.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn serve(listener: &UnixListener, answer: impl Fn() -> Option<String>) {
    loop {
        let Ok((mut stream, _)) = listener.accept() else {
            thread::sleep(ACCEPT_PAUSE);
            continue;
        };
        if let Some(text) = answer() {
            // A reader that went away or does not read gets no answer.
            let _ = stream
                .set_write_timeout(Some(ADMIN_WRITE_LIMIT))
                .and_then(|()| stream.write_all(text.as_bytes()));
        }
    }
}

/// A path to a socket that fits `sun_path`. A long one goes through the open directory, which must stay open meanwhile.
pub(crate) fn socket_path(directory: &Path, name: &OsStr) -> io::Result<(PathBuf, Option<File>)> {
    let path = directory.join(name);
    if path.as_os_str().len() <= SOCKET_PATH_BYTES_MAX {
        return Ok((path, None));
    }
    let held = File::open(directory)?;
    let short = PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd())).join(name);
    Ok((short, Some(held)))
}
