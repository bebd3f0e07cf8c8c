//! The file that keeps a server's leases over restarts: read at the start, written by the host's thread when leases
//! have changed, and again where that failed.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tunnel_proto::{Leases, StoredLease};

use crate::driver::host_worker::HostWorker;
use crate::handle::{Failure, Notice};
use crate::limits;

/// The file, and what it lacks.
pub(super) struct LeaseFile {
    target: Target,
    /// Leases that the file lacks, changed or not, because a write failed.
    is_behind: bool,
    next_write: Instant,
}

/// Where leases are written, and how the last writing went; shared with the host's thread.
#[derive(Clone)]
struct Target {
    path: PathBuf,
    /// The last write failed, and that was not looked at.
    has_failed: Arc<AtomicBool>,
    /// A failure that goes on is told once.
    is_told: Arc<AtomicBool>,
}

impl LeaseFile {
    /// Writes go to `path`, from `now` on.
    pub(super) fn new(path: &Path, now: Instant) -> Self {
        Self {
            target: Target {
                path: path.to_owned(),
                has_failed: Arc::default(),
                is_told: Arc::default(),
            },
            is_behind: false,
            next_write: now,
        }
    }

    /// Has `worker` write the leases where the file lacks some, not more often than the limits allow.
    pub(super) fn save(&mut self, now: Instant, leases: &mut Leases, worker: &HostWorker) {
        if self.target.take_failed() {
            self.is_behind = true;
            self.next_write = now + limits::LEASES_RETRY;
        }
        if now < self.next_write || !(self.is_behind || leases.has_changed()) {
            return;
        }
        self.next_write = now + limits::LEASES_WRITE_INTERVAL;
        let (target, stored) = (self.target.clone(), leases.stored());
        if worker.run(move || target.save(&stored)) {
            leases.take_changed();
            self.is_behind = false;
        }
    }

    /// Writes at the end what `worker`, which is finished here, has not written. What there is to tell.
    pub(super) fn save_at_end(&mut self, leases: &mut Leases, worker: &mut HostWorker) -> Vec<Notice> {
        worker.finish();
        let mut notices: Vec<_> = std::iter::from_fn(|| worker.poll_notice()).collect();
        let is_behind = self.target.take_failed() | std::mem::take(&mut self.is_behind);
        if leases.take_changed() | is_behind {
            let failed = self.target.write(&leases.stored());
            // Nobody tries again.
            self.target.take_failed();
            notices.extend(failed.map(|text| Notice::Warning { text }));
        }
        notices
    }
}

impl Target {
    /// What the host's thread does with leases: writes them, and tells the first failure of several.
    fn save(&self, leases: &[StoredLease]) -> Option<Notice> {
        let text = self.write(leases)?;
        let is_new = !self.is_told.swap(true, Ordering::Relaxed);
        is_new.then(|| Notice::Warning {
            text: format!("{text}; retrying"),
        })
    }

    /// Writes the leases; a sentence where that fails.
    fn write(&self, leases: &[StoredLease]) -> Option<String> {
        let written = write(&self.path, leases);
        self.has_failed.store(written.is_err(), Ordering::Relaxed);
        match written {
            Ok(()) => {
                self.is_told.store(false, Ordering::Relaxed);
                None
            }
            Err(error) => Some(format!(
                "cannot save the leases in {}: {error}",
                self.path.display()
            )),
        }
    }

    fn take_failed(&self) -> bool {
        self.has_failed.swap(false, Ordering::Relaxed)
    }
}

/// What the file holds; nothing where there is none.
///
/// # Errors
/// [`Failure::Configuration`] where it is there and cannot be read.
pub(super) fn read(path: &Path) -> Result<Vec<StoredLease>, Failure> {
    let unusable = |error: String| {
        Failure::Configuration(format!(
            "the leases in {} cannot be read: {error}; move the file away to begin without leases",
            path.display()
        ))
    };
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(unusable(error.to_string())),
    };
    if bytes.len() > limits::LEASES_FILE_BYTES_MAX {
        return Err(unusable(format!(
            "it has more than {} bytes",
            limits::LEASES_FILE_BYTES_MAX
        )));
    }
    serde_json::from_slice(&bytes).map_err(|error| unusable(error.to_string()))
}

/// Whole or not at all: written beside, then renamed.
fn write(path: &Path, leases: &[StoredLease]) -> io::Result<()> {
    let beside = path.with_extension("json.new");
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&beside)?;
    file.write_all(&serde_json::to_vec(leases)?)?;
    file.sync_data()?;
    std::fs::rename(&beside, path)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use tempfile::TempDir;
    use tunnel_proto::{ClientIdentity, Prefix, UserId};

    use super::*;

    fn leases(clients: u8) -> Leases {
        let pool: Prefix = "10.9.0.0/24".parse().unwrap();
        let mut leases = Leases::new(&[pool]);
        for number in 0..clients {
            leases
                .acquire(ClientIdentity::Named(UserId::OWNER, [number; 16]))
                .unwrap();
        }
        leases
    }

    /// Waits until all jobs so far are done.
    fn settle(worker: &HostWorker) {
        let (done, is_done) = mpsc::channel();
        assert!(worker.run(move || {
            done.send(()).unwrap();
            None
        }));
        is_done.recv_timeout(Duration::from_secs(60)).unwrap();
    }

    #[test]
    fn a_write_that_failed_is_told_once_and_tried_again_after_a_while() {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("absent").join("leases.json");
        let (mut leases, worker, start) = (leases(2), HostWorker::start().unwrap(), Instant::now());
        let mut file = LeaseFile::new(&path, start);
        file.save(start, &mut leases, &worker);
        settle(&worker);
        let Some(Notice::Warning { text }) = worker.poll_notice() else {
            panic!("the failure is told");
        };
        assert!(text.contains("leases.json"), "{text}");
        // Nothing changes; it is tried again all the same, and fails without a word.
        let mut now = start + limits::LEASES_WRITE_INTERVAL;
        file.save(now, &mut leases, &worker);
        now += limits::LEASES_RETRY;
        file.save(now, &mut leases, &worker);
        settle(&worker);
        assert_eq!(worker.poll_notice(), None);
        // The delay begins when the failure is seen, and only then.
        std::fs::create_dir(path.parent().unwrap()).unwrap();
        file.save(now, &mut leases, &worker);
        settle(&worker);
        assert!(!path.exists());
        file.save(now + limits::LEASES_RETRY, &mut leases, &worker);
        settle(&worker);
        assert_eq!(read(&path).unwrap(), leases.stored());
    }

    #[test]
    fn the_end_writes_what_is_outstanding_after_the_workers_last_job() {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("leases.json");
        let (mut leases, mut worker, now) = (leases(1), HostWorker::start().unwrap(), Instant::now());
        let mut file = LeaseFile::new(&path, now);
        let (release, blocked) = mpsc::channel::<()>();
        assert!(worker.run(move || {
            let _ = blocked.recv();
            None
        }));
        file.save(now, &mut leases, &worker);
        leases
            .acquire(ClientIdentity::Named(UserId::OWNER, [9; 16]))
            .unwrap();
        drop(release);
        assert_eq!(file.save_at_end(&mut leases, &mut worker), []);
        assert_eq!(read(&path).unwrap(), leases.stored());
        // Another shard's end finds nothing to do.
        std::fs::remove_file(&path).unwrap();
        assert_eq!(file.save_at_end(&mut leases, &mut worker), []);
        assert!(!path.exists());
    }

    #[test]
    fn the_end_tries_again_what_failed_and_tells_what_fails_for_good() {
        let directory = TempDir::new().unwrap();
        for is_mended in [true, false] {
            let path = directory.path().join(is_mended.to_string()).join("leases.json");
            let (mut leases, mut worker, now) = (leases(1), HostWorker::start().unwrap(), Instant::now());
            let mut file = LeaseFile::new(&path, now);
            file.save(now, &mut leases, &worker);
            settle(&worker);
            assert!(worker.poll_notice().is_some());
            if is_mended {
                std::fs::create_dir(path.parent().unwrap()).unwrap();
            }
            let told = file.save_at_end(&mut leases, &mut worker);
            assert_eq!(told.is_empty(), is_mended, "{told:?}");
            assert_eq!(path.exists(), is_mended);
            assert_eq!(
                file.save_at_end(&mut leases, &mut worker),
                [],
                "the next shard's end"
            );
        }
    }

    #[test]
    fn the_longest_lease_takes_no_more_than_its_limit() {
        let lease = StoredLease {
            user: Some("0".repeat(32)),
            client: "0".repeat(32),
            v4: Some([255; 4].into()),
            v6: Some([0xffff; 8].into()),
        };
        let text = serde_json::to_vec(&[lease.clone(), lease]).unwrap();
        assert!(text.len() <= 2 * limits::LEASE_BYTES, "{}", text.len());
    }
}
