//! Traces of chosen connections: packets sent, received and lost, and the state of congestion control, in the qlog format
//! (draft-ietf-quic-qlog-main-schema), one JSON text a record (RFC 7464).
//!
//! The core makes the records while it handles packets; this file hands each to whoever asked for it, as a whole. A trace
//! holds no address, no payload and no key. A connection without a trace pays one test of an `Option` for a packet.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use quinn_proto::{QlogConfig, QlogStream};

/// Decides which connections are traced.
pub trait Tracer: Send {
    /// A connection begins. `None`: it is not traced.
    fn begin(&mut self) -> Option<Arc<dyn Trace>>;
}

/// Takes the trace of one connection.
pub trait Trace: Send + Sync {
    /// Takes a record: the separator, a JSON object, a line feed. The first one describes the trace. The packet that caused
    /// it waits meanwhile.
    fn record(&self, record: &[u8]);

    /// The peer has shown that it is this user.
    fn belongs_to(&self, user: [u8; 16]);

    /// No record follows.
    fn end(&self);
}

/// Where the core writes the records of a connection that begins `now`.
pub(crate) fn stream(trace: &Arc<dyn Trace>, now: Instant, is_client: bool) -> Option<QlogStream> {
    let title = if is_client {
        "gramway client"
    } else {
        "gramway server"
    };
    let mut config = QlogConfig::default();
    config
        .writer(Box::new(Records {
            trace: Arc::clone(trace),
            record: Vec::new(),
        }))
        .title(Some(title.to_owned()))
        .start_time(now);
    config.into_stream()
}

/// Puts pieces of text together to records.
struct Records {
    trace: Arc<dyn Trace>,
    record: Vec<u8>,
}

impl io::Write for Records {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.record.extend_from_slice(bytes);
        // JSON has line feeds nowhere else: in its strings they are escaped.
        if bytes.last() == Some(&b'\n') {
            self.trace.record(&self.record);
            self.record.clear();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        self.trace.end();
    }
}
