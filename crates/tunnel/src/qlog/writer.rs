//! The thread that writes traces: files of bounded length, each of which can be read by itself, and not too many of
//! them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use super::buffer::{Buffer, Taken};
use super::{Bounds, Complain, OpenTraces};
use crate::limits::QLOG_INTERVAL;

/// What names of traces begin and end with; files with other names are left alone.
const PREFIX: &str = "gramway-";
const SUFFIX: &str = ".sqlog";

pub(super) struct Writer {
    place: Place,
    complain: Complain,
    traces: Vec<(Arc<Buffer>, TraceFiles)>,
    /// Traces of this run so far.
    count: u64,
    /// When it began, in seconds since 1970, so that names differ between runs.
    run: u64,
}

/// Where files go, and how many and how long they are.
struct Place {
    directory: PathBuf,
    bounds: Bounds,
}

/// The files of one trace.
struct TraceFiles {
    /// Name without part and suffix.
    stem: String,
    /// The record that describes the trace; each file begins with it.
    header: Vec<u8>,
    part: u32,
    present: Option<File>,
    bytes: usize,
    left_out: u64,
    has_failed: bool,
}

impl Writer {
    pub(super) fn new(bounds: Bounds, directory: PathBuf, complain: Complain) -> Self {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            place: Place { directory, bounds },
            complain,
            traces: Vec::new(),
            count: 0,
            run: since_1970.as_secs(),
        }
    }

    /// Writes what comes until it is to stop, and then what is left.
    pub(super) fn run(mut self, open: &OpenTraces) {
        loop {
            let is_last = open.is_stopping.load(Ordering::Relaxed);
            for buffer in open.all() {
                let taken = buffer.take();
                let is_complete = taken.has_ended || is_last;
                self.write(&buffer, taken);
                if is_complete {
                    self.complete(&buffer);
                    open.forget(&buffer);
                }
            }
            if is_last {
                return;
            }
            thread::park_timeout(QLOG_INTERVAL);
        }
    }

    fn write(&mut self, buffer: &Arc<Buffer>, taken: Taken) {
        let Some(name) = taken.name else { return };
        let index = self
            .traces
            .iter()
            .position(|(known, _)| Arc::ptr_eq(known, buffer));
        let index = index.unwrap_or_else(|| {
            self.count += 1;
            let stem = format!("{PREFIX}{}-{}-{}", in_file_names(&name), self.run, self.count);
            let header = taken.records.split_inclusive(|byte| *byte == b'\n').next();
            let files = TraceFiles::new(stem, header.unwrap_or_default().to_vec());
            self.traces.push((Arc::clone(buffer), files));
            self.traces.len() - 1
        });
        let files = &mut self.traces[index].1;
        files.left_out += taken.left_out;
        if files.has_failed || taken.records.is_empty() {
            return;
        }
        if let Err(error) = files.append(&self.place, &taken.records) {
            files.has_failed = true;
            (self.complain)(format!(
                "the trace {} ends early: cannot write in {}: {error}",
                files.stem,
                self.place.directory.display()
            ));
        }
    }

    fn complete(&mut self, buffer: &Arc<Buffer>) {
        let index = self
            .traces
            .iter()
            .position(|(known, _)| Arc::ptr_eq(known, buffer));
        let Some((_, files)) = index.map(|index| self.traces.swap_remove(index)) else {
            return;
        };
        if files.left_out > 0 && !files.has_failed {
            (self.complain)(format!(
                "{} records are missing from the trace {}: they came faster than they could be written",
                files.left_out, files.stem
            ));
        }
    }
}

impl TraceFiles {
    fn new(stem: String, header: Vec<u8>) -> Self {
        Self {
            stem,
            header,
            part: 0,
            present: None,
            bytes: 0,
            left_out: 0,
            has_failed: false,
        }
    }

    /// Appends whole records, to the next file once the present one is full.
    fn append(&mut self, place: &Place, records: &[u8]) -> io::Result<()> {
        let mut rest = records;
        while !rest.is_empty() {
            let room = place.bounds.file_bytes.saturating_sub(self.bytes);
            let fits = if rest.len() <= room {
                rest.len()
            } else {
                let end = rest[..room].iter().rposition(|byte| *byte == b'\n');
                end.map_or(0, |end| end + 1)
            };
            match &mut self.present {
                Some(file) if fits > 0 => {
                    file.write_all(&rest[..fits])?;
                    self.bytes += fits;
                    rest = &rest[fits..];
                }
                _ => self.begin_part(place)?,
            }
        }
        Ok(())
    }

    fn begin_part(&mut self, place: &Place) -> io::Result<()> {
        place.make_room()?;
        let is_first = self.part == 0;
        self.part += 1;
        let path = place
            .directory
            .join(format!("{}-{}{SUFFIX}", self.stem, self.part));
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(path)?;
        self.bytes = 0;
        if !is_first {
            file.write_all(&self.header)?;
            self.bytes = self.header.len();
        }
        self.present = Some(file);
        Ok(())
    }
}

impl Place {
    /// Removes the oldest traces until there is room for another file.
    fn make_room(&self) -> io::Result<()> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            let name = entry.file_name();
            let is_ours = name
                .to_str()
                .is_some_and(|name| name.starts_with(PREFIX) && name.ends_with(SUFFIX));
            // One that has gone meanwhile makes room as well.
            if let Some(metadata) = entry.metadata().ok().filter(|found| is_ours && found.is_file()) {
                files.push((metadata.modified()?, entry.path()));
            }
        }
        files.sort();
        let surplus = (files.len() + 1).saturating_sub(self.bounds.files);
        for (_, path) in files.into_iter().take(surplus) {
            fs::remove_file(path)?;
        }
        Ok(())
    }
}

/// A user's name without characters that mean something in paths.
fn in_file_names(name: &str) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || "._-".contains(c) {
            c
        } else {
            '_'
        }
    };
    name.chars().map(plain).collect()
}
