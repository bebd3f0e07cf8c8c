//! Memory before a run: the host of a virtual machine may have taken what was free, and gives it back page by page when
//! it is touched. Whoever fills the page cache first would pay for that: five times what writing 2 GiB takes.

use std::fs;

/// Beside the files themselves, for sockets and processes, in bytes.
const BESIDE_BYTES: u64 = 1 << 30;

/// Of the memory that is available so much is touched at most: the files stay in the page cache.
const SHARE: u64 = 2;

/// Touches as much free memory as a transfer of so many bytes takes.
pub(super) fn warm(bytes: u64) {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let wanted = (bytes + BESIDE_BYTES).min(available(&meminfo) / SHARE);
    // Without any there is nothing to touch.
    let touched = vec![1_u8; usize::try_from(wanted).unwrap_or(0)];
    drop(std::hint::black_box(touched));
}

/// Bytes that programs can have without anything being written out; none where the kernel does not say.
fn available(meminfo: &str) -> u64 {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kibibytes.unwrap_or(0) << 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_available_is_what_the_kernel_says() {
        let meminfo = "MemTotal:       24683520 kB\nMemAvailable:   20819968 kB\n";
        assert_eq!(available(meminfo), 20_819_968 << 10);
        assert_eq!(available("MemAvailable: much"), 0);
        assert_eq!(available(""), 0);
    }
}
