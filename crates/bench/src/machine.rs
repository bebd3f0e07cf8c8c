//! On what a result was measured.

use std::fs;

use serde::Serialize;

/// The machine, as results name it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    /// Model name of the first core.
    pub(crate) cpu: String,
    /// Cores that this process may use.
    pub(crate) cores: usize,
    /// Release of the kernel.
    pub(crate) kernel: String,
    /// `net.core.rmem_max` in bytes.
    pub(crate) receive_buffer_bytes_max: u64,
}

impl Machine {
    /// Describes this machine; what can't be read is empty or zero.
    pub(crate) fn describe() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let model = cpuinfo
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        Self {
            cpu: model.map_or_else(
                || std::env::consts::ARCH.to_owned(),
                |(_, name)| name.trim().to_owned(),
            ),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            receive_buffer_bytes_max: read("/proc/sys/net/core/rmem_max").trim().parse().unwrap_or(0),
        }
    }
}

impl std::fmt::Display for Machine {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            formatter,
            "{}, {} cores, Linux {}, rmem_max {} KiB",
            self.cpu,
            self.cores,
            self.kernel,
            self.receive_buffer_bytes_max >> 10
        )
    }
}
