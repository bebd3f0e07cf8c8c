//! The tables: per case one line per contestant, and beside the figures of the first sketch of this transport.

use super::Row;
use super::cases::{Case, Contestant, Load, Place};
use super::measure::Measurement;
use crate::table::{Align, Table, count, mebibytes};

/// How to read the table.
pub(super) const LEGEND: &str = "\
calls/s: client and server in two processes on a processor each (in-process: in one process); of raw: beside raw-seqpacket of the same
case; one proc: calls/s with both in one process; MB/s: payload in one direction; us: microseconds; cpu, dgrams, syscalls, sleeps: per
call (messages: per message), client and server together; syscalls: counted by perf in a run of its own, - without perf or permission;
MiB: largest resident size of the larger process; the 16 MiB payload is 64 bytes shorter, for irpc's framing";

fn table() -> Table {
    Table::new(&[
        ("", 15, Align::Left),
        ("calls/s", 8, Align::Right),
        ("of raw", 6, Align::Right),
        ("one proc", 8, Align::Right),
        ("MB/s", 6, Align::Right),
        ("p50 us", 8, Align::Right),
        ("p99 us", 8, Align::Right),
        ("p99.9 us", 8, Align::Right),
        ("cpu us", 8, Align::Right),
        ("dgrams", 6, Align::Right),
        ("syscalls", 8, Align::Right),
        ("sleeps", 6, Align::Right),
        ("MiB", 6, Align::Right),
    ])
}

/// The titles.
pub(super) fn header() -> String {
    table().header()
}

/// A number with about three digits.
fn short(number: f64) -> String {
    match number {
        0.0 => "0".to_owned(),
        ..10.0 => format!("{number:.2}"),
        ..100.0 => format!("{number:.1}"),
        ..100_000.0 => format!("{number:.0}"),
        _ => count(number as u64),
    }
}

/// Calls per second: exact below a hundred, where large payloads are.
fn rate(number: f64) -> String {
    if number < 100.0 {
        format!("{number:.1}")
    } else {
        count(number as u64)
    }
}

/// The lines of one case, its heading first.
pub(super) fn lines(case: &Case, rows: &[Row]) -> Vec<String> {
    let of_case = || rows.iter().filter(|row| row.case.name == case.name);
    let find = |contestant, place| {
        of_case()
            .find(|row| row.contestant == contestant && row.place == place)
            .and_then(|row| row.result.as_ref())
    };
    let floor = find(Contestant::Seqpacket, Place::TwoProcesses);
    let mut lines = vec![case.heading()];
    for contestant in super::cases::ALL {
        let two = find(contestant, Place::TwoProcesses);
        let one = find(contestant, Place::OneProcess);
        if let Some(main) = two.or(one) {
            lines.push(line(
                contestant,
                case.load,
                main,
                floor.filter(|_| two.is_some()),
                one,
            ));
        }
        let failures = of_case().filter(|row| row.contestant == contestant);
        lines.extend(failures.filter_map(|row| {
            let reason = row.failure.as_ref()?;
            let place = match row.place {
                Place::TwoProcesses => "two processes",
                Place::OneProcess => "one process",
            };
            Some(format!("  {:<15} FAILED in {place}: {reason}", contestant.name()))
        }));
    }
    lines
}

fn line(
    contestant: Contestant,
    load: Load,
    main: &Measurement,
    floor: Option<&Measurement>,
    one: Option<&Measurement>,
) -> String {
    let dash = || "-".to_owned();
    let [p50, p99, p999] = main
        .latency_us
        .map_or_else(|| [dash(), dash(), dash()], |latencies| latencies.map(short));
    let megabytes = main.rate * load.payload_bytes() as f64 / 1e6;
    table().row(&[
        format!("  {}", contestant.name()),
        rate(main.rate),
        floor.map_or_else(dash, |floor| format!("{:.2}x", main.rate / floor.rate)),
        one.map_or_else(dash, |one| rate(one.rate)),
        short(megabytes),
        p50,
        p99,
        p999,
        short(main.cpu_us),
        main.datagrams.map_or_else(dash, short),
        main.system_calls.map_or_else(dash, short),
        short(main.sleeps),
        mebibytes(main.peak_bytes),
    ])
}

/// What irpc's pull request 96, a sketch of this transport, measured: rates per second.
struct Published {
    contestant: Contestant,
    case: &'static str,
    /// By its own benchmark on two virtual cores of an AMD EPYC, Linux 6.18.
    here: f64,
    /// In its description, on its author's machine; none where it does not say.
    there: Option<f64>,
}

const fn published(contestant: Contestant, case: &'static str, here: f64, there: Option<f64>) -> Published {
    Published {
        contestant,
        case,
        here,
        there,
    }
}

const PUBLISHED: [Published; 9] = [
    published(Contestant::InProcess, "sequential", 27_600.0, Some(124_161.0)),
    published(Contestant::Quic, "sequential", 9_600.0, Some(15_984.0)),
    published(Contestant::Unix, "sequential", 10_500.0, Some(20_709.0)),
    published(Contestant::InProcess, "parallel-32", 314_000.0, Some(1_246_483.0)),
    published(Contestant::Quic, "parallel-32", 121_000.0, Some(74_524.0)),
    published(Contestant::Unix, "parallel-32", 137_000.0, Some(120_732.0)),
    published(Contestant::InProcess, "messages", 3_180_000.0, None),
    published(Contestant::Quic, "messages", 1_170_000.0, None),
    published(Contestant::Unix, "messages", 455_000.0, None),
];

/// The sketch's table beside ours, or nothing where none of its cases was measured.
pub(super) fn beside_the_sketch(rows: &[Row]) -> Vec<String> {
    let table = Table::new(&[
        ("client and server in one process", 32, Align::Left),
        ("measured", 9, Align::Right),
        ("sketch, 2 cores", 15, Align::Right),
        ("ratio", 6, Align::Right),
        ("sketch, its author's", 20, Align::Right),
    ]);
    let measured = |entry: &Published| {
        rows.iter()
            .find(|row| {
                row.contestant == entry.contestant
                    && row.case.name == entry.case
                    && row.place == Place::OneProcess
            })
            .and_then(|row| row.result.as_ref())
    };
    let lines: Vec<String> = PUBLISHED
        .iter()
        .filter_map(|entry| {
            let ours = measured(entry)?.rate;
            Some(table.row(&[
                format!("{} {}", entry.case, entry.contestant.name()),
                rate(ours),
                rate(entry.here),
                format!("{:.2}x", ours / entry.here),
                entry.there.map_or_else(|| "-".to_owned(), rate),
            ]))
        })
        .collect();
    if lines.is_empty() {
        return lines;
    }
    let title =
        "beside the sketch of this transport in irpc's pull request 96 (calls or messages per second):";
    let mut all = vec![String::new(), title.to_owned(), table.header()];
    all.extend(lines);
    all
}

#[cfg(test)]
mod tests {
    use super::super::cases;
    use super::*;

    fn row(case: &str, contestant: Contestant, place: Place, rate: f64) -> Row {
        Row {
            case: cases::all().into_iter().find(|known| known.name == case).unwrap(),
            contestant,
            place,
            result: Some(Measurement {
                rate,
                latency_us: Some([10.0, 200.0, 3_000.0]),
                datagrams: (contestant == Contestant::Unix).then_some(2.5),
                system_calls: Some(6.0),
                ..Measurement::default()
            }),
            rates: vec![rate],
            failure: None,
        }
    }

    #[test]
    fn a_case_shows_each_contestant_beside_the_floor_and_in_one_process() {
        let mut rows = vec![
            row("sequential", Contestant::Unix, Place::TwoProcesses, 12_000.0),
            row("sequential", Contestant::Unix, Place::OneProcess, 11_000.0),
            row("sequential", Contestant::InProcess, Place::OneProcess, 30_000.0),
            row("sequential", Contestant::Seqpacket, Place::TwoProcesses, 16_000.0),
            row("messages", Contestant::Tonic, Place::TwoProcesses, 1.0),
        ];
        rows.push(Row {
            result: None,
            failure: Some("it said no".to_owned()),
            ..row("sequential", Contestant::Tarpc, Place::TwoProcesses, 0.0)
        });
        let lines = lines(&rows[0].case.clone(), &rows);
        let cells: Vec<Vec<&str>> = lines
            .iter()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(lines.len(), 5, "{lines:#?}");
        assert_eq!(lines[0], "sequential: 1 client, 1 at once, 8 bytes each way");
        assert_eq!(cells[1][..4], ["in-process", "30.0k", "-", "30.0k"]);
        assert_eq!(cells[2][..5], ["unix", "12.0k", "0.75x", "11.0k", "0.10"]);
        assert_eq!(cells[2][5..8], ["10.0", "200", "3000"]);
        assert_eq!(cells[2][9..11], ["2.50", "6.00"]);
        assert_eq!(lines[3], "  tarpc-unix      FAILED in two processes: it said no");
        assert!(header().chars().count() < 150, "{}", header());
    }

    #[test]
    fn the_sketch_stands_beside_what_was_measured_and_only_that() {
        let rows = [
            row("parallel-32", Contestant::Unix, Place::OneProcess, 274_000.0),
            row("parallel-32", Contestant::Quic, Place::TwoProcesses, 1.0),
        ];
        let lines = beside_the_sketch(&rows);
        assert_eq!(lines.len(), 4, "{lines:#?}");
        assert!(
            lines[3].contains("274.0k") && lines[3].contains("2.00x"),
            "{}",
            lines[3]
        );
        assert!(beside_the_sketch(&rows[1..]).is_empty());
    }

    #[test]
    fn numbers_keep_about_three_digits() {
        assert_eq!(
            [0.0, 0.037, 12.34, 1_234.5, 250_000.0].map(short),
            ["0", "0.04", "12.3", "1234", "250.0k"]
        );
        assert_eq!([33.33, 12_345.0].map(rate), ["33.3", "12.3k"]);
    }
}
