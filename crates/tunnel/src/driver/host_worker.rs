//! A thread for what may block: files that are synced to the disk, and programs that are asked. Shards hand work over
//! and never wait for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use packet_io::Waker;

use crate::handle::Notice;
use crate::limits;

/// What the thread does; it may leave something to tell.
type Job = Box<dyn FnOnce() -> Option<Notice> + Send>;

/// The thread. Dropping this waits until all work is done.
#[derive(Debug)]
pub(super) struct HostWorker {
    /// None once it is finished.
    jobs: Option<mpsc::SyncSender<Job>>,
    notices: mpsc::Receiver<Notice>,
    /// Jobs that wait are not done any more.
    is_cancelled: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Wakes the shard that waits for a job, and says why it was woken.
#[derive(Clone, Debug)]
pub(super) struct JobWaker {
    waker: Waker,
    is_done: Arc<AtomicBool>,
}

impl JobWaker {
    pub(super) fn new(waker: Waker) -> Self {
        Self {
            waker,
            is_done: Arc::default(),
        }
    }

    fn wake(&self) {
        self.is_done.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// Whether a job was done since this was last asked.
    pub(super) fn take_done(&self) -> bool {
        self.is_done.swap(false, Ordering::Acquire)
    }
}

impl HostWorker {
    /// # Errors
    /// The kernel gives no thread.
    pub(super) fn start() -> std::io::Result<Self> {
        let (jobs, handed_over) = mpsc::sync_channel::<Job>(limits::HOST_JOBS_MAX);
        let (notice, notices) = mpsc::channel();
        let is_cancelled = Arc::new(AtomicBool::new(false));
        let ends_early = Arc::clone(&is_cancelled);
        let thread = thread::Builder::new().name("host".to_owned()).spawn(move || {
            while let Ok(job) = handed_over.recv() {
                if ends_early.load(Ordering::Relaxed) {
                    continue;
                }
                if let Some(text) = job() {
                    // A receiver that has gone wants to know nothing.
                    let _ = notice.send(text);
                }
            }
        })?;
        Ok(Self {
            jobs: Some(jobs),
            notices,
            is_cancelled,
            thread: Some(thread),
        })
    }

    /// As [`Self::run`]; the shard is woken when the job is done.
    pub(super) fn run_and_wake(
        &self,
        waker: &JobWaker,
        job: impl FnOnce() -> Option<Notice> + Send + 'static,
    ) -> bool {
        let waker = waker.clone();
        self.run(move || {
            let notice = job();
            waker.wake();
            notice
        })
    }

    /// Hands a job over; false, and the job is not done, where [`limits::HOST_JOBS_MAX`] wait already, and after
    /// [`Self::finish`].
    pub(super) fn run(&self, job: impl FnOnce() -> Option<Notice> + Send + 'static) -> bool {
        self.jobs
            .as_ref()
            .is_some_and(|jobs| jobs.try_send(Box::new(job)).is_ok())
    }

    /// What a job left to tell.
    pub(super) fn poll_notice(&self) -> Option<Notice> {
        self.notices.try_recv().ok()
    }

    /// As [`Self::finish`], but of the jobs that were taken only the present one is done.
    pub(super) fn cancel(&mut self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
        self.finish();
    }

    /// Takes no more jobs, and waits until those that were taken are done and the thread has ended.
    pub(super) fn finish(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            // A job that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl Drop for HostWorker {
    fn drop(&mut self) {
        self.finish();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    use super::*;

    #[test]
    fn work_that_blocks_holds_up_nobody_and_is_done_before_the_end() {
        let mut worker = HostWorker::start().unwrap();
        let (release, blocked) = mpsc::channel::<()>();
        let (begun, began) = mpsc::channel();
        assert!(worker.run(move || {
            begun.send(()).unwrap();
            blocked.recv().unwrap();
            None
        }));
        began.recv_timeout(Duration::from_secs(60)).unwrap();
        // It stands still; more is taken, up to the limit, and then refused, at once.
        let done = Arc::new(AtomicUsize::new(0));
        for _ in 0..limits::HOST_JOBS_MAX {
            let done = Arc::clone(&done);
            assert!(worker.run(move || {
                done.fetch_add(1, Ordering::SeqCst);
                None
            }));
        }
        assert!(!worker.run(|| None));
        assert_eq!(done.load(Ordering::SeqCst), 0);
        release.send(()).unwrap();
        worker.finish();
        assert_eq!(done.load(Ordering::SeqCst), limits::HOST_JOBS_MAX);
        // That was the end of it.
        assert!(!worker.run(|| None));
        worker.finish();
    }

    #[test]
    fn a_worker_that_is_cancelled_ends_with_its_present_job() {
        let mut worker = HostWorker::start().unwrap();
        let (release, blocked) = mpsc::channel::<()>();
        let (begun, began) = mpsc::channel();
        let done = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&done);
        assert!(worker.run(move || {
            begun.send(()).unwrap();
            // The release comes when it is cancelled.
            let _ = blocked.recv();
            count.fetch_add(1, Ordering::SeqCst);
            None
        }));
        let count = Arc::clone(&done);
        assert!(worker.run(move || {
            count.fetch_add(1, Ordering::SeqCst);
            None
        }));
        began.recv_timeout(Duration::from_secs(60)).unwrap();
        let is_cancelled = Arc::clone(&worker.is_cancelled);
        thread::spawn(move || {
            while !is_cancelled.load(Ordering::Relaxed) {
                thread::yield_now();
            }
            drop(release);
        });
        worker.cancel();
        assert_eq!(done.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn what_a_job_has_to_tell_is_told() {
        let worker = HostWorker::start().unwrap();
        let text = "the disk is full".to_owned();
        let notice = Notice::Warning { text };
        let told = notice.clone();
        assert!(worker.run(move || Some(told)));
        let got = worker.notices.recv_timeout(Duration::from_secs(60)).unwrap();
        assert_eq!(got, notice);
        assert_eq!(worker.poll_notice(), None);
    }
}
