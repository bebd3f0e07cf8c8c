//! A TCP source and sink in threads, for the demo.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::error::During;
use crate::{Error, limits};

/// Accepts and throws away what it reads; counts bytes.
#[derive(Debug)]
pub(crate) struct TcpSink {
    received: Arc<AtomicU64>,
}

impl TcpSink {
    /// Serves `listener` as long as the process lives.
    pub(crate) fn start(listener: TcpListener) -> Self {
        let received = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&received);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let counter = Arc::clone(&counter);
                thread::spawn(move || read_all(stream, &counter));
            }
        });
        Self { received }
    }

    /// Bytes read so far, of all streams.
    pub(crate) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }
}

fn read_all(mut stream: TcpStream, counter: &AtomicU64) {
    let mut buffer = vec![0; limits::TCP_CHUNK_BYTES];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        counter.fetch_add(count as u64, Ordering::Relaxed);
    }
}

/// Writes into one stream until told to stop.
#[derive(Debug)]
pub(crate) struct TcpSource {
    stop: Arc<AtomicBool>,
    writer: JoinHandle<std::io::Result<u64>>,
}

impl TcpSource {
    /// Connects and begins to write.
    ///
    /// # Errors
    /// When nobody listens there.
    pub(crate) fn start(destination: SocketAddr) -> Result<Self, Error> {
        let action = || format!("connect to {destination}");
        let stream = TcpStream::connect_timeout(&destination, Duration::from_secs(5)).during(action)?;
        stream
            .set_write_timeout(Some(limits::STOP_CHECK))
            .during(action)?;
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        Ok(Self {
            stop,
            writer: thread::spawn(move || write_until(stream, &flag)),
        })
    }

    /// Ends the stream; returns the bytes written.
    ///
    /// # Errors
    /// When the stream broke before.
    pub(crate) fn finish(self) -> Result<u64, Error> {
        self.stop.store(true, Ordering::Relaxed);
        let written = self
            .writer
            .join()
            .map_err(|_| Error::Setup("the TCP writer panicked".to_owned()))?;
        written.during(|| "write to the TCP forward".to_owned())
    }
}

fn write_until(mut stream: TcpStream, stop: &AtomicBool) -> std::io::Result<u64> {
    let (chunk, mut written) = (vec![0x5a; limits::TCP_CHUNK_BYTES], 0);
    while !stop.load(Ordering::Relaxed) {
        match stream.write(&chunk) {
            Ok(count) => written += count as u64,
            Err(error)
                if matches!(
                    error.kind(),
                    std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
                ) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use testbed::wait::holds_within;

    use super::*;

    #[test]
    fn what_the_source_writes_the_sink_reads() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let sink = TcpSink::start(listener);
        let source = TcpSource::start(address).unwrap();
        assert!(holds_within(Duration::from_secs(10), || sink.received() > 1_000_000));
        let written = source.finish().unwrap();
        assert!(holds_within(Duration::from_secs(10), || sink.received() == written));
    }
}
