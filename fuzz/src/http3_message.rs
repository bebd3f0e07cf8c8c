//! Streams of HTTP/3: requests, responses, control and QPACK streams. The same items or the same refusal come out
//! however a stream is cut, and whatever a request says is judged without panic.

use bytes::Bytes;
use masque::{
    Connection, HeaderList, Item, MessageError, MessageReader, Role, data_frame_header, headers_frame, ip,
    listen, qpack, request, response,
};

use crate::input::Input;

/// One byte of role and kind, one of chunk length, then the stream.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let kind = input.byte();
    let chunk = usize::from(input.byte()).max(1);
    let stream = input.0;
    let role = if kind & 1 == 0 { Role::Server } else { Role::Client };
    if kind & 2 == 0 {
        message(role, chunk, stream);
    } else {
        unidirectional(role, chunk, stream);
    }
}

fn message(role: Role, chunk: usize, stream: &[u8]) {
    let whole = read(role, &[stream]);
    assert_eq!(whole, read(role, &stream.chunks(chunk).collect::<Vec<_>>()));
    for item in &whole.0 {
        let (Item::Headers(list) | Item::Trailers(list)) = item else {
            continue;
        };
        if let Ok(request::Request::Extended(asked)) = request::classify(list)
            && let Ok(path) = asked.path.parse::<listen::ListenPath>()
        {
            assert_eq!(path.to_string().parse(), Ok(path));
        }
        let _ = (ip::checksum_context(list), ip::client_name(list));
        let _ = (response::status_of(list), response::proxy_error_of(list));
        assert_eq!(qpack::decode(&qpack::encode(list)).as_ref(), Ok(list));
    }
}

/// The items, those of content joined, and what ended them.
fn read(role: Role, chunks: &[&[u8]]) -> (Vec<Item>, Option<MessageError>) {
    let mut reader = MessageReader::new(role);
    let mut items: Vec<Item> = Vec::new();
    for chunk in chunks {
        let mut input = Bytes::copy_from_slice(chunk);
        loop {
            match reader.next(&mut input) {
                Ok(Some(Item::Data(more))) => {
                    assert!(!more.is_empty());
                    if let Some(Item::Data(content)) = items.last_mut() {
                        *content = [&content[..], &more].concat().into();
                    } else {
                        items.push(Item::Data(more));
                    }
                }
                Ok(Some(item)) => items.push(item),
                Ok(None) => break,
                Err(error) => return (items, Some(error)),
            }
        }
        assert!(input.is_empty());
    }
    (items, reader.finish().err())
}

fn unidirectional(role: Role, chunk: usize, stream: &[u8]) {
    let outcome = |chunks: &[&[u8]]| {
        let mut connection = Connection::new(role);
        let result = chunks
            .iter()
            .try_for_each(|chunk| connection.handle_uni(3, chunk).map(|_| ()));
        let mut events = Vec::new();
        while let Some(event) = connection.poll_event() {
            events.push(event);
        }
        (events, result)
    };
    let chunks: Vec<&[u8]> = stream.chunks(chunk).collect();
    // A stream that is not read on may start again with what follows, so only readable types are compared.
    if matches!(stream.first(), Some(0 | 2 | 3)) {
        assert_eq!(outcome(&[stream]), outcome(&chunks));
    } else {
        let _ = outcome(&chunks);
    }
}

/// Our own requests, responses and control streams.
pub fn seeds() -> Vec<Vec<u8>> {
    let extensions = ip::Extensions {
        client: ip::ClientId::parse(b"AAAAAAAAAAAAAAAAAAAAAA"),
        split: Some(2),
        checksum: Some(4),
        ..ip::Extensions::default()
    };
    let target = masque::Target::new("example.org", 443).ok();
    let mut requests: Vec<HeaderList> = vec![ip::connect_ip("a:443", &ip::Scope::ANY, "token", &extensions)];
    if let Some(target) = target {
        requests.push(request::connect_udp("a:443", &target, "token", Some(2)));
        requests.push(request::connect(&target, "token"));
        let port = "/0000000000000007/tcp/%3A%3A1/8080/";
        requests.push(request::extended_connect(
            "a:443",
            listen::PROTOCOL,
            port,
            "token",
        ));
    }
    let with_content = |kind: u8, list: &HeaderList| {
        let mut seed = vec![kind, 5];
        seed.extend(headers_frame(list));
        let (header, used) = data_frame_header(4);
        seed.extend(&header[..used]);
        seed.extend(b"data");
        seed
    };
    let mut all: Vec<Vec<u8>> = requests.iter().map(|list| with_content(0, list)).collect();
    all.extend([
        with_content(1, &response::response(200)),
        with_content(1, &response::unauthorized()),
        with_content(1, &ip::accepted(&extensions)),
    ]);
    for role in [Role::Server, Role::Client] {
        let connection = Connection::new(role);
        for stream in connection.opening_streams() {
            all.push([&[2, 4][..], &stream].concat());
            all.push([&[3, 4][..], &stream, &connection.goaway_frame(8)].concat());
        }
    }
    all
}
