//! What a sender of files says: however its bytes are cut they are the same messages, which are written back alike;
//! what is offered gets safe paths, of which no two are the same, and stays within its bounds.

use std::collections::BTreeSet;

use files_proto::manifest::Manifest;
use files_proto::message::{Decoder, Message};
use files_proto::name::{Rules, check};
use files_proto::record::RecordHead;
use files_proto::{Entry, Kind, Ranges, limits, pack};

/// The first byte chooses the destination's rules; what follows is a control stream, a record's head and a pack.
pub fn run(data: &[u8]) {
    let Some((choice, stream)) = data.split_first() else {
        return;
    };
    let rules = Rules {
        ignores_case: choice & 1 != 0,
        ignores_composition: choice & 2 != 0,
        windows: choice & 4 != 0,
    };
    let messages = decoded(stream, usize::from(choice >> 3) + 1);
    assert_eq!(decoded(stream, usize::MAX), messages);
    check_manifest(rules, &messages);
    check_written_back(&messages);
    check_record(stream);
}

/// The messages before the end of the stream or its first error.
fn decoded(stream: &[u8], step: usize) -> Vec<Message> {
    let mut decoder = Decoder::default();
    let mut messages = Vec::new();
    for part in stream.chunks(step) {
        decoder.push(part);
        loop {
            match decoder.next_message() {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(_) => return messages,
            }
        }
    }
    messages
}

fn check_written_back(messages: &[Message]) {
    let mut out = Vec::new();
    for message in messages {
        message.encode(&mut out);
    }
    assert_eq!(decoded(&out, usize::MAX), messages);
}

fn check_manifest(rules: Rules, messages: &[Message]) {
    let mut manifest = Manifest::new(rules);
    let mut paths = BTreeSet::new();
    for message in messages {
        match message {
            Message::Entry(entry) => {
                // Numbers are made to fit, so that what is behind them is reached.
                let entry = Entry {
                    id: paths.len() as u64,
                    ..entry.clone()
                };
                let Ok(taken) = manifest.handle_entry(entry) else {
                    return;
                };
                let path = match taken {
                    Ok(offered) => {
                        assert!(offered.path.iter().all(|part| check(part).is_ok()));
                        assert!(offered.path.len() <= limits::DEPTH_MAX + 1);
                        Ok(offered.path)
                    }
                    Err(refused) => Err(refused.entry.id),
                };
                assert!(paths.insert(path));
            }
            Message::DirectoryEnd { entry } => {
                let _ = manifest.handle_directory_end(*entry);
            }
            Message::Stored { entries } => {
                for entry in entries
                    .iter()
                    .flat_map(|range| range.start..range.end.min(range.start + 8))
                {
                    manifest.finish(entry);
                }
            }
            _ => {}
        }
        while let Some(directory) = manifest.poll_finished_directory() {
            manifest.finish(directory);
        }
        assert!(manifest.open_entries() <= limits::ENTRIES_OPEN_MAX);
    }
}

fn check_record(stream: &[u8]) {
    if let Some((head, body)) = stream.split_first_chunk() {
        if let Ok(head) = RecordHead::decode(head) {
            assert!(head.stored_bytes as usize <= limits::RECORD_BODY_BYTES_MAX);
            assert_eq!(RecordHead::decode(&head.encode()), Ok(head));
        }
        if let Ok(files) = pack::read(body) {
            let bytes: usize = files.map(|file| file.bytes.len()).sum();
            assert!(bytes < body.len());
        }
    }
}

/// A tree, answers, and a pack behind a head.
pub fn seeds() -> Vec<Vec<u8>> {
    let entry = |id, parent, name: &[u8], kind| {
        Message::Entry(Entry {
            id,
            parent,
            name: name.to_vec(),
            kind,
            mode: 0o755,
            modified_ns: 1_700_000_000_000_000_000,
            attributes: Vec::new(),
            disk_bytes_min: 0,
        })
    };
    let tree = [
        entry(0, None, b"top", Kind::Directory),
        entry(1, Some(0), "é".as_bytes(), Kind::File { size: 3 << 20 }),
        entry(2, Some(0), "e\u{301}".as_bytes(), Kind::File { size: 5 }),
        entry(3, Some(0), b"CON", Kind::Directory),
        entry(
            4,
            Some(3),
            b"..",
            Kind::Symlink {
                target: b"../../etc".to_vec(),
            },
        ),
        Message::DirectoryEnd { entry: 3 },
        Message::DirectoryEnd { entry: 0 },
        Message::OfferEnd {
            entries: 5,
            bytes: (3 << 20) + 5,
        },
        Message::Hashes {
            entry: 1,
            first: 0,
            addresses: vec![[1; 32], [2; 32]],
        },
        Message::FileEnd {
            entry: 1,
            size: 3 << 20,
            root: [3; 32],
        },
    ];
    let answers = [
        Message::Want {
            entry: 1,
            chunks: Ranges::from_range(0..3),
        },
        Message::Stored {
            entries: [1, 2, 4].into_iter().collect(),
        },
    ];
    let mut builder = pack::Builder::default();
    builder.push(2, b"small");
    builder.push(5, b"other");
    let mut pack = vec![1; 64];
    pack[0] = 0;
    builder.finish(&mut pack);
    let stream = |choice: u8, messages: &[Message]| {
        let mut out = vec![choice];
        for message in messages {
            message.encode(&mut out);
        }
        out
    };
    vec![
        stream(0, &tree),
        stream(0x0f, &tree),
        stream(0x12, &[&tree[..], &answers].concat()),
        stream(0, &answers),
        [&[0][..], &pack].concat(),
    ]
}
