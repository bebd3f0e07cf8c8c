//! How many packets a TUN device has dropped because nobody read them in time.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The kernel's counter of one device.
#[derive(Debug)]
pub struct TunOverflow {
    counter: File,
}

impl TunOverflow {
    /// Of the device `name`.
    ///
    /// # Errors
    /// Where there is no such device, or no sysfs of its network namespace.
    pub fn open(name: &str) -> io::Result<Self> {
        let counter = File::open(format!("/sys/class/net/{name}/statistics/tx_dropped"))?;
        Ok(Self { counter })
    }

    /// Packets and super-packets since the device exists, of all its queues.
    ///
    /// # Errors
    /// Where the device is gone.
    pub fn packets(&self) -> io::Result<u64> {
        let mut text = [0; 24];
        let length = self.counter.read_at(&mut text, 0)?;
        let text = std::str::from_utf8(&text[..length]).unwrap_or_default();
        text.trim()
            .parse()
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
    }
}
