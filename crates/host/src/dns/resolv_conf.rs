//! `/etc/resolv.conf` (resolv.conf(5)): what it names, and replacing it so that it can be put back.
//!
//! A link is followed, and its target replaced. The fresh file is written beside the old one and renamed, so that
//! nobody reads half of it; one that cannot be replaced, such as a container's, which is mounted, is written in place.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{NameServers, RESOLV_CONF};
use crate::error::{Explain, HostError};
use crate::limits::RESOLV_CONF_BYTES_MAX;

/// What everybody may read.
const MODE: u32 = 0o644;

/// The file, as it was and as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileChange {
    path: PathBuf,
    /// `None`: there was no file.
    before: Option<String>,
    after: String,
}

impl FileChange {
    /// What the file is to be; nothing is written yet. Where what stands in the file is the work of another process of
    /// ours, or an earlier one of this process, what that one found is what is put back at the end.
    ///
    /// # Errors
    /// The file is not text, is too long, or cannot be read.
    pub(crate) fn plan<'a>(
        wanted: &NameServers,
        ours: impl Iterator<Item = &'a Self>,
    ) -> Result<Self, HostError> {
        Self::plan_at(Path::new(RESOLV_CONF), wanted, ours)
    }

    fn plan_at<'a>(
        file: &Path,
        wanted: &NameServers,
        mut ours: impl Iterator<Item = &'a Self>,
    ) -> Result<Self, HostError> {
        let path = real_path(file);
        let present = read(&path).explain(|| format!("read {}", path.display()))?;
        let origin = ours.find(|own| own.path == path && Some(&own.after) == present.as_ref());
        let before = origin.map_or(present, |own| own.before.clone());
        let after = contents(wanted, before.as_deref().unwrap_or_default());
        Ok(Self { path, before, after })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn make(&self) -> Result<(), HostError> {
        self.replace_by(&self.after)
    }

    /// Puts back what was there; what somebody else has written since is left.
    pub(crate) fn take_back(&self) -> Result<(), HostError> {
        if !self.is_in_effect() {
            return Ok(());
        }
        match &self.before {
            Some(before) => self.replace_by(before),
            None => fs::remove_file(&self.path).explain(|| format!("remove {}", self.path.display())),
        }
    }

    /// Whether the file is as this change made it.
    pub(crate) fn is_in_effect(&self) -> bool {
        read(&self.path).is_ok_and(|present| present.as_ref() == Some(&self.after))
    }

    /// The same, which puts back what another change of the same file has made.
    pub(crate) fn handed_on<'a>(mut self, mut others: impl Iterator<Item = &'a Self>) -> Self {
        if let Some(other) = others.find(|other| other.path == self.path) {
            self.before = Some(other.after.clone());
        }
        self
    }

    fn replace_by(&self, text: &str) -> Result<(), HostError> {
        replace(&self.path, text).explain(|| format!("write {}", self.path.display()))
    }
}

/// What the file leads to; a link whose target is missing leads there, too.
fn real_path(file: &Path) -> PathBuf {
    if let Ok(real) = fs::canonicalize(file) {
        return real;
    }
    let parent = file.parent().unwrap_or(Path::new("/"));
    fs::read_link(file).map_or_else(|_| file.to_owned(), |target| parent.join(target))
}

/// The text of a file; `None` where there is none.
fn read(path: &Path) -> io::Result<Option<String>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut text = String::new();
    file.take(RESOLV_CONF_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > RESOLV_CONF_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is too long"));
    }
    Ok(Some(text))
}

/// The same for questions, where one that cannot be read says nothing.
pub(super) fn read_text(path: &str) -> String {
    read(Path::new(path)).ok().flatten().unwrap_or_default()
}

/// The name servers that the text names; an interface behind `%` is left out.
pub(super) fn name_servers(text: &str) -> Vec<IpAddr> {
    let lines = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some("nameserver")).then(|| words.next())?
    });
    lines
        .filter_map(|server| server.split('%').next()?.parse().ok())
        .collect()
}

pub(super) fn nameserver_lines(servers: &[IpAddr]) -> String {
    servers
        .iter()
        .map(|server| format!("nameserver {server}\n"))
        .collect()
}

/// The servers alone; how names are completed and asked for stays as it was.
fn contents(wanted: &NameServers, before: &str) -> String {
    let is_kept = |line: &&str| {
        let word = line.split_whitespace().next();
        matches!(word, Some("search" | "domain" | "options" | "sortlist"))
    };
    let kept: String = before
        .lines()
        .filter(is_kept)
        .map(|line| format!("{line}\n"))
        .collect();
    format!(
        "# Written by gramway for {}, which puts back what was here when it ends.\n{}{kept}",
        wanted.interface,
        nameserver_lines(&wanted.servers)
    )
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let fresh = path.with_file_name(format!(".{name}.gramway-{}", std::process::id()));
    if write_beside(path, &fresh, text).is_ok() {
        return Ok(());
    }
    // It may not have come about.
    let _ = fs::remove_file(&fresh);
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(MODE);
    options.open(path)?.write_all(text.as_bytes())
}

fn write_beside(path: &Path, fresh: &Path, text: &str) -> io::Result<()> {
    let mode = fs::metadata(path).map_or(MODE, |metadata| metadata.permissions().mode() & 0o777);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(mode);
    let mut file = options.open(fresh)?;
    file.write_all(text.as_bytes())?;
    // Whatever the process masks.
    file.set_permissions(Permissions::from_mode(mode))?;
    file.sync_all()?;
    fs::rename(fresh, path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const ROUTER: &str = "# by hand\nsearch lan\nnameserver 192.168.1.1\noptions timeout:1\n";

    fn wanted(interface: &str) -> NameServers {
        NameServers {
            interface: interface.to_owned(),
            servers: vec!["10.9.0.1".parse().unwrap(), "fd09::1".parse().unwrap()],
            all_names: true,
        }
    }

    fn plan(file: &Path, ours: &[&FileChange]) -> FileChange {
        FileChange::plan_at(file, &wanted("tun0"), ours.iter().copied()).unwrap()
    }

    #[test]
    fn name_servers_are_read_whatever_else_stands_there() {
        let text = "nameserver 10.0.0.1 # a\n\tnameserver fe80::1%eth0\n#nameserver 10.0.0.2\nnameserver\nnameserver x\n";
        let expected: [IpAddr; 2] = ["10.0.0.1".parse().unwrap(), "fe80::1".parse().unwrap()];
        assert_eq!(name_servers(text), expected);
    }

    #[test]
    fn only_our_servers_are_named_and_the_other_settings_stay() {
        let after = contents(&wanted("tun0"), ROUTER);
        assert_eq!(name_servers(&after), wanted("tun0").servers);
        assert!(
            after.contains("\nsearch lan\n") && after.ends_with("options timeout:1\n"),
            "{after}"
        );
        assert!(!after.contains("192.168.1.1") && !after.contains("by hand"));
    }

    #[test]
    fn a_link_stays_and_its_target_is_replaced_and_put_back_with_its_permissions() {
        let place = tempfile::tempdir().unwrap();
        let (target, link) = (place.path().join("target"), place.path().join("resolv.conf"));
        fs::write(&target, ROUTER).unwrap();
        fs::set_permissions(&target, Permissions::from_mode(0o640)).unwrap();
        symlink("target", &link).unwrap();
        let change = plan(&link, &[]);
        change.make().unwrap();
        assert!(change.is_in_effect() && fs::read_link(&link).is_ok());
        assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o640);
        change.take_back().unwrap();
        assert_eq!(fs::read_to_string(&target).unwrap(), ROUTER);
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_file_that_was_not_there_is_removed_and_one_that_changed_since_is_left() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("resolv.conf");
        let change = plan(&file, &[]);
        change.make().unwrap();
        change.take_back().unwrap();
        assert!(!file.exists());
        fs::write(&file, ROUTER).unwrap();
        let change = plan(&file, &[]);
        change.make().unwrap();
        fs::write(&file, "nameserver 192.168.1.2\n").unwrap();
        assert!(!change.is_in_effect());
        change.take_back().unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "nameserver 192.168.1.2\n");
    }

    #[test]
    fn two_of_us_end_in_any_order_and_what_was_there_before_both_comes_back() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("resolv.conf");
        for first_ends_first in [true, false] {
            fs::write(&file, ROUTER).unwrap();
            let first = plan(&file, &[]);
            first.make().unwrap();
            let second = FileChange::plan_at(&file, &wanted("tun1"), [&first].into_iter()).unwrap();
            second.make().unwrap();
            if first_ends_first {
                first
                    .clone()
                    .handed_on([&second].into_iter())
                    .take_back()
                    .unwrap();
                assert!(second.is_in_effect());
                second.take_back().unwrap();
            } else {
                second
                    .clone()
                    .handed_on([&first].into_iter())
                    .take_back()
                    .unwrap();
                assert!(first.is_in_effect());
                first.take_back().unwrap();
            }
            assert_eq!(fs::read_to_string(&file).unwrap(), ROUTER);
        }
    }

    #[test]
    fn a_file_that_is_no_text_or_too_long_is_not_replaced() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("resolv.conf");
        for bytes in [vec![0xff, 0xfe], vec![b'#'; RESOLV_CONF_BYTES_MAX as usize + 1]] {
            fs::write(&file, bytes).unwrap();
            assert!(FileChange::plan_at(&file, &wanted("tun0"), [].into_iter()).is_err());
        }
    }
}
