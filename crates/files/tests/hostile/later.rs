//! Ends of a later version, which know extensions, messages, fields and records that this one does not: files move all
//! the same.

use bytes::Bytes;
use files::SendOptions;
use files_proto::Ranges;
use files_proto::content::{RootBuilder, chunk_address};
use files_proto::limits::RECORD_HEAD_BYTES;
use files_proto::message::{Hello, Message, Totals, VERSION};
use files_proto::record::{Body, RecordHead};
use peer::ReceiveStream;
use peer::blocking::{wait, wait_for};

use crate::liar::{LIMIT, Liar, file, head_of_whole, receive_from, send_with};

fn hello(sender: bool) -> Message {
    Message::Hello(Hello {
        version: VERSION + 1,
        sender,
        extensions: vec![(99, b"unknown".to_vec()), (1 << 40, Vec::new())],
    })
}

/// Says something that this version does not know: type 63 with three bytes.
fn say_unknown(liar: &mut Liar) {
    let _ = wait(liar.writer.write_chunk(Bytes::from_static(&[63, 3, 1, 2, 3])));
}

fn read_exact(stream: &mut ReceiveStream, length: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.len() < length {
        let read = wait_for(LIMIT, stream.read_chunk(length - bytes.len()));
        bytes.extend_from_slice(&read.expect("it brings something").unwrap().unwrap());
    }
    bytes
}

/// FILE-2, FILE-4.
#[test]
fn a_receiver_of_a_later_version_gets_its_file() {
    let length = 200_000;
    // The first stream is the one that brings it.
    let options = SendOptions {
        streams: Some(1),
        ..SendOptions::default()
    };
    let sent = send_with(length, options, |liar, peer| {
        liar.say(&hello(false));
        say_unknown(liar);
        while !matches!(liar.hear(), Some(Message::Entry(_)) | None) {}
        say_unknown(liar);
        let chunks = Ranges::from_range(0..1);
        liar.say(&Message::Want {
            entry: 0,
            chunks: chunks.clone(),
        });
        let stream = wait_for(LIMIT, peer.accept_one_way());
        let mut stream = stream.expect("the chunk comes").unwrap();
        let head = read_exact(&mut stream, RECORD_HEAD_BYTES);
        let head = RecordHead::decode(head[..].try_into().unwrap()).unwrap();
        let Body::Chunk(chunk) = head.body else {
            panic!("{head:?}")
        };
        assert_eq!((chunk.entry, chunk.index, head.raw_bytes), (0, 0, length as u32));
        let mut body = read_exact(&mut stream, head.stored_bytes as usize);
        if head.compressed {
            let mut raw = vec![0; length];
            files_proto::compress::Decompression::new()
                .decompress(&body, &mut raw)
                .unwrap();
            body = raw;
        }
        chunk.verify(&body).unwrap();
        liar.say(&Message::Ack { entry: 0, chunks });
        say_unknown(liar);
        liar.say(&Message::Stored {
            entries: Ranges::from_range(0..1),
        });
        while !matches!(liar.hear(), Some(Message::Done(_)) | None) {}
        liar.say(&Message::Done(Totals::default()));
    });
    let sent = sent.unwrap();
    assert_eq!((sent.stored, sent.bytes_sent), (1, length as u64));
}

/// FILE-2, FILE-4, FILE-17.
#[test]
fn what_a_sender_of_a_later_version_sends_arrives() {
    let bytes = vec![7; 200_000];
    let size = bytes.len() as u64;
    let (received, names) = receive_from(|liar, peer| {
        liar.say(&hello(true));
        say_unknown(liar);
        // With another field behind those that are known.
        let mut entry = Vec::new();
        file(0, "file", size).encode(&mut entry);
        entry[1] += 1;
        entry.push(5);
        let _ = wait(liar.writer.write_chunk(Bytes::from(entry)));
        say_unknown(liar);
        while !matches!(liar.hear(), Some(Message::Want { .. }) | None) {}
        let mut stream = wait(peer.open_one_way(0)).unwrap();
        let unknown = RecordHead {
            body: Body::Unknown,
            compressed: false,
            stored_bytes: 4,
            raw_bytes: 9,
        };
        let records = [
            &unknown.encode()[..],
            b"what",
            &head_of_whole(&bytes).encode(),
            &bytes,
        ];
        wait(stream.write_chunk(Bytes::from(records.concat()))).unwrap();
        let mut builder = RootBuilder::default();
        builder.insert(0, chunk_address(0, true, &bytes));
        let root = builder.root(1).unwrap();
        liar.say(&Message::FileEnd { entry: 0, size, root });
        say_unknown(liar);
        liar.end(1, size);
    });
    let received = received.unwrap();
    assert_eq!((received.stored, received.bytes_sent), (1, size));
    assert_eq!(names, ["file"]);
}
