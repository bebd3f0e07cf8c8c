//! Kinds of file systems, by what statfs(2) calls them, and what is known of them: how names are compared there, and
//! whether files take the sum of their bytes. Of a kind that is not listed nothing is relied on.

use rustix::fs::StatFs;

/// ext4, ext3 and ext2.
pub(crate) const EXT: u32 = 0xef53;
pub(crate) const XFS: u32 = 0x5846_5342;
pub(crate) const TMPFS: u32 = 0x0102_1994;
pub(crate) const FAT: u32 = 0x4d44;
pub(crate) const EXFAT: u32 = 0x2011_bab0;
pub(crate) const NTFS: u32 = 0x7366_746e;
/// Shares of SMB 1.
pub(crate) const CIFS: u32 = 0xff53_4d42;
/// Shares of SMB 2 and later.
pub(crate) const SMB2: u32 = 0xfe53_4d42;
pub(crate) const BTRFS: u32 = 0x9123_683e;
pub(crate) const F2FS: u32 = 0xf2f5_2010;

/// Those of Windows.
const OF_WINDOWS: [u32; 5] = [FAT, EXFAT, NTFS, CIFS, SMB2];

/// Those whose directories tell by a flag whether they fold names; of ext, ext3 and ext2 have no such directories.
const WITH_FLAG: [u32; 3] = [EXT, F2FS, TMPFS];

/// Those that neither compress nor lie above another one, which may: files there take the sum of their bytes.
const ADDING_UP: [u32; 5] = [EXT, XFS, TMPFS, FAT, EXFAT];

/// The kind of a file system; 0, which none has, where the kernel tells something else.
pub(crate) fn kind(system: &StatFs) -> u32 {
    u32::try_from(system.f_type & 0xffff_ffff).unwrap_or(0)
}

/// Whether it has the rules of Windows for names.
pub(crate) fn is_of_windows(kind: u32) -> bool {
    OF_WINDOWS.contains(&kind)
}

/// Whether a flag of each directory tells if names are folded in it.
pub(crate) fn tells_by_flag(kind: u32) -> bool {
    WITH_FLAG.contains(&kind)
}

/// Whether no directory ever folds names.
pub(crate) fn never_folds(kind: u32) -> bool {
    kind == BTRFS
}

/// Whether files take the sum of their bytes there.
pub(crate) fn adds_up(kind: u32) -> bool {
    ADDING_UP.contains(&kind)
}
