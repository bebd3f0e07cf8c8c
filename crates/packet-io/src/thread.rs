//! Properties of the process or thread that uses the sockets: limits and processors.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_setaffinity};

/// Raises the soft limit of open file descriptors to the hard limit and returns what now holds.
///
/// # Errors
/// The kernel's refusal; the limit is then as before.
pub fn raise_fd_limit() -> io::Result<u64> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: maximum,
            maximum,
        },
    )?;
    Ok(maximum.unwrap_or(u64::MAX))
}

/// Binds the calling thread to processor `cpu`, counted from 0.
///
/// # Errors
/// `InvalidInput` where there is no such processor or this process may not use it.
pub fn pin_thread(cpu: usize) -> io::Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("there is no processor {cpu}"),
        ));
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}
