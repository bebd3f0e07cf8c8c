//! What a process has given up, as the kernel tells it of each thread.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

pub(crate) const NET_BIND_SERVICE: u64 = 1 << 10;
pub(crate) const NET_ADMIN: u64 = 1 << 12;
pub(crate) const NET_RAW: u64 = 1 << 13;

/// The fields of a process's or thread's `status` file.
pub(crate) fn fields(status: PathBuf) -> BTreeMap<String, String> {
    let text = fs::read_to_string(status).unwrap();
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    lines
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect()
}

/// Every thread of a process, and of the children of each, but for the launcher of a server: it has nothing to do with
/// the network, and starts the server's own program alone.
pub(crate) fn threads(process: u32) -> Vec<PathBuf> {
    let command = fs::read(format!("/proc/{process}/cmdline")).unwrap();
    if command.split(|byte| *byte == 0).nth(1) == Some(b"_launcher") {
        return Vec::new();
    }
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let mut all = Vec::new();
    for task in tasks.map(|task| task.unwrap().path()) {
        let children = fs::read_to_string(task.join("children")).unwrap();
        for child in children.split_whitespace() {
            all.extend(threads(child.parse().unwrap()));
        }
        all.push(task);
    }
    all
}

/// All of them are confined, and have none but these capabilities.
pub(crate) fn assert_confined(threads: &[PathBuf], allowed: u64) {
    for thread in threads {
        let fields = fields(thread.join("status"));
        let told = format!("{}: {fields:?}", thread.display());
        for set in ["CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb"] {
            let set = u64::from_str_radix(&fields[set], 16).unwrap();
            assert_eq!(set & !allowed, 0, "{told}");
        }
        assert_eq!(fields["NoNewPrivs"], "1", "{told}");
        assert_eq!(fields["Seccomp"], "2", "{told}");
    }
}
