//! The replay window of all shards and its file (specs/qr1.md, QR1-10 and QR1-11): a hello is answered once its tag is
//! in the file, so that a server that is killed at any moment knows at its next start whom it has answered.
//!
//! The host's thread writes, because a disk may block. Jobs are handed over under the window's lock, so that the file
//! has the tags in the order in which they were accepted. Where an append fails, the next hello has the whole file
//! written anew.
//!
//! The file is put on the disk where the server ends, so that it is believed after the machine has started again. While
//! a server runs nothing waits for the disk: who takes the first step after a pause would be answered later than by the
//! cover. A machine that stops without a word costs clients one window.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use reality::limits::REPLAY_FILE_BYTES_MAX;
use reality::replay::{BootId, RECORD_BYTES, Refused, ReplayWindow, Tag, begin_again};

use crate::driver::host_worker::HostWorker;
use crate::handle::{Failure, Notice};

/// The kernel's name for this boot, as text (random(4)).
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// What all shards share.
pub(super) struct Replays {
    window: Mutex<Accepted>,
    file: Arc<ReplayFile>,
}

struct Accepted {
    window: ReplayWindow,
    /// Bytes of the file once all jobs are done.
    file_bytes: usize,
    worker: HostWorker,
}

/// Why a hello is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotAccepted {
    /// As the window says.
    Refused(Refused),
    /// Too many hellos wait for the disk.
    Busy,
}

/// When bytes are on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OnDisk {
    /// When the kernel gets to it.
    Later,
    /// Before the file has its name.
    Now,
}

/// The file, of which one job at a time writes.
struct ReplayFile {
    path: PathBuf,
    boot: BootId,
    open: Mutex<Option<File>>,
    /// The last write failed: the end of the file may be part of a record.
    is_damaged: AtomicBool,
    /// A failure that goes on is told once.
    is_told: AtomicBool,
}

impl Replays {
    /// Reads what the process before left in `path`, and writes it anew.
    ///
    /// # Errors
    /// The file cannot be written, or the kernel gives no thread.
    pub(super) fn start(path: &Path, is_first_run: bool, window: Duration) -> Result<Self, Failure> {
        Self::start_in(boot_id(), path, is_first_run, window)
    }

    fn start_in(boot: BootId, path: &Path, is_first_run: bool, window: Duration) -> Result<Self, Failure> {
        let cannot = |error: io::Error| {
            let path = path.display();
            Failure::Unavailable(format!("cannot keep in {path} which clients came: {error}"))
        };
        let left = std::fs::read(path).ok();
        let window = if is_first_run {
            ReplayWindow::new(unix_seconds(), window)
        } else {
            ReplayWindow::restore(left.as_deref(), &boot, unix_seconds(), window)
        };
        let file = Arc::new(ReplayFile {
            path: path.to_owned(),
            boot,
            open: Mutex::new(None),
            is_damaged: AtomicBool::new(false),
            is_told: AtomicBool::new(false),
        });
        if let Some((at, flags)) = left.as_deref().and_then(begin_again) {
            file.overwrite(at, flags).map_err(cannot)?;
        }
        let whole = window.to_file(&boot);
        file.write_whole(&whole, OnDisk::Later).map_err(cannot)?;
        let worker = HostWorker::start().map_err(cannot)?;
        let accepted = Accepted {
            window,
            file_bytes: whole.len(),
            worker,
        };
        Ok(Self {
            window: Mutex::new(accepted),
            file,
        })
    }

    /// Accepts the hello of this tag and time; `then` hears on another thread whether that is in the file.
    ///
    /// # Errors
    /// [`NotAccepted`]; `then` hears nothing.
    pub(super) fn accept(
        &self,
        tag: &Tag,
        time: u32,
        then: impl FnOnce(bool) + Send + 'static,
    ) -> Result<(), NotAccepted> {
        let mut accepted = self.accepted();
        let record = accepted
            .window
            .accept(unix_seconds(), tag, time)
            .map_err(NotAccepted::Refused)?;
        let is_long = accepted.file_bytes + RECORD_BYTES > REPLAY_FILE_BYTES_MAX;
        let file = Arc::clone(&self.file);
        let whole = (is_long || self.file.is_damaged.load(Ordering::Relaxed))
            .then(|| accepted.window.to_file(&self.file.boot));
        accepted.file_bytes = whole
            .as_ref()
            .map_or(accepted.file_bytes + RECORD_BYTES, Vec::len);
        let is_taken = accepted.worker.run(move || {
            let written = match whole {
                Some(whole) => file.write_whole(&whole, OnDisk::Later),
                None => file.append(&record),
            };
            then(written.is_ok());
            file.tell(written)
        });
        is_taken.then_some(()).ok_or(NotAccepted::Busy)
    }

    /// What went wrong with the file since this was last asked.
    pub(super) fn poll_notice(&self) -> Option<Notice> {
        self.accepted().worker.poll_notice()
    }

    /// Tags that are remembered.
    pub(super) fn count(&self) -> usize {
        self.accepted().window.len()
    }

    fn accepted(&self) -> MutexGuard<'_, Accepted> {
        // Each use leaves it whole.
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Replays {
    fn drop(&mut self) {
        let mut accepted = self.accepted();
        accepted.worker.finish();
        let last = accepted.window.to_last_file(&self.file.boot);
        // Without it, the next process believes the file until the machine starts again.
        let _ = self.file.write_whole(&last, OnDisk::Now);
    }
}

impl ReplayFile {
    fn open(&self) -> MutexGuard<'_, Option<File>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn append(&self, record: &[u8]) -> io::Result<()> {
        let mut open = self.open();
        let Some(file) = open.as_mut().filter(|_| !self.is_damaged.load(Ordering::Relaxed)) else {
            return Err(io::Error::other("an earlier write failed"));
        };
        file.write_all(record)
            .inspect_err(|_| self.is_damaged.store(true, Ordering::Relaxed))
    }

    /// Replaces one byte, on the disk, too.
    fn overwrite(&self, at: u64, byte: u8) -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(&self.path)?;
        file.write_all_at(&[byte], at)?;
        file.sync_data()
    }

    /// Whole or not at all: written beside, then renamed.
    fn write_whole(&self, bytes: &[u8], on_disk: OnDisk) -> io::Result<()> {
        let beside = self.path.with_extension("replays.new");
        let write = || {
            let mut file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&beside)?;
            file.write_all(bytes)?;
            if on_disk == OnDisk::Now {
                file.sync_data()?;
            }
            std::fs::rename(&beside, &self.path)?;
            Ok(file)
        };
        let written = write();
        self.is_damaged.store(written.is_err(), Ordering::Relaxed);
        written.map(|file| *self.open() = Some(file))
    }

    /// The first failure of several is told.
    fn tell(&self, written: io::Result<()>) -> Option<Notice> {
        let Err(error) = written else {
            self.is_told.store(false, Ordering::Relaxed);
            return None;
        };
        let is_new = !self.is_told.swap(true, Ordering::Relaxed);
        is_new.then(|| Notice::Warning {
            text: format!(
                "cannot write {}: {error}; no client can connect until it can be written, because none must get in twice \
                 by the same hello",
                self.path.display()
            ),
        })
    }
}

/// The clock, as hellos have it.
pub(super) fn unix_seconds() -> u32 {
    u32::try_from(packet_io::unix_seconds()).unwrap_or(u32::MAX)
}

/// Where the kernel does not say, each process is a boot of its own, and no file is believed.
fn boot_id() -> BootId {
    let digits = std::fs::read_to_string(BOOT_ID)
        .unwrap_or_default()
        .replace('-', "");
    let number = u128::from_str_radix(digits.trim(), 16).ok();
    let mut unknown = BootId::default();
    match number {
        Some(number) => number.to_be_bytes(),
        None => {
            // Without random numbers nothing of this server works.
            let _ = aws_lc_rs::rand::fill(&mut unknown);
            unknown
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const WINDOW: Duration = Duration::from_secs(120);
    /// For whatever should happen at once, on any machine.
    const LIMIT: Duration = Duration::from_secs(60);

    fn accept(replays: &Replays, tag: u8) -> Result<bool, NotAccepted> {
        let (sender, receiver) = mpsc::channel();
        let time = unix_seconds();
        replays.accept(&[tag; 16], time, move |is_written| {
            sender.send(is_written).unwrap()
        })?;
        Ok(receiver.recv_timeout(LIMIT).unwrap())
    }

    const REPLAYED: Result<bool, NotAccepted> = Err(NotAccepted::Refused(Refused::Replayed));

    /// QR1-10, QR1-11.
    #[test]
    fn what_was_answered_is_known_to_the_next_process_of_this_boot() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cover.replays");
        let first = Replays::start(&path, true, WINDOW).unwrap();
        assert_eq!(accept(&first, 1), Ok(true));
        assert_eq!(accept(&first, 1), REPLAYED);
        // Killed, it would leave this file.
        let left = std::fs::read(&path).unwrap();
        drop(first);
        std::fs::write(&path, left).unwrap();
        let second = Replays::start(&path, false, WINDOW).unwrap();
        assert_eq!(accept(&second, 1), REPLAYED);
        assert_eq!(accept(&second, 2), Ok(true));
        drop(second);
        // Without its file it refuses what might have been answered.
        std::fs::remove_file(&path).unwrap();
        let third = Replays::start(&path, false, WINDOW).unwrap();
        assert_eq!(accept(&third, 3), Err(NotAccepted::Refused(Refused::Forgotten)));
    }

    /// QR1-11. A machine that stops loses what was not put on the disk: the latest bytes of a file, or its latest name.
    #[test]
    fn a_server_that_has_ended_is_known_after_a_boot_and_one_that_was_cut_short_refuses() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cover.replays");
        let boots = [1, 2, 3].map(|number| [number; 16]);
        let first = Replays::start_in(boots[0], &path, true, WINDOW).unwrap();
        assert_eq!(accept(&first, 1), Ok(true));
        drop(first);
        let under_its_former_name = directory.path().join("lost");
        std::fs::hard_link(&path, &under_its_former_name).unwrap();
        let second = Replays::start_in(boots[1], &path, false, WINDOW).unwrap();
        assert_eq!(accept(&second, 1), REPLAYED);
        assert_eq!(accept(&second, 2), Ok(true));
        let written = std::fs::read(&path).unwrap();
        let unwritten = written[..written.len() - RECORD_BYTES].to_vec();
        let former = std::fs::read(under_its_former_name).unwrap();
        drop(second);
        for left in [unwritten, written, former] {
            std::fs::write(&path, left).unwrap();
            let third = Replays::start_in(boots[2], &path, false, WINDOW).unwrap();
            for tag in [1, 2, 3] {
                let refused = Err(NotAccepted::Refused(Refused::Forgotten));
                assert_eq!(accept(&third, tag), refused);
            }
        }
    }

    #[test]
    fn a_hello_that_cannot_be_written_is_not_answered_and_the_next_one_writes_the_file_anew() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state/cover.replays");
        std::fs::create_dir(path.parent().unwrap()).unwrap();
        let replays = Replays::start(&path, true, WINDOW).unwrap();
        // Every write fails from here on, as on a full disk.
        *replays.file.open() = Some(File::open(&path).unwrap());
        assert_eq!(accept(&replays, 1), Ok(false));
        std::fs::rename(directory.path().join("state"), directory.path().join("away")).unwrap();
        assert_eq!(accept(&replays, 2), Ok(false));
        std::fs::rename(directory.path().join("away"), directory.path().join("state")).unwrap();
        assert_eq!(accept(&replays, 3), Ok(true));
        drop(replays);
        let again = Replays::start(&path, false, WINDOW).unwrap();
        for tag in [1, 2, 3] {
            assert_eq!(accept(&again, tag), REPLAYED);
        }
    }
}
