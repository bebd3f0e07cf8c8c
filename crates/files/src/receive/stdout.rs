//! Standard output, whose reader may read nothing for as long as it likes: whoever writes looks now and then whether
//! the transfer goes on, and gives up once it is over.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::PIPE_BUF;

use crate::limits::TURN;

/// One that others may share: that it waits for its reader is theirs, so that it stays as it is. A pipe that is ready
/// takes as much as one that others write to keeps together, and may not take more.
pub(super) struct Stdout {
    file: OwnedFd,
    write_bytes_max: usize,
    is_over: Arc<AtomicBool>,
}

impl Stdout {
    /// The one of this program.
    pub(super) fn new(is_over: &Arc<AtomicBool>) -> io::Result<Self> {
        Ok(Self::of(io::stdout().as_fd().try_clone_to_owned()?, is_over))
    }

    fn of(file: OwnedFd, is_over: &Arc<AtomicBool>) -> Self {
        let file = File::from(file);
        // Files wait for nobody.
        let is_file = file.metadata().is_ok_and(|metadata| metadata.is_file());
        Self {
            file: file.into(),
            write_bytes_max: if is_file { usize::MAX } else { PIPE_BUF },
            is_over: Arc::clone(is_over),
        }
    }
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let bytes = &bytes[..bytes.len().min(self.write_bytes_max)];
        let turn = Timespec {
            tv_sec: 0,
            tv_nsec: i64::from(TURN.subsec_nanos()),
        };
        while !self.is_over.load(Ordering::SeqCst) {
            if !poll(&mut [PollFd::new(&self.file, PollFlags::OUT)], Some(&turn)).is_ok_and(|ready| ready > 0)
            {
                continue;
            }
            match rustix::io::write(&self.file, bytes) {
                // Somebody else was faster.
                Err(Errno::AGAIN | Errno::INTR) => {}
                written => return Ok(written?),
            }
        }
        Err(io::ErrorKind::ConnectionAborted.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::thread;

    use super::*;

    #[test]
    fn what_nobody_reads_is_given_up_with_the_transfer() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let mut stdout = Stdout::of(write, &is_over);
        thread::scope(|scope| {
            let writing = scope.spawn(|| {
                // More than any pipe takes.
                let bytes = [&b"begun"[..], &[7; 4 << 20]].concat();
                stdout.write_all(&bytes)
            });
            let mut begun = [0; 5];
            File::from(read.try_clone().unwrap())
                .read_exact(&mut begun)
                .unwrap();
            assert_eq!(&begun, b"begun");
            is_over.store(true, Ordering::SeqCst);
            let error = writing.join().unwrap().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
        });
    }

    #[test]
    fn what_is_read_arrives_whole_and_a_reader_that_leaves_is_an_error() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let mut stdout = Stdout::of(write, &is_over);
        let bytes: Vec<u8> = (0..300_000_u32).map(|number| (number % 251) as u8).collect();
        let mut read = File::from(read);
        thread::scope(|scope| {
            scope.spawn(|| stdout.write_all(&bytes).unwrap());
            let mut there = vec![0; bytes.len()];
            read.read_exact(&mut there).unwrap();
            assert!(there == bytes);
        });
        drop(read);
        let error = stdout.write_all(b"more").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        // A file takes all at once.
        let file = tempfile::tempfile().unwrap();
        let mut stdout = Stdout::of(file.into(), &is_over);
        assert_eq!(stdout.write(&bytes).unwrap(), bytes.len());
    }
}
