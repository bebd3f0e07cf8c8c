//! Every bound of the helpers, with its unit and its reason.

use std::time::Duration;

/// Between two looks at a condition: short beside what is waited for, long beside the cost of a look.
pub const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// How long the output of a program that has ended is waited for. Only a program that it started and that lives on
/// keeps the pipes open longer.
pub const OUTPUT_GRACE: Duration = Duration::from_secs(1);

/// Bytes of each output of a program that are kept; the oldest go first.
pub const OUTPUT_BYTES_MAX: usize = 16 << 20;

/// Bytes of a line; a longer one counts as several.
pub const LINE_BYTES_MAX: u64 = 1 << 20;

/// Last lines of a program's output in an error.
pub const LAST_LINES: usize = 8;

/// Last lines of a program's output that are shown after a panic.
pub const SHOWN_LINES: usize = 40;

/// For iperf3's server to listen.
pub const IPERF_READY_LIMIT: Duration = Duration::from_secs(30);

/// Beyond the time that a load was asked to run, for iperf3 to exchange results on a busy machine.
pub const IPERF_GRACE: Duration = Duration::from_secs(30);

/// For systemd to be up in a machine of its own; it takes a second on an idle one.
pub const BOOT_LIMIT: Duration = Duration::from_secs(60);

/// For the processes of a control group to be gone after they were killed.
pub const GROUP_END_LIMIT: Duration = Duration::from_secs(10);

/// For the processes of a machine to be gone after its end.
pub const MACHINE_END_LIMIT: Duration = Duration::from_secs(10);
