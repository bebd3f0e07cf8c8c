//! What is to be sent, found depth first: each directory before what is in it, names in the order of their bytes, so
//! that two walks of the same tree tell the same. Symbolic links are told and not followed; those that the user names
//! are followed, because he means what they lead to. A directory that a filter has only for what is in it is told with
//! the first of that, and not at all where there is none.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::vec;

use files_proto::FailReason;
use files_proto::filter::Takes;
use files_proto::limits::{DEPTH_MAX, FILE_BYTES_MAX};
use files_proto::name::MARKER_NAME;

/// One step of a walk.
#[derive(Debug)]
pub(crate) enum Step {
    Found(Found),
    /// Everything in this directory has been told.
    DirectoryEnd {
        entry: u64,
    },
    /// Something cannot be sent; the walk goes on.
    Problem(Problem),
}

/// Something that cannot be sent.
#[derive(Debug)]
pub(crate) struct Problem {
    /// Where it is here.
    pub(crate) path: PathBuf,
    /// Where it is below what the user named.
    pub(crate) relative: PathBuf,
    /// Why it failed; `None` for what is nothing that is sent: sockets, devices and pipes.
    pub(crate) reason: Option<FailReason>,
    pub(crate) text: String,
}

/// Something to send. Entries are numbered from 0 in the order in which they are told.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) entry: u64,
    pub(crate) parent: Option<u64>,
    pub(crate) name: OsString,
    /// Where it is here.
    pub(crate) path: PathBuf,
    /// Where it is below what the user named, for filters and for people.
    pub(crate) relative: PathBuf,
    pub(crate) content: Content,
    pub(crate) stamp: Stamp,
}

#[derive(Debug)]
pub(crate) enum Content {
    File,
    Directory,
    Symlink { target: OsString },
}

/// By what a file is known not to have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) size: u64,
    /// Nanoseconds since 1970, of content and of everything.
    pub(crate) modified: i64,
    pub(crate) changed: i64,
    pub(crate) mode: u32,
    /// Whether parts of it are not on disk.
    pub(crate) is_sparse: bool,
}

impl Stamp {
    pub(crate) fn new(metadata: &Metadata) -> Self {
        let nanoseconds =
            |seconds: i64, rest: i64| seconds.saturating_mul(1_000_000_000).saturating_add(rest);
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: nanoseconds(metadata.mtime(), metadata.mtime_nsec()),
            changed: nanoseconds(metadata.ctime(), metadata.ctime_nsec()),
            mode: metadata.mode() & 0o7777,
            is_sparse: metadata.blocks().saturating_mul(512) < metadata.size(),
        }
    }
}

/// Whether an entry (path below what was named; whether it is a directory) is to be sent.
pub(crate) type Filter = Box<dyn Fn(&Path, bool) -> Takes + Send>;

/// A walk over several sources.
pub(crate) struct Walk {
    sources: vec::IntoIter<PathBuf>,
    /// The directories that are open, the deepest at the end.
    open: Vec<Open>,
    next_entry: u64,
    /// What has been found and is told next.
    waiting: VecDeque<Step>,
    filter: Filter,
}

struct Open {
    /// Its number, once it has been told.
    entry: u64,
    /// Where it has not.
    untold: Option<Found>,
    path: PathBuf,
    relative: PathBuf,
    names: vec::IntoIter<OsString>,
}

impl Walk {
    pub(crate) fn new(sources: Vec<PathBuf>, filter: Filter) -> Self {
        Self {
            sources: sources.into_iter(),
            open: Vec::new(),
            next_entry: 0,
            waiting: VecDeque::new(),
            filter,
        }
    }

    /// Something that a filter has, behind the directories that it is in and that have not been told.
    fn tell(&mut self, found: Found) -> Option<Step> {
        let mut parent = None;
        for open in &mut self.open {
            if let Some(directory) = open.untold.take() {
                open.entry = self.next_entry;
                self.next_entry += 1;
                self.waiting.push_back(Step::Found(Found {
                    entry: open.entry,
                    parent,
                    ..directory
                }));
            }
            parent = Some(open.entry);
        }
        let entry = self.next_entry;
        self.next_entry += 1;
        self.waiting.push_back(Step::Found(Found {
            entry,
            parent,
            ..found
        }));
        self.waiting.pop_front()
    }

    fn source(&mut self, path: &Path) -> Option<Step> {
        let problem = |error: &io::Error| {
            let relative = path.file_name().map_or_else(|| path.to_owned(), PathBuf::from);
            Step::Problem(Problem {
                path: path.to_owned(),
                relative,
                reason: Some(reason_of(error)),
                text: error.to_string(),
            })
        };
        // `.` and `..` have no name of their own.
        let real = match path.canonicalize() {
            Ok(real) => real,
            Err(error) => return Some(problem(&error)),
        };
        let name = match path.file_name().or(real.file_name()) {
            Some(name) => name.to_owned(),
            None => OsString::from("root"),
        };
        match fs::metadata(&real) {
            Ok(metadata) => self.found(name.clone(), real, PathBuf::from(name), &metadata),
            Err(error) => Some(problem(&error)),
        }
    }

    fn found(
        &mut self,
        name: OsString,
        path: PathBuf,
        relative: PathBuf,
        metadata: &Metadata,
    ) -> Option<Step> {
        let takes = (self.filter)(&relative, metadata.is_dir());
        // What a receiver here has written down for itself is nobody's file.
        if name == MARKER_NAME || takes == Takes::No {
            return None;
        }
        let problem = |reason, text| {
            Some(Step::Problem(Problem {
                path: path.clone(),
                relative: relative.clone(),
                reason,
                text,
            }))
        };
        let beyond = |text| problem(Some(FailReason::Limit), text);
        if self.open.len() > DEPTH_MAX {
            return beyond(format!(
                "it lies deeper than {DEPTH_MAX} directories, and is left out"
            ));
        }
        let content = if metadata.is_file() && metadata.len() > FILE_BYTES_MAX {
            return beyond("it is larger than 4 TiB, and is left out; split it".to_owned());
        } else if metadata.is_file() {
            Content::File
        } else if metadata.is_dir() {
            Content::Directory
        } else if metadata.is_symlink() {
            match fs::read_link(&path) {
                Ok(target) => Content::Symlink {
                    target: target.into(),
                },
                Err(error) => return problem(Some(reason_of(&error)), error.to_string()),
            }
        } else {
            let text = "it is neither a file nor a directory nor a link, and is left out";
            return problem(None, text.to_owned());
        };
        let is_directory = matches!(content, Content::Directory);
        let names = match is_directory.then(|| names(&path)).transpose() {
            Ok(names) => names.unwrap_or_default(),
            Err(error) => {
                let text = format!("the directory cannot be read: {error}");
                return problem(Some(reason_of(&error)), text);
            }
        };
        let found = Found {
            entry: self.next_entry,
            parent: None,
            name,
            path: path.clone(),
            relative: relative.clone(),
            content,
            stamp: Stamp::new(metadata),
        };
        let (step, untold) = match takes {
            Takes::Inside if is_directory => (None, Some(found)),
            _ => (self.tell(found), None),
        };
        if is_directory {
            self.open.push(Open {
                // It was told last.
                entry: self.next_entry.saturating_sub(1),
                untold,
                path,
                relative,
                names: names.into_iter(),
            });
        }
        step
    }

    fn child(&mut self, name: &OsStr) -> Option<Step> {
        let open = self.open.last()?;
        let (path, relative) = (open.path.join(name), open.relative.join(name));
        match fs::symlink_metadata(&path) {
            Ok(metadata) => self.found(name.to_owned(), path, relative, &metadata),
            // It was there a moment ago.
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => Some(Step::Problem(Problem {
                path,
                relative,
                reason: Some(reason_of(&error)),
                text: error.to_string(),
            })),
        }
    }
}

fn reason_of(error: &io::Error) -> FailReason {
    match error.kind() {
        io::ErrorKind::NotFound => FailReason::Vanished,
        _ => FailReason::Unreadable,
    }
}

fn names(directory: &Path) -> io::Result<Vec<OsString>> {
    let names = fs::read_dir(directory)?.map(|entry| entry.map(|entry| entry.file_name()));
    let mut names: Vec<OsString> = names.collect::<io::Result<_>>()?;
    names.sort_unstable();
    Ok(names)
}

impl Iterator for Walk {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        loop {
            if let Some(step) = self.waiting.pop_front() {
                return Some(step);
            }
            let step = match self.open.last_mut() {
                Some(open) => match open.names.next() {
                    Some(name) => self.child(&name),
                    None => {
                        let told = self.open.pop().filter(|open| open.untold.is_none());
                        told.map(|open| Step::DirectoryEnd { entry: open.entry })
                    }
                },
                None => {
                    let source = self.sources.next()?;
                    self.source(&source)
                }
            };
            if step.is_some() {
                return step;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn told(walk: Walk, base: &Path) -> Vec<String> {
        let short = |path: &Path| path.strip_prefix(base).unwrap_or(path).display().to_string();
        walk.map(|step| match step {
            Step::Found(found) => {
                let kind = match &found.content {
                    Content::File => format!("file of {}", found.stamp.size),
                    Content::Directory => "directory".to_owned(),
                    Content::Symlink { target } => format!("link to {}", target.display()),
                };
                let parent = found.parent.map_or("-".to_owned(), |parent| parent.to_string());
                format!("{} in {parent}: {} {kind}", found.entry, found.relative.display())
            }
            Step::DirectoryEnd { entry } => format!("end of {entry}"),
            Step::Problem(problem) => {
                let kind = if problem.reason.is_some() {
                    "problem"
                } else {
                    "left out"
                };
                format!("{kind}: {}, {}", short(&problem.path), problem.relative.display())
            }
        })
        .collect()
    }

    #[test]
    fn a_tree_is_told_in_order_with_links_and_without_what_is_no_file() {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path().canonicalize().unwrap();
        fs::create_dir_all(base.join("tree/b/empty")).unwrap();
        fs::write(base.join("tree/a"), "one").unwrap();
        fs::write(base.join("tree/b/c"), "").unwrap();
        fs::write(base.join("tree").join(MARKER_NAME), "a receiver's").unwrap();
        symlink("../outside", base.join("tree/link")).unwrap();
        let fifo = base.join("tree/pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
        fs::write(base.join("single"), "12").unwrap();
        symlink("single", base.join("named")).unwrap();
        let sources = vec![base.join("tree"), base.join("missing"), base.join("named")];
        let walk = Walk::new(sources, Box::new(|_, _| Takes::Yes));
        let expected = [
            "0 in -: tree directory",
            "1 in 0: tree/a file of 3",
            "2 in 0: tree/b directory",
            "3 in 2: tree/b/c file of 0",
            "4 in 2: tree/b/empty directory",
            "end of 4",
            "end of 2",
            "5 in 0: tree/link link to ../outside",
            "left out: tree/pipe, tree/pipe",
            "end of 0",
            "problem: missing, missing",
            "6 in -: named file of 2",
        ];
        assert_eq!(told(walk, &base), expected);
    }

    /// FILE-6, FILE-7: an offer beyond these bounds would end the whole transfer.
    #[test]
    fn what_is_too_deep_or_too_large_to_be_offered_is_told_and_left_out() {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path().canonicalize().unwrap();
        let mut deep = base.join("tree");
        for _ in 0..DEPTH_MAX {
            deep.push("d");
        }
        fs::create_dir_all(deep.join("too-deep")).unwrap();
        let large = fs::File::create(base.join("tree/large")).unwrap();
        let is_large = large.set_len(FILE_BYTES_MAX + 1).is_ok();
        let told = told(
            Walk::new(vec![base.join("tree")], Box::new(|_, _| Takes::Yes)),
            &base,
        );
        let problems = told.iter().filter(|step| step.starts_with("problem"));
        assert_eq!(problems.count(), 1 + usize::from(is_large), "{told:?}");
        assert_eq!(
            told.iter().filter(|step| step.ends_with(" directory")).count(),
            1 + DEPTH_MAX
        );
    }

    #[test]
    fn what_a_filter_leaves_out_is_not_entered() {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path().canonicalize().unwrap();
        fs::create_dir_all(base.join("tree/target/deep")).unwrap();
        fs::write(base.join("tree/kept"), "").unwrap();
        let filter: Filter = Box::new(|path, _| match path.ends_with("target") {
            true => Takes::No,
            false => Takes::Yes,
        });
        let walk = Walk::new(vec![base.join("tree")], filter);
        let expected = [
            "0 in -: tree directory",
            "1 in 0: tree/kept file of 0",
            "end of 0",
        ];
        assert_eq!(told(walk, &base), expected);
    }

    #[test]
    fn a_directory_is_told_for_what_is_in_it_and_for_its_own_sake_also_without() {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path().canonicalize().unwrap();
        for path in ["tree/a/deep", "tree/b/deep", "tree/c/chosen", "tree/d", "other"] {
            fs::create_dir_all(base.join(path)).unwrap();
        }
        for path in [
            "tree/a/no",
            "tree/b/deep/yes",
            "tree/c/no",
            "tree/yes",
            "other/no",
        ] {
            fs::write(base.join(path), "").unwrap();
        }
        let filter: Filter =
            Box::new(
                |path, is_directory| match path.ends_with("yes") || path.ends_with("chosen") {
                    true => Takes::Yes,
                    false if is_directory => Takes::Inside,
                    false => Takes::No,
                },
            );
        let walk = Walk::new(vec![base.join("other"), base.join("tree")], filter);
        let expected = [
            "0 in -: tree directory",
            "1 in 0: tree/b directory",
            "2 in 1: tree/b/deep directory",
            "3 in 2: tree/b/deep/yes file of 0",
            "end of 2",
            "end of 1",
            "4 in 0: tree/c directory",
            "5 in 4: tree/c/chosen directory",
            "end of 5",
            "end of 4",
            "6 in 0: tree/yes file of 0",
            "end of 0",
        ];
        assert_eq!(told(walk, &base), expected);
    }
}
