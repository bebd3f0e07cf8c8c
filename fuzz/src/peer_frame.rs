//! Frames of messages between peers: whatever is read is written back alike, runs of an ACK are ordered and apart,
//! and the head of a stream is the same however many bytes follow it.

use bytes::{Bytes, BytesMut};
use peer_proto::frame::{Ack, Frame, Head, Place, StreamHead, Unread};

/// A DATAGRAM frame's content, and the begin of a stream.
pub fn run(data: &[u8]) {
    if let Some(frame) = Frame::read(Bytes::copy_from_slice(data)) {
        if let Frame::Ack(ack) = &frame {
            check_runs(ack);
        }
        assert_eq!(Frame::read(written(&frame).into()), Some(frame));
    }
    let Some((kind, rest)) = data.split_first() else {
        return;
    };
    match StreamHead::read(*kind, rest) {
        Ok((head, used)) => {
            for cut in 0..used {
                assert_eq!(StreamHead::read(*kind, &rest[..cut]), Err(Unread::Incomplete));
            }
            let mut out = BytesMut::new();
            head.write(&mut out);
            assert_eq!(out[0], *kind);
            assert_eq!(StreamHead::read(out[0], &out[1..]), Ok((head, out.len() - 1)));
        }
        Err(Unread::Incomplete) => {
            assert!(rest.len() < peer_proto::limits::STREAM_HEAD_BYTES_MAX);
        }
        Err(Unread::Malformed) => {}
    }
}

fn check_runs(ack: &Ack) {
    for (start, end) in &ack.runs {
        assert!(start < end);
    }
    for pair in ack.runs.windows(2) {
        assert!(pair[1].1 < pair[0].0);
    }
}

fn written(frame: &Frame) -> Vec<u8> {
    let mut out = BytesMut::new();
    frame.write(&mut out);
    out.to_vec()
}

/// One frame of each type, and a stream's head.
pub fn seeds() -> Vec<Vec<u8>> {
    let place = Place {
        channel: 3,
        position: 500,
        distance: 2,
    };
    let body = Bytes::from_static(b"body");
    let message = |head| Frame::Message {
        number: 70_000,
        head,
        body: body.clone(),
    };
    let frames = [
        message(Head::Unordered),
        message(Head::Ordered(place)),
        message(Head::Latest { key: 1, version: 2 }),
        Frame::Skip { number: 9, place },
        Frame::Probe,
        Frame::Ack(Ack {
            credit: 400,
            runs: vec![(90, 100), (3, 40), (0, 1)],
        }),
    ];
    let mut stream = BytesMut::new();
    let head = StreamHead {
        number: Some(4),
        head: Head::Ordered(place),
        length: 1 << 20,
    };
    head.write(&mut stream);
    let mut seeds: Vec<Vec<u8>> = frames.iter().map(written).collect();
    seeds.push(stream.to_vec());
    seeds
}
