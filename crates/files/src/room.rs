//! Room at a destination: a file that will not fit fails before its bytes are sent. Holes take none, so that what
//! counts of a file is what its sender says that it takes at least. What is free is shared with the files that are to
//! come as well: of each, what it takes still is promised to it until it has its place or fails. What a file replaces
//! is free again then, and counts for others.
//!
//! Where a file system may compress, or is not known not to, files may take less than their bytes, and nobody knows how
//! much: there each has to fit alone, and who comes beside it does not count.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rustix::fs::{AtFlags, StatxFlags, fstat, fstatfs, fstatvfs, statat, statx};
use rustix::process::geteuid;

use crate::destination::Destination;
use crate::file_system_kinds::{adds_up, kind};

/// What is promised, by device.
pub(crate) struct Room {
    devices: Mutex<HashMap<u64, Device>>,
    look: fn(&OwnedFd) -> Option<Space>,
}

impl Default for Room {
    fn default() -> Self {
        Self {
            devices: Mutex::default(),
            look,
        }
    }
}

/// What a file system has.
struct Space {
    device: u64,
    free: u64,
    /// Whether files take the sum of their bytes.
    adds_up: bool,
}

/// That of a directory; `None` where it does not tell.
fn look(directory: &OwnedFd) -> Option<Space> {
    let (system, stat) = (fstatvfs(directory).ok()?, fstat(directory).ok()?);
    // Some file systems of networks do not tell.
    if system.f_blocks == 0 {
        return None;
    }
    // What is kept back is for root.
    let blocks = match geteuid().is_root() {
        true => system.f_bfree,
        false => system.f_bavail,
    };
    Some(Space {
        device: stat.st_dev,
        free: blocks.saturating_mul(system.f_frsize),
        adds_up: fstatfs(directory).is_ok_and(|system| adds_up(kind(&system))),
    })
}

#[derive(Default)]
struct Device {
    /// Bytes of files that nobody writes so far: there may be many of them.
    waiting_bytes: u64,
    /// Those that are being written, by number.
    written: HashMap<u64, Written>,
    numbers: u64,
}

/// A file that is being written.
struct Written {
    /// Bytes by which it grows the disk, from its beginning to when it has its place.
    growth: u64,
    /// Bytes that are free again then.
    freed: u64,
    part: Weak<File>,
}

impl Device {
    /// Bytes that will be taken of what is free now; below zero where more becomes free.
    fn promised(&self) -> i128 {
        let written = self.written.values().map(|written| {
            // One that is closed has come to its end.
            let part = written.part.upgrade();
            let there = part.map_or(u64::MAX, |part| bytes_of(&part));
            (i128::from(written.growth) - i128::from(there)).max(-i128::from(written.freed))
        });
        i128::from(self.waiting_bytes) + written.sum::<i128>()
    }
}

impl Room {
    fn devices(&self) -> MutexGuard<'_, HashMap<u64, Device>> {
        self.devices.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a file takes, until this is dropped.
pub(crate) struct Promise {
    room: Arc<Room>,
    device: u64,
    /// Bytes that count as long as nobody writes it.
    bytes: u64,
    disk_bytes_min: u64,
    /// Bytes of what it replaces.
    replaced: u64,
    number: Option<u64>,
}

impl Promise {
    /// Counts as long as the destination, without a handle to keep: of a file that only is looked at.
    pub(crate) fn keep(mut self) {
        self.bytes = 0;
    }

    /// Somebody writes its part: what is in it already needs no room.
    pub(crate) fn begin(&mut self, part: &Arc<File>) {
        let mut devices = self.room.devices();
        let device = devices.entry(self.device).or_default();
        if self.number.is_none() {
            device.waiting_bytes = device.waiting_bytes.saturating_sub(self.bytes);
            device.numbers += 1;
            self.number = Some(device.numbers);
            let written = Written {
                growth: self.disk_bytes_min.saturating_sub(self.replaced),
                freed: self.replaced,
                part: Arc::downgrade(part),
            };
            device.written.insert(device.numbers, written);
        }
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        let mut devices = self.room.devices();
        let device = devices.entry(self.device).or_default();
        match self.number {
            Some(number) => {
                device.written.remove(&number);
            }
            None => device.waiting_bytes = device.waiting_bytes.saturating_sub(self.bytes),
        }
    }
}

/// What of a file is there before it comes.
#[derive(Clone, Copy, Default)]
pub(crate) struct There<'a> {
    /// Its part, which it goes on with or takes the place of.
    pub(crate) part: Option<&'a File>,
    /// Whether it replaces what is in its place.
    pub(crate) is_replaced: bool,
}

/// Bytes that a file takes on its disk, as far as this machine knows: to know better, NFS would first write all that
/// waits to be written of it.
fn bytes_of(file: &File) -> u64 {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = statx(file, "", flags, StatxFlags::BLOCKS);
    stat.map_or(0, |stat| stat.stx_blocks.saturating_mul(512))
}

impl Destination {
    /// Checks that a file at `path` fits beside those that are to come; so many bytes it takes on the disk at least. It
    /// has them as long as the promise is kept; `None` where it needs none, or the file system does not tell what they
    /// are.
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`], with what it needs and what there is.
    pub(crate) fn check_room(
        &self,
        path: &Path,
        there: There<'_>,
        disk_bytes_min: u64,
    ) -> io::Result<Option<Promise>> {
        let directory = match self.nearest(path) {
            Err(_) if disk_bytes_min == 0 => return Ok(None),
            other => other?,
        };
        if disk_bytes_min == 0 {
            return Ok(None);
        }
        let part = there.part.map_or(0, bytes_of);
        let replaced = match path.file_name().filter(|_| there.is_replaced) {
            Some(name) => statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)
                .ok()
                .filter(|stat| stat.st_nlink <= 1)
                .map_or(0, |stat| {
                    u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512)
                }),
            None => 0,
        };
        let needed = disk_bytes_min.saturating_sub(part);
        // What becomes free meanwhile may be promised.
        let mut devices = self.room.devices();
        let Some(Space {
            device: number,
            free,
            adds_up,
        }) = (self.room.look)(&directory)
        else {
            return Ok(None);
        };
        if !adds_up {
            return check(needed, free, free).map(|()| None);
        }
        let device = devices.entry(number).or_default();
        let left = (i128::from(free) - device.promised()).max(0);
        check(needed, u64::try_from(left).unwrap_or(u64::MAX), free)?;
        let bytes = needed.saturating_sub(replaced);
        device.waiting_bytes = device.waiting_bytes.saturating_add(bytes);
        Ok(Some(Promise {
            room: Arc::clone(&self.room),
            device: number,
            bytes,
            disk_bytes_min,
            replaced,
            number: None,
        }))
    }
}

/// `left`: what is free and not promised to others.
fn check(needed: u64, left: u64, free: u64) -> io::Result<()> {
    if needed <= left {
        return Ok(());
    }
    let text = match needed > free {
        true => format!("it needs {}, and {} are free", shown(needed), shown(free)),
        false => format!(
            "it needs {}, and of {} that are free other files that come need all but {}",
            shown(needed),
            shown(free),
            shown(left)
        ),
    };
    Err(io::Error::new(io::ErrorKind::StorageFull, text))
}

/// Bytes for people, in units of which no thousand is left.
fn shown(bytes: u64) -> String {
    if bytes < 1_000 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1_000.0;
    for unit in ["kB", "MB", "GB"] {
        if value < 999.95 {
            return format!("{value:.1} {unit}");
        }
        value /= 1_000.0;
    }
    format!("{value:.1} TB")
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn what_does_not_fit_is_told_with_what_it_needs_and_what_there_is() {
        assert!(check(0, 0, 0).is_ok() && check(5, 5, 9).is_ok());
        let error = check(8_000_000_001, 7, 2_100_000).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(error.to_string(), "it needs 8.0 GB, and 2.1 MB are free");
        assert_eq!(
            check(2_000_000, 7, 2_100_000).unwrap_err().to_string(),
            "it needs 2.0 MB, and of 2.1 MB that are free other files that come need all but 7 B"
        );
        assert_eq!(shown(999), "999 B");
        assert_eq!(shown(u64::MAX), "18446744.1 TB");
    }

    #[test]
    fn what_is_in_a_part_needs_no_more_room() {
        let directory = tempfile::tempdir().unwrap();
        let destination = Destination::open(directory.path()).unwrap();
        let path = Path::new("file");
        let check = |part, bytes| {
            let there = There {
                part,
                ..There::default()
            };
            destination.check_room(path, there, bytes)
        };
        assert!(check(None, 0).is_ok());
        let refused = check(None, u64::MAX).map(|_| ()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
        let mut part = destination.create_part(path).unwrap();
        io::Write::write_all(&mut part, &vec![1; 1 << 20]).unwrap();
        part.sync_all().unwrap();
        let needs = |part| {
            let error = check(part, 1 << 62).map(|_| ()).unwrap_err();
            error.to_string()
        };
        assert!(
            needs(None).starts_with("it needs 4611686.0 TB"),
            "{}",
            needs(None)
        );
        assert!(needs(Some(&part)).starts_with("it needs 4611686.0 TB"));
        assert!(check(Some(&part), 1 << 20).is_ok());
    }

    pub(crate) fn promised(destination: &Destination) -> i128 {
        destination.room.devices().values().map(Device::promised).sum()
    }

    #[test]
    fn what_is_promised_is_what_a_file_takes_still_until_it_has_its_place() {
        let directory = tempfile::tempdir().unwrap();
        FREE.set(1 << 30);
        let destination = with_free(&directory);
        let write = |file: &mut File, mebibytes: usize| {
            io::Write::write_all(file, &vec![1; mebibytes << 20]).unwrap();
            file.sync_all().unwrap();
            i128::from(bytes_of(file))
        };
        let check = |name: &str, there, bytes| {
            let promise = destination.check_room(Path::new(name), there, bytes);
            promise.unwrap().expect("a file system that tells")
        };
        let other = check("other", There::default(), 5 << 20);
        let mut file = check("file", There::default(), 4 << 20);
        assert_eq!(promised(&destination), 9 << 20);
        let mut part = destination.create_part(Path::new("part")).unwrap();
        let there = write(&mut part, 1);
        let part = Arc::new(part);
        file.begin(&part);
        assert_eq!(promised(&destination), (9 << 20) - there);
        drop(file);
        assert_eq!(promised(&destination), 5 << 20);
        drop(other);
        assert_eq!(promised(&destination), 0);
        let looked_at = with_free(&directory);
        for number in 1..3 {
            let promise = looked_at.check_room(Path::new("file"), There::default(), 5 << 20);
            promise.unwrap().expect("a file system that tells").keep();
            assert_eq!(promised(&looked_at), number * (5 << 20));
        }
        // What it replaces is free afterwards, also while both are there.
        let mut replaced = destination.create(Path::new("file")).unwrap();
        let freed = write(&mut replaced, 2);
        let replaces = There {
            is_replaced: true,
            ..There::default()
        };
        let mut file = check("file", replaces, 3 << 20);
        assert_eq!(promised(&destination), (3 << 20) - freed);
        file.begin(&part);
        assert_eq!(promised(&destination), (3 << 20) - freed - there);
        drop(part);
        assert_eq!(promised(&destination), -freed, "it is closed, and about to end");
        drop(file);
        assert_eq!(promised(&destination), 0);
        // A part that is gone on with, also where the file was another one then.
        let part = Arc::new(destination.write(Path::new("part")).unwrap());
        let kept = There {
            part: Some(&part),
            is_replaced: false,
        };
        let mut file = check("file", kept, 4 << 20);
        assert_eq!(promised(&destination), (4 << 20) - there);
        file.begin(&part);
        assert_eq!(promised(&destination), (4 << 20) - there);
        drop(file);
        assert_eq!(promised(&destination), 0);
    }

    thread_local! {
        pub(crate) static FREE: Cell<u64> = const { Cell::new(0) };
        static ADDS_UP: Cell<bool> = const { Cell::new(true) };
    }

    /// A destination on a disk of which [`FREE`] is free.
    pub(crate) fn with_free(directory: &tempfile::TempDir) -> Destination {
        let mut destination = Destination::open(directory.path()).unwrap();
        destination.room = Arc::new(Room {
            look: |_| {
                Some(Space {
                    device: 7,
                    free: FREE.get(),
                    adds_up: ADDS_UP.get(),
                })
            },
            ..Room::default()
        });
        destination
    }

    #[test]
    fn where_a_file_system_may_compress_each_file_has_to_fit_alone() {
        use crate::file_system_kinds::{BTRFS, CIFS, EXFAT, EXT, F2FS, FAT, NTFS, SMB2, TMPFS, XFS};

        let (overlay, fuse, nfs, zfs) = (0x794c_7630, 0x6573_5546, 0x6969, 0x2fc1_2fc1);
        let (ubifs, jffs2, unknown) = (0x2405_1905, 0x72b6, 7);
        for kind in [EXT, XFS, TMPFS, FAT, EXFAT] {
            assert!(adds_up(kind), "{kind:x}");
        }
        for kind in [
            BTRFS, F2FS, NTFS, CIFS, SMB2, overlay, fuse, nfs, zfs, ubifs, jffs2, unknown,
        ] {
            assert!(!adds_up(kind), "{kind:x}");
        }
        let directory = tempfile::tempdir().unwrap();
        let destination = with_free(&directory);
        let check = || destination.check_room(Path::new("file"), There::default(), 5 << 20);
        FREE.set(8 << 20);
        for (sum, fit) in [(true, false), (false, true)] {
            ADDS_UP.set(sum);
            let promise = check().unwrap();
            assert_eq!(check().is_ok(), fit);
            drop(promise);
        }
        FREE.set(4 << 20);
        let refused = check().map(|_| ()).unwrap_err();
        assert_eq!(refused.to_string(), "it needs 5.2 MB, and 4.2 MB are free");
    }
}
