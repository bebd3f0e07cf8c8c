//! A lying end, and the real other one that it is set against.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use files::{Destination, Progress, ReceiveOptions, Report, SendOptions, Source, TransferError};
use files_proto::content::chunk_address;
use files_proto::message::{Decoder, Hello, Message, Totals, VERSION};
use files_proto::record::{Body, Chunk, RecordHead};
use files_proto::{Entry, Kind};
use peer::blocking::{wait, wait_for};
use peer::{Peer, ReceiveStream, SendStream};

use crate::common::pair;

/// What has not happened by then will not.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// A control stream in the hands of somebody who says anything.
pub(crate) struct Liar {
    pub(crate) writer: SendStream,
    pub(crate) reader: ReceiveStream,
    pub(crate) decoder: Decoder,
}

impl Liar {
    pub(crate) fn say(&mut self, message: &Message) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        // The other end may have had enough.
        let _ = wait(self.writer.write_chunk(Bytes::from(bytes)));
    }

    /// Says that everything has been offered and is done, and hears that the receiver is done, too.
    pub(crate) fn end(&mut self, entries: u64, bytes: u64) {
        self.say(&Message::OfferEnd { entries, bytes });
        let mut left = entries;
        while left > 0 {
            match self.hear() {
                Some(Message::Stored { entries }) => left -= entries.len(),
                Some(Message::Failed { .. } | Message::Skip { .. }) => left -= 1,
                Some(_) => {}
                None => return,
            }
        }
        self.finish();
    }

    /// Says that everything is done, and hears that the receiver is done, too.
    pub(crate) fn finish(&mut self) {
        self.say(&Message::Done(Totals::default()));
        while !matches!(self.hear(), Some(Message::Done(_)) | None) {}
        // A sender ends the connection then.
        self.writer.finish();
    }

    /// The next message but those about carriers; `None` where the other end says nothing more.
    pub(crate) fn hear(&mut self) -> Option<Message> {
        loop {
            match self.hear_all()? {
                Message::TcpOffer(_)
                | Message::TcpKey { .. }
                | Message::Measure(_)
                | Message::Choice { .. }
                | Message::Held { .. } => {}
                message => return Some(message),
            }
        }
    }

    pub(crate) fn hear_all(&mut self) -> Option<Message> {
        loop {
            match self.decoder.next_message().unwrap() {
                Some(message) => return Some(message),
                None => {
                    let read = wait_for(LIMIT, self.reader.read_chunk(65_536));
                    self.decoder
                        .push(&read.expect("it says something, or ends").ok()??);
                }
            }
        }
    }
}

pub(crate) fn hello(sender: bool, extensions: Vec<(u64, Vec<u8>)>) -> Message {
    Message::Hello(Hello {
        version: VERSION,
        sender,
        extensions,
    })
}

pub(crate) fn file(id: u64, name: &str, size: u64) -> Message {
    entry(id, name, Kind::File { size })
}

pub(crate) fn entry(id: u64, name: &str, kind: Kind) -> Message {
    Message::Entry(Entry {
        id,
        parent: None,
        name: name.as_bytes().to_vec(),
        kind,
        mode: 0o644,
        modified_ns: 1_000_000_000,
        attributes: Vec::new(),
        disk_bytes_min: 0,
    })
}

/// Runs a receiver against a lying sender; what it said, and what lies in its destination then.
pub(crate) fn receive_from(
    lie: impl FnOnce(&mut Liar, &Peer) + Send,
) -> (Result<Report, TransferError>, Vec<String>) {
    receive_telling(&Progress::default(), lie)
}

/// The same, with what it tells meanwhile.
pub(crate) fn receive_telling(
    progress: &Progress,
    lie: impl FnOnce(&mut Liar, &Peer) + Send,
) -> (Result<Report, TransferError>, Vec<String>) {
    let options = |to: &Path| ReceiveOptions::new(Destination::Directory(to.to_owned()));
    receive_with(options, progress, lie)
}

/// The same, into a destination that `prepare` fills, with its options.
pub(crate) fn receive_with(
    prepare: impl FnOnce(&Path) -> ReceiveOptions,
    progress: &Progress,
    lie: impl FnOnce(&mut Liar, &Peer) + Send,
) -> (Result<Report, TransferError>, Vec<String>) {
    let directory = tempfile::tempdir().unwrap();
    let to = directory.path().join("to");
    fs::create_dir(&to).unwrap();
    let options = prepare(&to);
    let received = receive_by(&options, progress, lie);
    let outside = fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(outside, 1, "nothing is made beside the destination");
    (received, names_in(&to))
}

/// What lies in a directory.
pub(crate) fn names_in(directory: &Path) -> Vec<String> {
    let names = fs::read_dir(directory).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    names.collect()
}

/// Runs a receiver with these options against a lying sender.
pub(crate) fn receive_by(
    options: &ReceiveOptions,
    progress: &Progress,
    lie: impl FnOnce(&mut Liar, &Peer) + Send,
) -> Result<Report, TransferError> {
    let (to_receiver, to_sender) = pair();
    thread::scope(|scope| {
        scope.spawn(move || {
            let (writer, reader) = wait(to_receiver.open(0)).unwrap();
            let mut liar = Liar {
                writer,
                reader,
                decoder: Decoder::default(),
            };
            lie(&mut liar, &to_receiver);
            // Until the receiver has seen it.
            wait_for(LIMIT, to_receiver.closed()).expect("it ends the connection");
        });
        files::receive(&to_sender, options, progress)
    })
}

pub(crate) fn send_to(lie: impl FnOnce(&mut Liar) + Send) -> Result<Report, TransferError> {
    send_bytes_to(3 << 20, lie)
}

/// Runs a sender of a file of so many bytes against a lying receiver.
pub(crate) fn send_bytes_to(
    length: usize,
    lie: impl FnOnce(&mut Liar) + Send,
) -> Result<Report, TransferError> {
    send_with(length, SendOptions::default(), |liar, _| lie(liar))
}

pub(crate) fn send_with(
    length: usize,
    options: SendOptions,
    lie: impl FnOnce(&mut Liar, &Peer) + Send,
) -> Result<Report, TransferError> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    fs::write(&path, vec![7; length]).unwrap();
    let options = SendOptions {
        sources: vec![Source::Path(path)],
        ..options
    };
    send_as(&options, lie)
}

pub(crate) fn send_as(
    options: &SendOptions,
    lie: impl FnOnce(&mut Liar, &Peer) + Send,
) -> Result<Report, TransferError> {
    let (to_receiver, to_sender) = pair();
    thread::scope(|scope| {
        scope.spawn(move || {
            let (writer, reader) = wait(to_sender.accept()).unwrap();
            let mut liar = Liar {
                writer,
                reader,
                decoder: Decoder::default(),
            };
            lie(&mut liar, &to_sender);
            wait_for(LIMIT, to_sender.closed()).expect("it ends the connection");
        });
        files::send(&to_receiver, options, &Progress::default())
    })
}

/// The head of the record that carries entry 0, which is one chunk of these bytes.
pub(crate) fn head_of_whole(bytes: &[u8]) -> RecordHead {
    RecordHead {
        body: Body::Chunk(Chunk {
            entry: 0,
            index: 0,
            address: chunk_address(0, true, bytes),
            only: true,
            hole: false,
        }),
        compressed: false,
        stored_bytes: bytes.len() as u32,
        raw_bytes: bytes.len() as u32,
    }
}
