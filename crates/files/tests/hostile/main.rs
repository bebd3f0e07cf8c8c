//! Ends that lie: a sender and a receiver written here, against the real other end.
#![expect(clippy::unwrap_used, reason = "a failed step of a test fails the test")]

mod carriers;
mod changed;
#[path = "../common/mod.rs"]
mod common;
mod damage;
#[path = "../../src/file_system_kinds.rs"]
#[expect(dead_code, reason = "what is known of names is not asked for here")]
mod file_system_kinds;
mod floods;
mod later;
mod liar;
mod room;

use bytes::Bytes;
use files::limits::PROBLEMS_MAX;
use files::{SendOptions, Source, TransferError};
use files_proto::manifest::ManifestError;
use files_proto::message::{LOOK, Message, Totals};
use files_proto::record::{Body, Piece, RecordHead};
use files_proto::{FailReason, Kind, Ranges, SkipReason};
use peer::blocking::wait;

use liar::{Liar, entry, file, hello, receive_from, send_as, send_bytes_to, send_to, send_with};

/// FILE-39.
#[test]
fn a_piece_of_a_pipe_that_is_not_passed_on_ends_the_transfer() {
    let (received, names) = receive_from(|liar, peer| {
        liar.say(&hello(true, Vec::new()));
        liar.say(&entry(0, "pipe", Kind::Pipe));
        while !matches!(liar.hear(), Some(Message::Want { .. }) | None) {}
        let head = RecordHead {
            body: Body::Piece(Piece {
                entry: 0,
                index: 0,
                offset: 0,
            }),
            compressed: false,
            stored_bytes: 4,
            raw_bytes: 4,
        };
        let mut stream = wait(peer.open_one_way(0)).unwrap();
        let record = [&head.encode()[..], b"part"].concat();
        wait(stream.write_chunk(Bytes::from(record))).unwrap();
    });
    let Err(TransferError::Broken(how)) = received else {
        panic!("{received:?}")
    };
    assert!(how.contains("piece"), "{how}");
    assert!(!names.contains(&"pipe".to_owned()), "{names:?}");
}
/// FILE-20, FILE-23, FILE-45: and the rest goes on.
#[test]
fn names_and_links_that_lead_out_are_refused_and_count_as_failures() {
    let (received, names) = receive_from(|liar, _| {
        liar.say(&hello(true, Vec::new()));
        for (id, name) in [
            "..",
            "../beside",
            "/absolute",
            "",
            ".",
            "a/b",
            "nul\0",
            "x.gramway-part",
        ]
        .iter()
        .enumerate()
        {
            liar.say(&file(id as u64, name, 0));
        }
        let target = b"../beside".to_vec();
        liar.say(&entry(8, "link", Kind::Symlink { target }));
        liar.say(&file(9, "good", 0));
        liar.say(&Message::OfferEnd {
            entries: 10,
            bytes: 0,
        });
        let mut skipped = Vec::new();
        loop {
            match liar.hear() {
                Some(Message::Skip { entry, reason }) => skipped.push((entry, reason)),
                Some(Message::Stored { entries }) => {
                    assert_eq!(entries, Ranges::from_range(9..10));
                    break;
                }
                Some(Message::Hello(_)) => {}
                other => panic!("{other:?}"),
            }
        }
        while skipped.len() < 9 {
            match liar.hear() {
                Some(Message::Skip { entry, reason }) => skipped.push((entry, reason)),
                other => panic!("{other:?}"),
            }
        }
        let names = skipped
            .iter()
            .filter(|(_, reason)| *reason == SkipReason::UnsafeName);
        assert_eq!(names.count(), 8);
        assert!(skipped.contains(&(8, SkipReason::UnsafeLink)));
        liar.say(&Message::Done(Totals::default()));
        while !matches!(liar.hear(), Some(Message::Done(_)) | None) {}
        // A sender ends the connection then.
        liar.writer.finish();
    });
    let report = received.unwrap();
    assert_eq!((report.stored, report.skipped, report.failed), (1, 0, 9));
    assert_eq!(report.problems.len(), 9);
    assert_eq!(names, ["good"]);
}

/// FILE-45: what a receiver refuses did not arrive.
#[test]
fn a_name_that_its_receiver_refuses_is_named_by_the_sender_and_counts_as_a_failure() {
    for (reason, failed) in [
        (SkipReason::UnsafeName, 1),
        (SkipReason::UnsafeLink, 1),
        (SkipReason::Conflict, 0),
    ] {
        let sent = send_to(|liar| {
            liar.say(&hello(false, Vec::new()));
            while !matches!(liar.hear(), Some(Message::Entry(_)) | None) {}
            liar.say(&Message::Skip { entry: 0, reason });
            while !matches!(liar.hear(), Some(Message::Done(_)) | None) {}
            liar.say(&Message::Done(Totals::default()));
        });
        let sent = sent.unwrap();
        assert_eq!((sent.failed, sent.skipped), (failed, 1 - failed), "{reason:?}");
        let named = sent.problems.iter().map(|(path, _)| path.as_str());
        assert_eq!(
            named.collect::<Vec<_>>(),
            vec!["file"; failed as usize],
            "{sent:?}"
        );
    }
}

/// FILE-44: however many there are.
#[test]
fn what_a_sender_does_not_offer_is_counted_and_kept_up_to_a_limit() {
    let count = PROBLEMS_MAX as u64 + 7;
    let (received, names) = receive_from(|liar, _| {
        liar.say(&hello(true, Vec::new()));
        for number in 0..count {
            liar.say(&Message::Unoffered {
                reason: FailReason::Unreadable,
                path: format!("tree/{number}"),
                text: "\u{1b}[2JPermission denied".to_owned(),
            });
        }
        liar.say(&Message::OfferEnd { entries: 0, bytes: 0 });
        liar.say(&Message::Done(Totals::default()));
        while !matches!(liar.hear(), Some(Message::Done(_)) | None) {}
        liar.writer.finish();
    });
    let report = received.unwrap();
    assert_eq!((report.failed, report.problems.len()), (count, PROBLEMS_MAX));
    assert!(names.is_empty(), "{names:?}");
}

/// FILE-6.
#[test]
fn an_offer_out_of_order_ends_the_transfer() {
    let (received, names) = receive_from(|liar, _| {
        liar.say(&hello(true, Vec::new()));
        liar.say(&file(5, "file", 0));
    });
    assert!(
        matches!(received, Err(TransferError::Manifest(_))),
        "{received:?}"
    );
    assert!(names.is_empty());
}

/// FILE-14.
#[test]
fn a_receiver_that_wants_what_is_not_offered_or_for_ever_is_left() {
    let sent = send_to(|liar| {
        liar.say(&hello(false, Vec::new()));
        liar.say(&Message::Want {
            entry: 77,
            chunks: Ranges::from_range(0..1),
        });
    });
    assert!(matches!(sent, Err(TransferError::Answer(_))), "{sent:?}");
    let sent = send_to(|liar| {
        liar.say(&hello(false, Vec::new()));
        while !matches!(liar.hear(), Some(Message::Entry(_)) | None) {}
        // No chunk is wanted: nothing is sent, and nothing breaks.
        liar.say(&Message::Want {
            entry: 0,
            chunks: Ranges::new(),
        });
        for _ in 0..10 {
            liar.say(&Message::Want {
                entry: 0,
                chunks: Ranges::from_range(0..3),
            });
        }
    });
    assert!(matches!(sent, Err(TransferError::Answer(_))), "{sent:?}");
}

/// FILE-15: what is left of standard input is not the whole, whoever wants it.
#[test]
fn standard_input_is_sent_once() {
    let name = "stdin".to_owned();
    let options = SendOptions {
        sources: vec![Source::Stdin { name }],
        ..SendOptions::default()
    };
    let want = |liar: &mut Liar| {
        liar.say(&hello(false, Vec::new()));
        while !matches!(liar.hear(), Some(Message::Entry(_)) | None) {}
        let chunks = Ranges::from_range(0..1);
        liar.say(&Message::Want { entry: 0, chunks });
    };
    assert!(!files::is_stdin_spent());
    let left = send_as(&options, |liar, _| {
        want(liar);
        let text = "enough".to_owned();
        liar.say(&Message::Abort { text });
    });
    assert!(matches!(left, Err(TransferError::Aborted(_))), "{left:?}");
    assert!(files::is_stdin_spent());
    let spent = send_as(&options, |liar, _| {
        want(liar);
        let told = std::iter::from_fn(|| liar.hear());
        let mut told = told.filter_map(|message| match message {
            Message::Abort { text } => Some(text),
            _ => None,
        });
        assert!(told.next().unwrap().contains("can be read once"));
    });
    assert!(matches!(spent, Err(TransferError::InputSpent)), "{spent:?}");
}

/// FILE-14: what wants nothing is bounded, and no file is so small that it ends the sender otherwise than in order.
#[test]
fn a_receiver_that_wants_no_chunk_for_ever_is_left() {
    for length in [0, 5, 2 << 20] {
        let sent = send_bytes_to(length, |liar| {
            liar.say(&hello(false, Vec::new()));
            while !matches!(liar.hear(), Some(Message::Entry(_)) | None) {}
            for _ in 0..20 {
                liar.say(&Message::Want {
                    entry: 0,
                    chunks: Ranges::new(),
                });
            }
        });
        assert!(
            matches!(sent, Err(TransferError::Answer(_))),
            "{length}: {sent:?}"
        );
    }
}

/// FILE-5: DONE is believed of nobody before everything is done.
#[test]
fn an_end_that_is_done_too_early_is_not_believed() {
    let sent = send_to(|liar| {
        liar.say(&hello(false, Vec::new()));
        liar.say(&Message::Done(Totals::default()));
    });
    assert!(matches!(sent, Err(TransferError::Broken(_))), "{sent:?}");
    let (received, _) = receive_from(|liar, _| {
        liar.say(&hello(true, Vec::new()));
        liar.say(&file(0, "file", 2 << 20));
        liar.say(&Message::Done(Totals::default()));
    });
    assert!(matches!(received, Err(TransferError::Broken(_))), "{received:?}");
}

/// FILE-40.
#[test]
fn a_receiver_that_only_looks_gets_no_bytes() {
    let sent = send_to(|liar| {
        liar.say(&hello(false, vec![(LOOK, Vec::new())]));
        while !matches!(liar.hear(), Some(Message::Entry(_)) | None) {}
        let chunks = Ranges::from_range(0..1);
        liar.say(&Message::Want { entry: 0, chunks });
    });
    assert!(matches!(sent, Err(TransferError::Broken(_))), "{sent:?}");
}

/// FILE-37, FILE-42: that the receiver's disk has everything, only its DONE says, or the code that stands for it.
#[test]
fn a_sender_does_not_take_what_arrived_for_stored_before_it_is_told() {
    let store = |liar: &mut Liar| {
        liar.say(&hello(false, Vec::new()));
        while !matches!(liar.hear(), Some(Message::Entry(_)) | None) {}
        let entries = Ranges::from_range(0..1);
        liar.say(&Message::Stored { entries });
        while !matches!(liar.hear(), Some(Message::Done(_)) | None) {}
    };
    let sent = send_with(5, SendOptions::default(), |liar, peer| {
        store(liar);
        peer.close(0, "");
    });
    assert!(matches!(sent, Err(TransferError::Unconfirmed(_))), "{sent:?}");
    // STORED says it, where DONE is lost on the way.
    let sent = send_with(5, SendOptions::default(), |liar, peer| {
        store(liar);
        peer.close(6, "");
    });
    assert_eq!(sent.unwrap().stored, 1);
    // Of what it does not have it says nothing.
    let sent = send_with(5, SendOptions::default(), |liar, peer| {
        liar.say(&hello(false, Vec::new()));
        while !matches!(liar.hear(), Some(Message::Entry(_)) | None) {}
        peer.close(6, "");
    });
    assert!(matches!(sent, Err(TransferError::Lost(_))), "{sent:?}");
    let sent = send_with(5, SendOptions::default(), |liar, _| {
        store(liar);
        liar.writer.finish();
    });
    assert!(matches!(sent, Err(TransferError::Unconfirmed(_))), "{sent:?}");
    let sent = send_with(5, SendOptions::default(), |liar, _| {
        store(liar);
        liar.say(&Message::Done(Totals::default()));
    });
    assert_eq!(sent.unwrap().stored, 1);
}

/// FILE-2.
#[test]
fn two_ends_of_one_role_say_so() {
    let sent = send_to(|liar| liar.say(&hello(true, Vec::new())));
    assert!(matches!(sent, Err(TransferError::Greeting(_))), "{sent:?}");
    let (received, _) = receive_from(|liar, _| liar.say(&hello(false, Vec::new())));
    assert!(
        matches!(received, Err(TransferError::Greeting(_))),
        "{received:?}"
    );
}

/// FILE-2.
#[test]
fn an_end_that_says_hello_twice_is_left() {
    let sent = send_to(|liar| {
        liar.say(&hello(false, Vec::new()));
        liar.say(&hello(false, Vec::new()));
    });
    assert!(matches!(sent, Err(TransferError::Broken(_))), "{sent:?}");
    let (received, _) = receive_from(|liar, _| {
        liar.say(&hello(true, Vec::new()));
        liar.say(&hello(true, Vec::new()));
    });
    assert!(matches!(received, Err(TransferError::Broken(_))), "{received:?}");
}

/// FILE-13: what is told of an entry that is done is passed over, and of one that was never offered it is not.
#[test]
fn a_sender_that_tells_of_what_it_has_not_offered_is_left() {
    let lies = [
        Message::FileEnd {
            entry: 1,
            size: 5,
            root: [0; 32],
        },
        Message::Failed {
            entry: 1,
            reason: FailReason::Other,
            text: String::new(),
        },
        Message::Hashes {
            entry: 1,
            first: 0,
            addresses: vec![[0; 32]],
        },
    ];
    for lie in lies {
        let (received, _) = receive_from(|liar, _| {
            liar.say(&hello(true, Vec::new()));
            liar.say(&file(0, "..", 0));
            while !matches!(liar.hear(), Some(Message::Skip { .. }) | None) {}
            let failed = Message::Failed {
                entry: 0,
                reason: FailReason::Other,
                text: "it is done".to_owned(),
            };
            liar.say(&failed);
            liar.say(&lie);
        });
        assert!(
            matches!(
                received,
                Err(TransferError::Manifest(ManifestError::NotOffered(1)))
            ),
            "{received:?}"
        );
    }
}
