//! System calls, by seccomp: only those named here are possible, sockets only of these families, processes only in the
//! present namespaces.
//!
//! Any other call fails with ENOSYS, as on a kernel that does not have it: libraries then use an older one, which is
//! on the list, and a call that is missing here costs its caller an error, not the machine its network.

use std::collections::BTreeSet;
use std::io;

use rustix::io::Errno;
use rustix::net::AddressFamily;
use seccompiler::{TargetArch, apply_filter_all_threads, compile_from_json};
use serde_json::{Value, json};

/// Sockets that may be made.
const SOCKET_FAMILIES: [AddressFamily; 4] = [
    AddressFamily::UNIX,
    AddressFamily::INET,
    AddressFamily::INET6,
    AddressFamily::NETLINK,
];

/// What a process goes on doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Calls {
    /// What every end does.
    Program,
    /// It opens packet sockets, too.
    PacketSockets,
    /// It also makes whatever may be in a directory that comes from another machine.
    Files {
        /// It opens packet sockets, too.
        has_packets: bool,
    },
    /// It starts others.
    Children,
}

/// The flags of `clone` that make namespaces (`CLONE_NEW*`). `clone3` is not on the list: its flags are in memory.
const NAMESPACE_FLAGS: u64 = 0x7e02_0000;

/// Calls of the program itself; it waits for its helper, and for no other.
const PROGRAM: &str = "
    read write readv writev pread64 pwrite64 preadv pwritev close close_range lseek
    openat openat2 fstat newfstatat statx statfs fstatfs getdents64 readlinkat faccessat faccessat2 getcwd
    unlinkat renameat renameat2 mkdirat fchmod fchmodat fchmodat2 fchown fchownat fsync fdatasync ftruncate flock
    fcntl fallocate ioctl dup dup3 pipe2 umask
    socketpair bind listen accept accept4 connect getsockname getpeername sendto recvfrom sendmsg recvmsg sendmmsg
    recvmmsg shutdown setsockopt getsockopt
    epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 ppoll pselect6 eventfd2 timerfd_create timerfd_settime
    timerfd_gettime signalfd4 inotify_init1 inotify_add_watch inotify_rm_watch
    mmap mprotect munmap mremap madvise brk membarrier mincore
    set_robust_list get_robust_list set_tid_address rseq futex sched_yield sched_getaffinity
    sched_setaffinity sched_getparam sched_getscheduler
    gettid getpid getppid getuid geteuid getgid getegid getresuid getresgid getgroups
    exit exit_group kill tgkill tkill rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait
    sigaltstack restart_syscall nanosleep clock_nanosleep clock_gettime clock_getres gettimeofday
    getrandom getrusage prlimit64 uname sysinfo getcpu prctl capget times wait4 waitid
";

/// Calls that make, read and write what directories hold, with times and attributes.
const FILES: &str = "
    symlinkat linkat mknodat utimensat syncfs sync_file_range fadvise64 truncate sendfile splice tee
    getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr setxattr lsetxattr fsetxattr
";

/// Calls by which the helper starts its guardian and the programs that keep name servers, and what those call besides.
const CHILDREN: &str = "
    execve execveat setsid setpgid getpgid getsid chdir fchdir pidfd_open pidfd_send_signal
    symlinkat linkat utimensat fadvise64 copy_file_range sendfile splice tee truncate
    getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr getpriority setpriority rt_sigsuspend
    setitimer getitimer getrlimit sync syncfs get_mempolicy
";

/// Older forms that other processors do not have.
#[cfg(target_arch = "x86_64")]
const OLDER: &str = "
    open stat lstat access readlink poll select epoll_wait epoll_create eventfd unlink rename mkdir rmdir chmod chown
    dup2 pipe fork vfork getdents arch_prctl time creat alarm pause getpgrp link symlink utime utimes
";
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &str = "";

/// Confines this process and all that it starts.
pub(super) fn confine(calls: Calls) -> io::Result<()> {
    let architecture = TargetArch::try_from(std::env::consts::ARCH).map_err(io::Error::other)?;
    let text = filter(calls).to_string();
    let filters = compile_from_json(text.as_bytes(), architecture).map_err(io::Error::other)?;
    let program = filters.get("process").ok_or(io::ErrorKind::InvalidData)?;
    apply_filter_all_threads(program).map_err(io::Error::other)
}

fn filter(calls: Calls) -> Value {
    let more = match calls {
        Calls::Children => CHILDREN,
        Calls::Files { .. } => FILES,
        Calls::Program | Calls::PacketSockets => "",
    };
    let lists = [PROGRAM, OLDER, more];
    let names: BTreeSet<_> = lists.iter().flat_map(|list| list.split_whitespace()).collect();
    let plain = names.into_iter().map(|name| json!({ "syscall": name }));
    let condition =
        |operator: Value, value: u64| json!([{"index": 0, "type": "qword", "op": operator, "val": value}]);
    let has_packets = matches!(calls, Calls::PacketSockets | Calls::Files { has_packets: true });
    let packets = has_packets.then_some(AddressFamily::PACKET);
    let sockets = SOCKET_FAMILIES
        .into_iter()
        .chain(packets)
        .map(|family| json!({ "syscall": "socket", "args": condition(json!("eq"), family.as_raw().into()) }));
    let threads =
        json!({ "syscall": "clone", "args": condition(json!({ "masked_eq": NAMESPACE_FLAGS }), 0) });
    let rules: Vec<_> = plain.chain(sockets).chain([threads]).collect();
    json!({
        "process": {
            "mismatch_action": { "errno": Errno::NOSYS.raw_os_error() },
            "match_action": "allow",
            "filter": rules,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_filter_is_made_and_only_one_runs_programs() {
        let architecture = TargetArch::try_from(std::env::consts::ARCH).unwrap();
        let of_files = [false, true].map(|has_packets| Calls::Files { has_packets });
        for calls in [
            Calls::Program,
            Calls::PacketSockets,
            Calls::Children,
            of_files[0],
            of_files[1],
        ] {
            let text = filter(calls).to_string();
            let filters = compile_from_json(text.as_bytes(), architecture).unwrap();
            assert!(
                filters["process"].len() < 4_096,
                "the kernel's limit (BPF_MAXINSNS)"
            );
        }
        let runs_programs = |calls| filter(calls).to_string().contains("\"execve\"");
        assert!(runs_programs(Calls::Children));
        assert!(!runs_programs(Calls::Program) && !runs_programs(Calls::PacketSockets));
        assert!(of_files.into_iter().all(|calls| !runs_programs(calls)));
    }
}
