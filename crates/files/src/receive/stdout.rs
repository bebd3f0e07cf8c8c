//! Standard output, whose reader may read nothing for as long as it likes: whoever writes looks now and then whether
//! the transfer goes on, and gives up once it is over.

use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags, fstat};
use rustix::io::Errno;
use rustix::pipe::PIPE_BUF;

use crate::limits::TURN;

/// One that others may share: that it waits for its reader is theirs, so that it stays as it is. A pipe is opened once
/// more, not to wait; where that cannot be, one that is ready takes as much as pipes keep together, and may not take
/// more.
pub(super) struct Stdout {
    file: OwnedFd,
    write_bytes_max: usize,
    is_over: Arc<AtomicBool>,
}

impl Stdout {
    /// The one of this program.
    pub(super) fn new(is_over: &Arc<AtomicBool>) -> io::Result<Self> {
        let file = io::stdout().as_fd().try_clone_to_owned()?;
        let own = opened_again(&file);
        Ok(Self::of(file, own, is_over))
    }

    fn of(file: OwnedFd, own: Option<OwnedFd>, is_over: &Arc<AtomicBool>) -> Self {
        let waits = own.is_none() && !kind(&file).is_some_and(is_disk);
        Self {
            file: own.unwrap_or(file),
            write_bytes_max: if waits { PIPE_BUF } else { usize::MAX },
            is_over: Arc::clone(is_over),
        }
    }
}

fn kind(file: &OwnedFd) -> Option<FileType> {
    let stat = fstat(file).ok()?;
    Some(FileType::from_raw_mode(stat.st_mode))
}

/// Whether it takes all at once, as it waits for no reader: a file, or a disk itself.
fn is_disk(kind: FileType) -> bool {
    matches!(kind, FileType::RegularFile | FileType::BlockDevice)
}

/// A pipe, not to wait: others that have it open still do.
fn opened_again(pipe: &OwnedFd) -> Option<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let path = format!("/proc/self/fd/{}", pipe.as_raw_fd());
    match kind(pipe)? {
        FileType::Fifo => rustix::fs::open(path, flags, Mode::empty()).ok(),
        _ => None,
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
    use std::fs::File;
    use std::io::Read;
    use std::thread;

    use super::*;

    #[test]
    fn what_nobody_reads_is_given_up_with_the_transfer() {
        for again in [true, false] {
            let (read, write) = rustix::pipe::pipe().unwrap();
            let own = opened_again(&write).filter(|_| again);
            let is_over = Arc::new(AtomicBool::new(false));
            let mut stdout = Stdout::of(write.try_clone().unwrap(), own, &is_over);
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
            let flags = rustix::fs::fcntl_getfl(&write).unwrap();
            assert!(!flags.contains(OFlags::NONBLOCK), "others share it");
        }
    }

    #[test]
    fn what_is_read_arrives_whole_and_a_reader_that_leaves_is_an_error() {
        let is_over = Arc::new(AtomicBool::new(false));
        let bytes: Vec<u8> = (0..300_000_u32).map(|number| (number % 251) as u8).collect();
        for again in [true, false] {
            let (read, write) = rustix::pipe::pipe().unwrap();
            let own = opened_again(&write).filter(|_| again);
            let mut stdout = Stdout::of(write, own, &is_over);
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
        }
        // A file takes all at once, and so does a disk; a terminal may stand still.
        let kinds = [FileType::BlockDevice, FileType::CharacterDevice, FileType::Socket];
        assert_eq!(kinds.map(is_disk), [true, false, false]);
        let file = tempfile::tempfile().unwrap().into();
        assert!(opened_again(&file).is_none());
        let mut stdout = Stdout::of(file, None, &is_over);
        assert_eq!(stdout.write(&bytes).unwrap(), bytes.len());
    }
}
