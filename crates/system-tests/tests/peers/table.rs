//! The table of which pairs meet how, and how soon: each test prints its rows, and with [`WRITE_VARIABLE`] set writes
//! them into the peers' architecture, which has a block for each.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::thread;

/// Has the rows written.
const WRITE_VARIABLE: &str = "GRAMWAY_WRITE_PAIRS";

/// Where, from the root of the repository.
const FILE: &str = "crates/peer/ARCHITECTURE.md";

/// One test writes at a time.
static WRITER: Mutex<()> = Mutex::new(());

/// Rows of Markdown under a head.
pub(crate) struct Table {
    block: &'static str,
    rows: String,
}

impl Table {
    /// An empty one for the block of this name.
    pub(crate) fn new(block: &'static str, head: &[&str]) -> Self {
        let mut table = Self {
            block,
            rows: String::new(),
        };
        table.add(head.iter().map(ToString::to_string));
        table.add(head.iter().map(|_| "---".to_owned()));
        table
    }

    /// One row more.
    pub(crate) fn add(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<String> = cells.into_iter().collect();
        let row = format!("| {} |", cells.join(" | "));
        println!("{row}");
        self.rows += &row;
        self.rows.push('\n');
    }

    /// It is complete.
    pub(crate) fn finish(self) {
        if std::env::var_os(WRITE_VARIABLE).is_none() {
            return;
        }
        let _one = WRITER.lock().unwrap();
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(FILE);
        let text = fs::read_to_string(&path).unwrap();
        let (begin, end) = (
            format!("<!-- pairs: {} -->\n", self.block),
            "<!-- end of pairs -->",
        );
        let (before, rest) = text
            .split_once(&begin)
            .unwrap_or_else(|| panic!("{FILE} has no line {begin}"));
        let (_, after) = rest.split_once(end).unwrap();
        let Self { rows, .. } = self;
        let made = format!("{before}{begin}{}:\n\n{rows}\n{end}{after}", conditions());
        fs::write(&path, made).unwrap();
    }
}

/// Day and machine.
fn conditions() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let day = Command::new("date").args(["-u", "+%-d %B %Y"]).output().unwrap();
    let day = String::from_utf8_lossy(&day.stdout).trim().to_owned();
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let about = read("/proc/cpuinfo");
    let model = about
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    let (kernel, load) = (read("/proc/sys/kernel/osrelease"), read("/proc/loadavg"));
    let kernel: Vec<&str> = kernel.trim().split('.').take(2).collect();
    let load = load.split(' ').next().unwrap_or_default();
    format!(
        "{day}, {processors} virtual cores ({}), Linux {}, load {load} at the end",
        model.unwrap_or("of an unknown model"),
        kernel.join(".")
    )
}
