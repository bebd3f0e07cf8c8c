//! The admin API of a running process: a Unix socket in the state directory (mode 0600) and, with `--admin`, a TCP
//! address. Both speak HTTP and answer with the same counters, users and actions (`api.rs`); over TCP `guard.rs` says
//! who may ask. `gramway status` asks the socket.

mod api;
mod counters;
mod guard;
mod listener;
mod page;
mod settings;
mod token;
mod warnings;

use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use serde_json::Value;
use tunnel::handle::Controller;

use api::Api;
use counters::Counters;
use guard::Guard;
pub(crate) use listener::AdminListener;
pub(crate) use settings::AdminSettings;

use crate::drain::Drain;
use crate::exit::Problem;
use crate::limits::SOCKET_PATH_BYTES_MAX;
use crate::reload::Reloader;
use crate::state::StateDirectory;
use crate::upgrade::Upgrade;
use crate::users::{Follower, Register};

/// The socket of the server that serves; the directory's lock makes sure that there is only one.
pub(crate) const SERVER_SOCKET: &str = "server.sock";

/// The name of this process's socket while another server serves: before an upgrade to it is complete, or after one
/// from it.
pub(crate) fn own_socket() -> String {
    format!("server-{}.sock", std::process::id())
}

/// The name of this process's client socket.
pub(crate) fn client_socket() -> String {
    format!("client-{}.sock", std::process::id())
}

/// Whether a file in the state directory is an admin socket by its name.
pub(crate) fn is_socket_name(name: &OsStr) -> bool {
    let name = name.as_bytes();
    let is_of_process = name.starts_with(b"client-") || name.starts_with(b"server-");
    name == SERVER_SOCKET.as_bytes() || (is_of_process && name.ends_with(b".sock"))
}

/// How a server ends without a gap for its clients.
#[derive(Clone)]
pub(crate) struct Stops {
    pub(crate) drain: Arc<Drain>,
    pub(crate) upgrade: Arc<Upgrade>,
}

/// Where a server's users are kept.
#[derive(Clone)]
pub(crate) struct UsersDatabase {
    pub(crate) directory: StateDirectory,
    /// Has the server know at once what was changed there.
    pub(crate) follower: Follower,
}

/// What this process answers to those who ask.
#[derive(Clone)]
pub(crate) struct Admin {
    api: Arc<Api>,
}

impl Admin {
    /// Of a process with these counters; a server's `users`, and where they are kept, and how it `stops`.
    pub(crate) fn new(
        controller: Controller,
        sandbox: Value,
        users: Option<(Arc<Register>, UsersDatabase)>,
        reloader: Arc<Reloader>,
        stops: Option<Stops>,
    ) -> Self {
        let (register, database) = users.unzip();
        let source = move || counters::of_process(&controller, &sandbox, register.as_deref());
        Self::of(source, database, Some(reloader), stops)
    }

    fn of(
        source: impl Fn() -> Option<Value> + Send + Sync + 'static,
        users: Option<UsersDatabase>,
        reloader: Option<Arc<Reloader>>,
        stops: Option<Stops>,
    ) -> Self {
        let api = Api {
            counters: Counters::new(source),
            users,
            reloader,
            stops,
            listeners: AtomicUsize::new(0),
        };
        Self { api: Arc::new(api) }
    }

    /// One that answers with this JSON, or has none.
    #[cfg(test)]
    pub(crate) fn of_text(text: Option<&'static str>) -> Self {
        Self::of(move || serde_json::from_str(text?).ok(), None, None, None)
    }
}

/// A socket that answers; dropping it removes the file, unless another process has put its own in place of it.
#[derive(Debug)]
pub(crate) struct AdminSocket {
    directory: StateDirectory,
    path: Mutex<PathBuf>,
    /// Device and number of the file.
    file: (u64, u64),
}

impl AdminSocket {
    /// Opens the socket in place of a dead one.
    /// A `status` that comes while it is made waits with its judgement, by the directory's lock: a socket that has a
    /// name, but does not listen yet, looks like that of a dead process.
    pub(crate) fn open(directory: &StateDirectory, name: &str, admin: &Admin) -> Result<Self, Problem> {
        let path = directory.file(name);
        let cannot = |error: io::Error| Problem::file("open the admin socket", &path, &error);
        let _lock = directory.lock_sockets().map_err(cannot)?;
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(cannot(error)),
            _ => {}
        }
        let (short, _held) = socket_path(directory.path(), OsStr::new(name)).map_err(cannot)?;
        let listener = UnixListener::bind(short).map_err(cannot)?;
        let socket = Self {
            directory: directory.clone(),
            path: Mutex::new(path.clone()),
            file: file_number(&path).map_err(cannot)?,
        };
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).map_err(cannot)?;
        let api = Arc::clone(&admin.api);
        thread::Builder::new()
            .name("admin".to_owned())
            .spawn(move || {
                api::serve(&api, &Guard::File, || listener.accept().map(|(stream, _)| stream));
            })
            .map_err(cannot)?;
        Ok(socket)
    }

    /// How many other servers of the directory live: those whose sockets were taken over, one after the other, until
    /// this process had them.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub(crate) fn others(&self) -> Result<usize, Problem> {
        let own = self.path.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let cannot = |error: io::Error| Problem::file("read", self.directory.path(), &error);
        let mut count = 0;
        for entry in std::fs::read_dir(self.directory.path()).map_err(cannot)? {
            let name = entry.map_err(cannot)?.file_name();
            let is_other = name.as_bytes().starts_with(b"server") && self.directory.path().join(&name) != own;
            // That of a dead process stays until somebody asks for the status.
            if is_other && is_socket_name(&name) && connect(&self.directory, &name).is_ok() {
                count += 1;
            }
        }
        Ok(count)
    }

    /// It goes on under this name, in place of a dead one.
    pub(crate) fn rename(&self, name: &str) -> Result<(), Problem> {
        let mut path = self.path.lock().unwrap_or_else(PoisonError::into_inner);
        let next = self.directory.file(name);
        let cannot = |error: io::Error| Problem::file("rename the admin socket", &path, &error);
        let _lock = self.directory.lock_sockets().map_err(cannot)?;
        std::fs::rename(&*path, &next).map_err(cannot)?;
        *path = next;
        Ok(())
    }
}

impl Drop for AdminSocket {
    fn drop(&mut self) {
        let path = self.path.lock().unwrap_or_else(PoisonError::into_inner);
        if file_number(&path).is_ok_and(|file| file == self.file) {
            // A file that stays is pruned by the next `status`.
            let _ = std::fs::remove_file(&*path);
        }
    }
}

/// What tells a file from another one at the same path.
fn file_number(path: &Path) -> io::Result<(u64, u64)> {
    let found = std::fs::symlink_metadata(path)?;
    Ok((found.dev(), found.ino()))
}

/// Connects to an admin socket of the directory.
pub(crate) fn connect(directory: &StateDirectory, name: &OsStr) -> io::Result<UnixStream> {
    let (path, _held) = socket_path(directory.path(), name)?;
    UnixStream::connect(path)
}

/// A path to a socket that fits `sun_path`. A long one goes through the open directory, which must stay open meanwhile.
fn socket_path(directory: &Path, name: &OsStr) -> io::Result<(PathBuf, Option<File>)> {
    let path = directory.join(name);
    if path.as_os_str().len() <= SOCKET_PATH_BYTES_MAX {
        return Ok((path, None));
    }
    let held = File::open(directory)?;
    let short = PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd())).join(name);
    Ok((short, Some(held)))
}
