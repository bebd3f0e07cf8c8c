//! A whole HTTP/3 connection: its unidirectional streams and several requests, in pieces among each other. The same
//! events, items and refusals come however the pieces are cut, and nothing is taken after a refusal.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use masque::{
    Connection, ConnectionError, Event, Item, MessageError, MessageReader, Role, UniDisposition,
    headers_frame, request, response,
};

use crate::input::Input;

/// Streams of each kind.
const STREAMS: u8 = 4;

/// Set where a piece ends its stream.
const FINAL: u8 = 8;

/// A byte of role, then pieces: a byte of stream and end, one of length, the bytes.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let role = if input.byte() & 1 == 0 {
        Role::Server
    } else {
        Role::Client
    };
    let mut pieces = Vec::new();
    while !input.is_empty() {
        let (head, length) = (input.byte(), input.byte());
        pieces.push((head, input.take(usize::from(length))));
    }
    let (mut whole, mut cut) = (Peer::new(role), Peer::new(role));
    for (head, bytes) in &pieces {
        whole.take(head % (2 * STREAMS), bytes);
        for byte in bytes.chunks(1) {
            cut.take(head % (2 * STREAMS), byte);
        }
        if head & FINAL != 0 {
            whole.end(head % (2 * STREAMS));
            cut.end(head % (2 * STREAMS));
        }
        assert_eq!(whole.events(), cut.events());
        assert_eq!(whole.failed, cut.failed);
    }
    assert_eq!(whole.heard, cut.heard);
    assert_eq!(whole.stopped, cut.stopped);
}

/// What came of a request stream: items, those of content joined, and what ended it.
#[derive(Default, Debug, PartialEq)]
struct Heard {
    items: Vec<Item>,
    end: Option<Result<(), MessageError>>,
}

struct Peer {
    role: Role,
    connection: Connection,
    failed: Option<ConnectionError>,
    stopped: BTreeSet<u8>,
    readers: BTreeMap<u8, MessageReader>,
    heard: BTreeMap<u8, Heard>,
}

impl Peer {
    fn new(role: Role) -> Self {
        Self {
            role,
            connection: Connection::new(role),
            failed: None,
            stopped: BTreeSet::new(),
            readers: BTreeMap::new(),
            heard: BTreeMap::new(),
        }
    }

    fn take(&mut self, stream: u8, bytes: &[u8]) {
        if self.failed.is_some() || self.stopped.contains(&stream) || bytes.is_empty() {
            return;
        }
        if stream < STREAMS {
            match self.connection.handle_uni(u64::from(stream) * 4 + 3, bytes) {
                Ok(UniDisposition::Continue) => {}
                Ok(UniDisposition::Stop) => {
                    self.stopped.insert(stream);
                }
                Err(error) => self.failed = Some(error),
            }
        } else {
            self.read(stream, bytes);
        }
    }

    fn read(&mut self, stream: u8, bytes: &[u8]) {
        let role = self.role;
        let reader = self
            .readers
            .entry(stream)
            .or_insert_with(|| MessageReader::new(role));
        let heard = self.heard.entry(stream).or_default();
        if heard.end.is_some() {
            return;
        }
        let mut input = Bytes::copy_from_slice(bytes);
        loop {
            match reader.next(&mut input) {
                Ok(Some(Item::Data(more))) => match heard.items.last_mut() {
                    Some(Item::Data(content)) => *content = [&content[..], &more].concat().into(),
                    _ => heard.items.push(Item::Data(more)),
                },
                Ok(Some(item)) => heard.items.push(item),
                Ok(None) => return,
                Err(error) => {
                    heard.end = Some(Err(error));
                    return;
                }
            }
        }
    }

    fn end(&mut self, stream: u8) {
        if self.failed.is_some() || self.stopped.contains(&stream) {
            return;
        }
        if stream < STREAMS {
            self.failed = self.connection.handle_uni_closed(u64::from(stream) * 4 + 3).err();
            self.stopped.insert(stream);
        } else if let Some(reader) = self.readers.get_mut(&stream) {
            let end = reader.finish();
            self.heard.entry(stream).or_default().end.get_or_insert(end);
        }
    }

    fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.connection.poll_event()).collect()
    }
}

/// Openings of both roles with requests and answers beside them, GOAWAY, and ends of streams.
pub fn seeds() -> Vec<Vec<u8>> {
    let piece = |head: u8, bytes: &[u8]| [&[head, bytes.len() as u8][..], bytes].concat();
    let target = masque::Target::new("example.org", 443).expect("a well-formed target");
    let asked = headers_frame(&request::connect_udp("a:443", &target, "token", Some(2)));
    let answered = headers_frame(&response::response(200));
    let mut all = Vec::new();
    for (ours, theirs, message) in [
        (Role::Server, Role::Client, &asked),
        (Role::Client, Role::Server, &answered),
    ] {
        let peer = Connection::new(theirs);
        let mut opened = vec![u8::from(ours == Role::Client)];
        for (stream, bytes) in peer.opening_streams().iter().enumerate() {
            opened.extend(piece(stream as u8, bytes));
        }
        opened.extend(piece(4, message));
        let goaway = [
            opened.clone(),
            piece(0, &peer.goaway_frame(8)),
            piece(0, &peer.goaway_frame(4)),
        ];
        let ended = [
            opened.clone(),
            piece(4 | FINAL, &[0, 1, 7]),
            piece(1 | FINAL, &[]),
        ];
        let mixed = [
            opened.clone(),
            piece(5, &message[..5]),
            piece(6, message),
            piece(5, &message[5..]),
        ];
        all.extend([goaway.concat(), ended.concat(), mixed.concat(), opened]);
    }
    all
}
