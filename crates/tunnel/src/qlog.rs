//! Traces of chosen connections as files for qvis and other readers of qlog.
//!
//! Shards put records into buffers in memory, a thread writes them to files (`writer.rs`): a slow disk costs records,
//! which are counted, and delays no packet. All is bounded: traces at a time, bytes that wait, bytes of a file, files
//! in the directory. A trace longer than a file goes on in another one, and the oldest files make room.
//!
//! A server traces users, not strangers: a trace stays in memory until its connection's user is known, and is then
//! written or forgotten. A client traces its own connections.

mod buffer;
mod writer;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle, Thread};

use quic::{Trace, Tracer};
use tunnel_proto::UserId;

use crate::limits::{QLOG_FILE_BYTES_MAX, QLOG_FILES_MAX, QLOG_TRACES_MAX};
use buffer::Buffer;
use writer::Writer;

/// Which of a server's users are traced.
pub trait Chosen: Send + Sync {
    /// Whether there is one; otherwise no connection pays for traces.
    fn is_anybody(&self) -> bool;

    /// The user's name, where its connections are to be traced. Shards ask; nothing here may block.
    fn name(&self, user: UserId) -> Option<String>;
}

/// Hears, in a sentence for people, what is missing from the traces.
pub type Complain = Box<dyn Fn(String) + Send>;

/// What a directory takes.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    file_bytes: usize,
    files: usize,
}

impl Bounds {
    const DEFAULT: Self = Self {
        file_bytes: QLOG_FILE_BYTES_MAX,
        files: QLOG_FILES_MAX,
    };
}

/// Writes traces into a directory. When it is dropped, everything that waits is written first.
pub struct Qlog {
    open: Arc<OpenTraces>,
    writer: Option<JoinHandle<()>>,
}

impl Qlog {
    /// Traces the connections of a server's `chosen` users, or without it those of a client. The directory exists.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(
        directory: PathBuf,
        chosen: Option<Arc<dyn Chosen>>,
        complain: Complain,
    ) -> io::Result<Self> {
        Self::start_within(Bounds::DEFAULT, directory, chosen, complain)
    }

    fn start_within(
        bounds: Bounds,
        directory: PathBuf,
        chosen: Option<Arc<dyn Chosen>>,
        complain: Complain,
    ) -> io::Result<Self> {
        let open = Arc::new(OpenTraces {
            traces: Mutex::default(),
            chosen,
            writer: OnceLock::new(),
            is_stopping: AtomicBool::new(false),
        });
        let of_writer = Arc::clone(&open);
        let writer = thread::Builder::new()
            .name("qlog".to_owned())
            .spawn(move || Writer::new(bounds, directory, complain).run(&of_writer))?;
        open.writer.get_or_init(|| writer.thread().clone());
        Ok(Self {
            open,
            writer: Some(writer),
        })
    }

    /// For the configuration of the server or client.
    #[must_use]
    pub fn tracing(&self) -> Tracing {
        Tracing(Arc::clone(&self.open))
    }
}

impl Drop for Qlog {
    fn drop(&mut self) {
        self.open.is_stopping.store(true, Ordering::Relaxed);
        self.open.hurry();
        if let Some(writer) = self.writer.take() {
            // What it panicked about was printed.
            let _ = writer.join();
        }
    }
}

/// Has the connections of a server or client traced.
#[derive(Clone)]
pub struct Tracing(Arc<OpenTraces>);

impl Tracing {
    /// For one shard.
    pub(crate) fn tracer(&self) -> Box<dyn Tracer> {
        Box::new(self.clone())
    }
}

impl Tracer for Tracing {
    fn begin(&mut self) -> Option<Arc<dyn Trace>> {
        let buffer = Arc::new(match &self.0.chosen {
            Some(chosen) if !chosen.is_anybody() => return None,
            Some(_) => Buffer::undecided(),
            None => Buffer::of("client".to_owned()),
        });
        self.0.add(&buffer).then(|| {
            let open = Arc::clone(&self.0);
            Arc::new(OfConnection { buffer, open }) as _
        })
    }
}

/// The traces that are not complete, the oldest first.
struct OpenTraces {
    traces: Mutex<Vec<Arc<Buffer>>>,
    /// `None`: all connections, which are our own.
    chosen: Option<Arc<dyn Chosen>>,
    writer: OnceLock<Thread>,
    is_stopping: AtomicBool,
}

impl OpenTraces {
    /// Adds a trace. Where there are too many, the oldest one of nobody known makes room. Whether it is added.
    fn add(&self, buffer: &Arc<Buffer>) -> bool {
        let mut traces = self.lock();
        if traces.len() >= QLOG_TRACES_MAX {
            let Some(index) = traces.iter().position(|open| !open.decide(None)) else {
                return false;
            };
            traces.remove(index);
        }
        traces.push(Arc::clone(buffer));
        true
    }

    fn all(&self) -> Vec<Arc<Buffer>> {
        self.lock().clone()
    }

    fn forget(&self, buffer: &Arc<Buffer>) {
        self.lock().retain(|open| !Arc::ptr_eq(open, buffer));
    }

    fn hurry(&self) {
        if let Some(writer) = self.writer.get() {
            writer.unpark();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Buffer>>> {
        self.traces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One connection's way into its buffer.
struct OfConnection {
    buffer: Arc<Buffer>,
    open: Arc<OpenTraces>,
}

impl Trace for OfConnection {
    fn record(&self, record: &[u8]) {
        if self.buffer.push(record) {
            self.open.hurry();
        }
    }

    fn belongs_to(&self, user: [u8; 16]) {
        if let Some(chosen) = &self.open.chosen
            && !self.buffer.decide(chosen.name(UserId(user)))
        {
            self.open.forget(&self.buffer);
        }
    }

    fn end(&self) {
        self.buffer.end();
    }
}

#[cfg(test)]
mod tests;
