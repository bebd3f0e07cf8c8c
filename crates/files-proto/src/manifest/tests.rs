//! Manifests: trees in their order, and hostile ones.

use proptest::prelude::*;

use super::*;

fn entry(id: EntryId, parent: Option<EntryId>, name: &str, kind: Kind) -> Entry {
    Entry {
        id,
        parent,
        name: name.as_bytes().to_vec(),
        kind,
        mode: 0o644,
        modified_ns: 0,
        attributes: Vec::new(),
        disk_bytes_min: 0,
    }
}

fn file(id: EntryId, parent: Option<EntryId>, name: &str) -> Entry {
    entry(id, parent, name, Kind::File { size: 10 })
}

fn directory(id: EntryId, parent: Option<EntryId>, name: &str) -> Entry {
    entry(id, parent, name, Kind::Directory)
}

fn path(offered: Result<Offered, Refused>) -> String {
    let parts: Vec<String> = offered
        .unwrap()
        .path
        .into_iter()
        .map(|part| String::from_utf8(part).unwrap())
        .collect();
    parts.join("/")
}

/// FILE-6, FILE-9.
#[test]
fn a_directory_is_finished_after_everything_in_it() {
    let mut manifest = Manifest::new(Rules::default());
    assert_eq!(
        path(manifest.handle_entry(directory(0, None, "top")).unwrap()),
        "top"
    );
    assert_eq!(
        path(manifest.handle_entry(directory(1, Some(0), "in")).unwrap()),
        "top/in"
    );
    assert_eq!(
        path(manifest.handle_entry(file(2, Some(1), "a")).unwrap()),
        "top/in/a"
    );
    manifest.handle_directory_end(1).unwrap();
    assert_eq!(
        path(manifest.handle_entry(file(3, Some(0), "b")).unwrap()),
        "top/b"
    );
    manifest.handle_directory_end(0).unwrap();
    manifest.handle_offer_end(4, 20).unwrap();
    assert_eq!(manifest.poll_finished_directory(), None);
    manifest.finish(3);
    assert_eq!(manifest.poll_finished_directory(), None);
    manifest.finish(2);
    assert_eq!(manifest.poll_finished_directory(), Some(1));
    assert_eq!(manifest.poll_finished_directory(), None);
    manifest.finish(1);
    assert_eq!(manifest.poll_finished_directory(), Some(0));
    assert!(!manifest.is_done());
    manifest.finish(0);
    assert!(manifest.is_done());
    assert_eq!(manifest.is_open(0), Ok(false));
    assert_eq!(manifest.is_open(4), Err(ManifestError::NotOffered(4)));
}

/// FILE-6.
#[test]
fn entries_out_of_order_and_in_what_is_no_directory_end_the_transfer() {
    let mut manifest = Manifest::new(Rules::default());
    manifest.handle_entry(directory(0, None, "top")).unwrap().unwrap();
    manifest.handle_entry(file(1, Some(0), "a")).unwrap().unwrap();
    for id in [0, 1, 3, u64::MAX] {
        let order = ManifestError::Order {
            offered: id,
            expected: 2,
        };
        assert_eq!(manifest.handle_entry(file(id, Some(0), "b")), Err(order));
    }
    for parent in [1, 2, 99] {
        let error = ManifestError::NoDirectory(parent);
        assert_eq!(manifest.handle_entry(file(2, Some(parent), "b")), Err(error));
        assert_eq!(manifest.handle_directory_end(parent), Err(error));
    }
    manifest
        .handle_entry(directory(2, Some(0), "d"))
        .unwrap()
        .unwrap();
    // The outer one cannot end before the inner one.
    assert_eq!(manifest.handle_directory_end(0), Err(ManifestError::End));
    assert_eq!(manifest.handle_offer_end(3, 10), Err(ManifestError::End));
    manifest.handle_directory_end(2).unwrap();
    assert_eq!(
        manifest.handle_directory_end(2),
        Err(ManifestError::NoDirectory(2))
    );
    assert_eq!(
        manifest.handle_entry(file(3, Some(2), "late")),
        Err(ManifestError::NoDirectory(2))
    );
    manifest.handle_directory_end(0).unwrap();
    assert_eq!(manifest.handle_offer_end(3, 11), Err(ManifestError::End));
    assert_eq!(manifest.handle_offer_end(4, 10), Err(ManifestError::End));
    manifest.handle_offer_end(3, 10).unwrap();
    assert_eq!(
        manifest.handle_entry(file(3, None, "late")),
        Err(ManifestError::End)
    );
    assert_eq!(manifest.handle_offer_end(3, 10), Err(ManifestError::End));
}

/// FILE-6, FILE-20.
#[test]
fn nothing_in_a_refused_directory_is_stored() {
    let mut manifest = Manifest::new(Rules::default());
    let refused = manifest
        .handle_entry(directory(0, None, ".."))
        .unwrap()
        .unwrap_err();
    assert_eq!(
        (refused.reason, refused.error),
        (SkipReason::UnsafeName, Some(NameError::Relative))
    );
    let refused = manifest
        .handle_entry(directory(1, Some(0), "etc"))
        .unwrap()
        .unwrap_err();
    assert_eq!((refused.reason, refused.error), (SkipReason::Parent, None));
    let refused = manifest
        .handle_entry(file(2, Some(1), "passwd"))
        .unwrap()
        .unwrap_err();
    assert_eq!(refused.reason, SkipReason::Parent);
    // One that the receiver itself does not store.
    manifest
        .handle_entry(directory(3, None, "mine"))
        .unwrap()
        .unwrap();
    manifest.refuse_directory(3);
    let refused = manifest.handle_entry(file(4, Some(3), "a")).unwrap().unwrap_err();
    assert_eq!(refused.reason, SkipReason::Parent);
    for name in ["/etc/passwd", "a/../../b", "x.gramway-part"] {
        let id = manifest.next;
        let refused = manifest.handle_entry(file(id, None, name)).unwrap().unwrap_err();
        assert_eq!(refused.reason, SkipReason::UnsafeName);
    }
}

#[test]
fn what_is_in_a_directory_that_got_another_name_is_stored_there() {
    let mut manifest = Manifest::new(Rules::default());
    manifest.handle_entry(directory(0, None, "top")).unwrap().unwrap();
    let second = manifest.handle_entry(directory(1, None, "top")).unwrap().unwrap();
    assert!(second.renamed);
    assert_eq!(
        path(manifest.handle_entry(file(2, Some(1), "a")).unwrap()),
        "top (2)/a"
    );
}

/// FILE-22: neither an entry that came before nor one that comes later shares a name that was taken.
#[test]
fn a_name_that_the_disk_asked_for_is_taken_from_other_entries() {
    let mut manifest = Manifest::new(Rules::default());
    manifest.handle_entry(directory(0, None, "d")).unwrap().unwrap();
    manifest.handle_entry(file(1, Some(0), "a.txt")).unwrap().unwrap();
    manifest
        .handle_entry(file(2, Some(0), "a (2).txt"))
        .unwrap()
        .unwrap();
    // The directory has ended, but is not done.
    manifest.handle_directory_end(0).unwrap();
    assert!(!manifest.is_free(1, b"a (2).txt") && !manifest.reserve(1, b"a (2).txt"));
    assert!(manifest.is_free(1, b"a (3).txt") && manifest.reserve(1, b"a (3).txt"));
    assert!(!manifest.is_free(2, b"a (3).txt"));
    assert!(!manifest.reserve(2, b"a (3).txt"));
    assert!(!manifest.reserve(1, b"../a") && !manifest.reserve(9, b"b"));

    manifest.handle_entry(file(3, None, "a.txt")).unwrap().unwrap();
    assert!(manifest.reserve(3, b"a (2).txt"));
    let later = manifest
        .handle_entry(file(4, None, "a (2).txt"))
        .unwrap()
        .unwrap();
    assert_eq!(
        (later.path, later.renamed),
        (vec![b"a (2) (2).txt".to_vec()], true)
    );
}

/// FILE-8: an endless manifest.
#[test]
fn what_is_offered_and_not_done_is_bounded() {
    let mut manifest = Manifest::new(Rules::default());
    for id in 0..ENTRIES_OPEN_MAX as u64 {
        manifest
            .handle_entry(file(id, None, &id.to_string()))
            .unwrap()
            .unwrap();
    }
    let next = ENTRIES_OPEN_MAX as u64;
    assert_eq!(
        manifest.handle_entry(file(next, None, "more")),
        Err(ManifestError::TooMany)
    );
    manifest.finish(7);
    manifest.handle_entry(file(next, None, "more")).unwrap().unwrap();
    assert_eq!(manifest.open_entries(), ENTRIES_OPEN_MAX);

    let mut manifest = Manifest::new(Rules::default());
    let long = |id: EntryId| Kind::Symlink {
        target: vec![id as u8; 4_096],
    };
    let bounded = (0..).find(|id| {
        manifest
            .handle_entry(entry(*id, None, &id.to_string(), long(*id)))
            .is_err()
    });
    let (least, most) = (
        ENTRIES_OPEN_BYTES_MAX / (4_096 + 40),
        ENTRIES_OPEN_BYTES_MAX / 4_096,
    );
    assert!((least..most).contains(&(bounded.unwrap() as usize)));
}

/// FILE-8: thirty bytes of an offer must not cost the receiver the addresses of terabytes, again and again.
#[test]
fn chunks_of_open_files_are_bounded() {
    let mut manifest = Manifest::new(Rules::default());
    let largest = Kind::File {
        size: crate::limits::FILE_BYTES_MAX,
    };
    manifest
        .handle_entry(entry(0, None, "a", largest.clone()))
        .unwrap()
        .unwrap();
    manifest
        .handle_entry(entry(1, None, "b", largest.clone()))
        .unwrap()
        .unwrap();
    assert_eq!(
        manifest.handle_entry(file(2, None, "c")),
        Err(ManifestError::TooMuch)
    );
    manifest.finish(0);
    manifest
        .handle_entry(entry(2, None, "c", largest))
        .unwrap()
        .unwrap();
}

/// FILE-6.
#[test]
fn directories_in_each_other_are_bounded() {
    let mut manifest = Manifest::new(Rules::default());
    for id in 0..=DEPTH_MAX as u64 {
        manifest
            .handle_entry(directory(id, id.checked_sub(1), "d"))
            .unwrap()
            .unwrap();
    }
    let deeper = directory(DEPTH_MAX as u64 + 1, Some(DEPTH_MAX as u64), "d");
    assert_eq!(manifest.handle_entry(deeper), Err(ManifestError::Depth));
}

proptest! {
    /// FILE-6 to FILE-9: whatever is offered in whatever order, no two entries have a path in common, and everything
    /// that is done is forgotten.
    #[test]
    fn any_manifest_is_kept_apart_or_refused(steps in prop::collection::vec((0_u8..5, 0_u64..12, "[ab./]{0,3}"), 0..80)) {
        let mut manifest = Manifest::new(Rules::default());
        let mut paths = std::collections::BTreeSet::new();
        let mut next = 0;
        for (step, number, name) in steps {
            let parent = number.checked_sub(1);
            match step {
                0 | 1 => {
                    let kind = if step == 0 { Kind::Directory } else { Kind::File { size: 1 } };
                    if let Ok(taken) = manifest.handle_entry(entry(next, parent, &name, kind)) {
                        next += 1;
                        if let Ok(offered) = taken {
                            prop_assert!(offered.path.iter().all(|part| crate::name::check(part).is_ok()));
                            prop_assert!(paths.insert(offered.path));
                        }
                    }
                }
                2 => {
                    let _ = manifest.handle_directory_end(number);
                }
                3 => {
                    let is_file = manifest.open.get(&number).is_some_and(|open| open.directory.is_none());
                    if is_file {
                        manifest.finish(number);
                    }
                }
                _ => {
                    if let Some(directory) = manifest.poll_finished_directory() {
                        manifest.finish(directory);
                    }
                }
            }
        }
        // Everything ends, innermost first.
        let directories: Vec<EntryId> = manifest.open.iter().filter(|(_, open)| open.directory.is_some()).map(|(id, _)| *id).collect();
        for id in directories.into_iter().rev() {
            let _ = manifest.handle_directory_end(id);
        }
        manifest.handle_offer_end(next, manifest.bytes).unwrap();
        let files: Vec<EntryId> = manifest.open.iter().filter(|(_, open)| open.directory.is_none()).map(|(id, _)| *id).collect();
        for id in files {
            manifest.finish(id);
        }
        while let Some(directory) = manifest.poll_finished_directory() {
            manifest.finish(directory);
        }
        prop_assert!(manifest.is_done());
        prop_assert_eq!(manifest.open_bytes, 0);
    }
}
