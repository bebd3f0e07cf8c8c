//! The helper: a child process that changes the host for a process that has given up the privileges to do so.
//!
//! It is started before its parent gives anything up, and goes on with what the parent had. They talk over *lanes*:
//! socket pairs whose messages are calls and answers in turn (`lane.rs`, `call.rs`), each served by a thread of the
//! helper (`serve.rs`). One is for the network, one for name servers, which take long, and one for options of sockets,
//! which must not wait for either. The parent has everything undone before it closes a lane. Where it was killed, lanes
//! end without that, and the helper ends, too, without a word: who undoes what it did is its guardian, as where the
//! helper itself was killed. Two processes are needed for that, because neither can undo anything after its own death.

mod call;
mod lane;
mod serve;
mod sockets;

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};

pub use call::fuzz;
pub use serve::{HelperOwner, serve};

use crate::changes::{Answer, HostChanges, Request};
use crate::error::{Explain, HostError};
use crate::limits::{HELPER_ANSWER_TIME, HELPER_START_TIME, SOCKET_OPTION_TIME};
use call::Call;
use lane::Lane;
use sockets::ByHelper;

/// The hidden subcommand of the program that calls [`serve`].
pub const HELPER_SUBCOMMAND: &str = "_helper";

/// A helper that runs. It ends when all of its lanes have.
#[derive(Debug)]
pub struct Helper {
    child: Child,
}

impl Helper {
    /// Starts `program`, which calls [`serve`], and waits until it is ready. What it says of itself, and the way to
    /// changes. From now on it also sets the options of this process's sockets that need a privilege.
    ///
    /// # Errors
    /// The program does not start, or ends, or is not ready in time.
    pub fn start(program: &Path, arguments: &[OsString]) -> Result<(Self, Vec<u8>, HostChanges), HostError> {
        let start = || {
            let (network, theirs) = Lane::pair(HELPER_START_TIME)?;
            let child = Command::new(program)
                .args(arguments)
                .stdin(Stdio::from(theirs))
                .stdout(Stdio::null())
                .current_dir("/")
                .spawn()?;
            let mut helper = Self { child };
            let lanes = || {
                let (ready, _) = network.receive()?.ok_or(io::ErrorKind::UnexpectedEof)?;
                network.set_patience(HELPER_ANSWER_TIME)?;
                let names = open_lane(&network)?;
                let sockets = open_lane(&network)?;
                sockets.set_patience(SOCKET_OPTION_TIME)?;
                io::Result::Ok((ready, names, sockets))
            };
            match lanes() {
                Ok((ready, names, sockets)) => Ok((helper, ready, network, names, sockets)),
                Err(error) => {
                    // It may have ended by itself.
                    let _ = helper.child.kill();
                    let _ = helper.child.wait();
                    Err(error)
                }
            }
        };
        let (helper, ready, network, names, sockets) =
            start().explain(|| "start the helper that changes the host's network".to_owned())?;
        packet_io::delegate(Box::new(ByHelper::new(sockets)));
        let changes = HostChanges::by_helper(ChangesLane(network), ChangesLane(names));
        Ok((helper, ready, changes))
    }

    /// Its process ID.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it has ended.
    ///
    /// # Errors
    /// None in practice; the kernel's otherwise.
    pub fn wait(&mut self) -> io::Result<()> {
        self.child.wait().map(drop)
    }
}

fn open_lane(first: &Lane) -> io::Result<Lane> {
    let (lane, theirs) = Lane::pair(HELPER_ANSWER_TIME)?;
    match first.call(&Call::ServeToo, Some(&theirs))?.0 {
        Answer::Done => Ok(lane),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// A lane for changes; dropping it undoes what was done by it, as after a failure.
#[derive(Debug)]
pub(crate) struct ChangesLane(Lane);

impl ChangesLane {
    pub(crate) fn call(&self, request: Request) -> Result<(Answer, Vec<OwnedFd>), HostError> {
        let called = self.0.call(&Call::Change(request), None);
        called.explain(|| "change the host, because its helper does not answer".to_owned())
    }
}

impl Drop for ChangesLane {
    fn drop(&mut self) {
        for request in [Request::EndKillSwitch { as_asked: false }, Request::Undo] {
            // What fails stays on the list.
            let _ = self.call(request);
        }
    }
}
