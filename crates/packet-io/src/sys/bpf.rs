//! Programs and maps of the kernel's virtual machine (`linux/bpf.h`), as far as a socket filter with counters needs.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU32;

const MAP_CREATE: libc::c_int = 0;
const PROG_LOAD: libc::c_int = 5;
const MAP_TYPE_ARRAY: u32 = 2;
const PROG_TYPE_SOCKET_FILTER: u32 = 1;
/// The map may be mapped into memory (`BPF_F_MMAPABLE`), Linux 5.5.
const MMAPABLE: u32 = 1 << 10;

/// What a program says about its licence. Helpers that want the GPL are not called.
const LICENSE: &core::ffi::CStr = c"Dual MIT/GPL";

/// The attributes of `BPF_MAP_CREATE`; what follows is zero by the kernel's rule for shorter ones.
#[repr(C)]
struct MapAttributes {
    map_type: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries_max: u32,
    flags: u32,
}

/// The attributes of `BPF_PROG_LOAD`, likewise.
#[repr(C)]
struct ProgramAttributes {
    program_type: u32,
    instructions: u32,
    instructions_at: u64,
    license_at: u64,
    log_level: u32,
    log_bytes: u32,
    log_at: u64,
    kernel_version: u32,
    flags: u32,
}

/// Numbers that programs and this process share: the one value of an array map.
#[derive(Debug)]
pub(crate) struct SharedNumbers {
    map: OwnedFd,
    start: NonNull<AtomicU32>,
    count: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and is reached as atomics alone.
unsafe impl Send for SharedNumbers {}

// SAFETY: as above.
unsafe impl Sync for SharedNumbers {}

impl SharedNumbers {
    /// So many, all 0.
    pub(crate) fn new(count: usize) -> io::Result<Self> {
        let bytes = count * size_of::<AtomicU32>();
        let attributes = MapAttributes {
            map_type: MAP_TYPE_ARRAY,
            key_bytes: 4,
            value_bytes: u32::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?,
            entries_max: 1,
            flags: MMAPABLE,
        };
        // SAFETY: these attributes have no addresses.
        let map = unsafe { bpf(MAP_CREATE, &attributes) }?;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory in use; the descriptor is open.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                map.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { map, start, count })
    }

    pub(crate) fn as_slice(&self) -> &[AtomicU32] {
        // SAFETY: the mapping holds `count` aligned numbers until `self` is dropped (page-aligned; the kernel gives no
        // smaller map than was asked for), every pattern of bits is one, and nobody has a `&mut` to them.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }

    /// By which a program names the map.
    pub(crate) fn map(&self) -> i32 {
        self.map.as_raw_fd()
    }
}

impl Drop for SharedNumbers {
    fn drop(&mut self) {
        // SAFETY: address and length are those of our own mapping, to which no reference is left.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.count * size_of::<AtomicU32>()) };
    }
}

/// Has the kernel verify a socket filter; it lives as long as its descriptor or who uses it.
pub(crate) fn load_socket_filter(instructions: &[u64]) -> io::Result<OwnedFd> {
    let attributes = ProgramAttributes {
        program_type: PROG_TYPE_SOCKET_FILTER,
        instructions: u32::try_from(instructions.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
        instructions_at: instructions.as_ptr() as u64,
        license_at: LICENSE.as_ptr() as u64,
        log_level: 0,
        log_bytes: 0,
        log_at: 0,
        kernel_version: 0,
        flags: 0,
    };
    // SAFETY: the first address is that of a slice of as many instructions as are told, the second that of a constant
    // with its zero; both outlive the call. There is no log.
    unsafe { bpf(PROG_LOAD, &attributes) }
}

/// A command that makes a descriptor.
///
/// # Safety
/// `attributes` are those of the command, and every address in them leads to as much memory as it says there.
unsafe fn bpf<T>(command: libc::c_int, attributes: &T) -> io::Result<OwnedFd> {
    // SAFETY: pointer and length are those of `attributes`, which the kernel only reads, and what they lead to is
    // readable by this function's contract.
    let code = unsafe { libc::syscall(libc::SYS_bpf, command, ptr::from_ref(attributes), size_of::<T>()) };
    match i32::try_from(code) {
        // SAFETY: the command returned a new descriptor, which nobody else has.
        Ok(descriptor) if descriptor >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        _ => Err(io::Error::last_os_error()),
    }
}
