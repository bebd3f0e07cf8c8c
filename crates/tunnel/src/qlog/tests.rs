//! From records to files, with connections that are chosen or not.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::mpsc;

use serde_json::Value;
use tempfile::TempDir;

use super::*;

const BOUNDS: Bounds = Bounds {
    file_bytes: 10_000,
    files: 4,
};
const HEADER: &[u8] = b"\x1e{\"title\":\"test\"}\n";

/// The files of a directory with the records of each, by name.
fn files(directory: &Path) -> Vec<(String, Vec<Value>)> {
    let entries = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries
        .map(|path| {
            assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
            assert!(path.metadata().unwrap().len() <= BOUNDS.file_bytes as u64);
            let bytes = fs::read(&path).unwrap();
            let records = bytes.split(|byte| *byte == 0x1e).skip(1);
            let records = records.map(|record| serde_json::from_slice(record).unwrap());
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, records.collect())
        })
        .collect();
    files.sort_by(|one, other| one.0.cmp(&other.0));
    files
}

/// One user, whether chosen or not.
struct Ann(bool);

const ANN: [u8; 16] = [1; 16];

impl Chosen for Ann {
    fn is_anybody(&self) -> bool {
        self.0
    }

    fn name(&self, user: UserId) -> Option<String> {
        (user.0 == ANN).then(|| "ann/x".to_owned())
    }
}

/// Writes into a new directory, and the complaints.
fn start(chosen: Option<Arc<dyn Chosen>>) -> (TempDir, Qlog, mpsc::Receiver<String>) {
    let directory = tempfile::tempdir().unwrap();
    let (complaints, heard) = mpsc::channel();
    let complain = Box::new(move |text| complaints.send(text).unwrap());
    let qlog = Qlog::start_within(BOUNDS, directory.path().to_owned(), chosen, complain).unwrap();
    (directory, qlog, heard)
}

fn record(number: u64, length: usize) -> Vec<u8> {
    let padding = "x".repeat(length.saturating_sub(40));
    format!("\x1e{{\"number\":{number},\"padding\":\"{padding}\"}}\n").into_bytes()
}

#[test]
fn of_a_servers_connections_those_of_the_chosen_user_are_written() {
    let (directory, qlog, complaints) = start(Some(Arc::new(Ann(true))));
    let mut tracer = qlog.tracing();
    let [of_ann, of_bob, of_stranger] = [(); 3].map(|()| tracer.begin().unwrap());
    for (trace, user) in [
        (&of_ann, Some(ANN)),
        (&of_bob, Some([2; 16])),
        (&of_stranger, None),
    ] {
        trace.record(HEADER);
        trace.record(&record(1, 0));
        user.into_iter().for_each(|user| trace.belongs_to(user));
        trace.record(&record(2, 0));
        trace.end();
    }
    drop(qlog);
    let found = files(directory.path());
    let [(name, records)] = &found[..] else {
        panic!("{found:?}");
    };
    assert!(
        name.starts_with("gramway-ann_x-") && name.ends_with("-1-1.sqlog"),
        "{name}"
    );
    assert_eq!(records.len(), 3);
    assert_eq!(
        (&records[0]["title"], &records[2]["number"]),
        (&"test".into(), &2.into())
    );
    assert_eq!(complaints.try_recv().ok(), None);
}

#[test]
fn a_long_trace_goes_on_in_files_that_can_be_read_alone_and_the_oldest_make_room() {
    let (directory, qlog, _complaints) = start(None);
    let other = directory.path().join("gramway-notes.txt");
    let trace = qlog.tracing().begin().unwrap();
    trace.record(HEADER);
    let length = 1_000;
    let total = ((BOUNDS.files + 2) * BOUNDS.file_bytes / length) as u64;
    for number in 0..total {
        trace.record(&record(number, length));
        // Not faster than the writer, so that none is left out.
        while qlog.open.all()[0].waiting() > 0 {
            qlog.open.hurry();
            thread::yield_now();
        }
    }
    fs::write(&other, "").unwrap();
    trace.end();
    drop(qlog);
    assert!(other.is_file());
    fs::remove_file(other).unwrap();
    let found = files(directory.path());
    assert_eq!(found.len(), BOUNDS.files);
    let mut numbers = Vec::new();
    for (name, records) in &found {
        assert_eq!(records[0]["title"], "test", "{name}");
        numbers.extend(
            records[1..]
                .iter()
                .map(|record| record["number"].as_u64().unwrap()),
        );
    }
    numbers.sort_unstable();
    assert_eq!(numbers.last(), Some(&(total - 1)));
    assert!(
        numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]),
        "records are missing"
    );
}

#[test]
fn what_is_missing_is_told() {
    let (directory, qlog, complaints) = start(None);
    let mut tracer = qlog.tracing();
    let [fast, unwritable] = [(); 2].map(|()| tracer.begin().unwrap());
    fast.record(HEADER);
    let buffer = qlog.open.all().remove(0);
    // More than waits at a time, whatever the writer does meanwhile.
    while buffer.left_out() == 0 {
        fast.record(&record(1, BOUNDS.file_bytes / 2));
    }
    fast.end();
    let told = complaints.recv().unwrap();
    assert!(
        told.contains("records are missing from the trace gramway-client-"),
        "{told}"
    );
    fs::remove_dir_all(directory.path()).unwrap();
    unwritable.record(HEADER);
    let told = complaints.recv().unwrap();
    assert!(
        told.contains("ends early") && told.contains("No such file"),
        "{told}"
    );
}

#[test]
fn many_connections_at_a_time_are_bounded_and_strangers_make_room() {
    let (_directory, qlog, _complaints) = start(Some(Arc::new(Ann(true))));
    let mut tracer = qlog.tracing();
    let traces: Vec<_> = (0..3 * QLOG_TRACES_MAX)
        .map(|_| tracer.begin().unwrap())
        .collect();
    assert_eq!(qlog.open.all().len(), QLOG_TRACES_MAX);
    // The last ones are there; once all are users', nobody makes room.
    traces[2 * QLOG_TRACES_MAX..]
        .iter()
        .for_each(|trace| trace.belongs_to(ANN));
    assert!(tracer.begin().is_none());
}

#[test]
fn where_nobody_is_chosen_no_connection_is_traced() {
    let (_directory, qlog, _complaints) = start(Some(Arc::new(Ann(false))));
    assert!(qlog.tracing().begin().is_none());
}
