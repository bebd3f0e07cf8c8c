//! Clocks of the system that transfers read.

use std::fs;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use files_proto::journal::BootId;
use rustix::fs::Mode;
use rustix::time::{ClockId, clock_gettime};

/// Processor time of all threads of this process so far.
pub(crate) fn process_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// The permissions that files of this process are not to have. The system tells them only to who sets them; files that
/// are made at this moment get fewer.
pub(crate) fn umask() -> u32 {
    let umask = rustix::process::umask(Mode::from_raw_mode(0o077));
    rustix::process::umask(umask);
    umask.as_raw_mode()
}

/// Nanoseconds since 1970.
pub(crate) fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}

/// The same as file systems know it, which is as late as the last tick.
pub(crate) fn tick_ns() -> i64 {
    let time = clock_gettime(ClockId::RealtimeCoarse);
    time.tv_sec
        .saturating_mul(1_000_000_000)
        .saturating_add(time.tv_nsec)
}

/// When the system started, by the same clock as it is now.
pub(crate) fn booted_ns() -> i64 {
    let since = clock_gettime(ClockId::Boottime);
    let since_ns = since
        .tv_sec
        .saturating_mul(1_000_000_000)
        .saturating_add(since.tv_nsec);
    tick_ns().saturating_sub(since_ns)
}

/// What the system calls its present start: after another one, what was not synchronised may be gone. Where it does not
/// tell, each process has its own.
pub(crate) fn boot_id() -> BootId {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    match u128::from_str_radix(&digits, 16) {
        Ok(number) => number.to_be_bytes(),
        Err(_) => *OF_THIS_PROCESS.get_or_init(|| {
            let mut id = BootId::default();
            // Without random bytes nothing else of a transfer works.
            let _ = aws_lc_rs::rand::fill(&mut id);
            id
        }),
    }
}

static OF_THIS_PROCESS: OnceLock<BootId> = OnceLock::new();
