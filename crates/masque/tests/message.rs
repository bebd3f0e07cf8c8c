//! The reader of request streams: order of frames, bounds, chunks of any size.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use bytes::Bytes;
use masque::{
    Code, HeaderList, Item, MessageError, MessageReader, Role, data_frame_header, headers_frame,
    limits::FIELD_SECTION_ENCODED_BYTES_MAX, request, response,
};
use packet::varint;
use proptest::prelude::*;

fn frame(kind: u64, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    varint::write(kind, &mut out);
    varint::write(payload.len() as u64, &mut out);
    out.extend_from_slice(payload);
    out
}

fn frame_header(kind: u64, length: u64) -> Vec<u8> {
    let mut out = Vec::new();
    varint::write(kind, &mut out);
    varint::write(length, &mut out);
    out
}

fn connect() -> HeaderList {
    request::connect(&"example.com:22".parse().unwrap(), "token")
}

fn get() -> HeaderList {
    HeaderList::new()
        .with(":method", "GET")
        .with(":scheme", "https")
        .with(":path", "/")
        .with(":authority", "example.com")
}

/// All items of `stream` given in chunks of the sizes of `cuts`, with adjoining data joined, and the end's verdict.
fn read(role: Role, stream: &[u8], mut cuts: impl Iterator<Item = usize>) -> Result<Vec<Item>, MessageError> {
    let mut reader = MessageReader::new(role);
    let mut items: Vec<Item> = Vec::new();
    let mut rest = stream;
    while !rest.is_empty() {
        let (chunk, after) = rest.split_at(cuts.next().unwrap_or(usize::MAX).clamp(1, rest.len()));
        rest = after;
        let mut input = Bytes::copy_from_slice(chunk);
        while let Some(item) = reader.next(&mut input)? {
            match (items.last_mut(), item) {
                (Some(Item::Data(before)), Item::Data(data)) => {
                    *before = [&before[..], &data].concat().into()
                }
                (_, item) => items.push(item),
            }
        }
        assert!(input.is_empty(), "None means that all input is consumed");
    }
    reader.finish()?;
    Ok(items)
}

fn read_whole(role: Role, frames: &[&[u8]]) -> Result<Vec<Item>, MessageError> {
    read(role, &frames.concat(), std::iter::empty())
}

fn data(bytes: &[u8]) -> Item {
    Item::Data(Bytes::copy_from_slice(bytes))
}

#[test]
fn a_message_of_headers_data_and_trailers_is_read_byte_by_byte_as_at_once() {
    let trailers = HeaderList::new().with("checksum", "1");
    let stream = [
        frame(0x21, b"grease"),
        headers_frame(&get()),
        frame(0x00, b""),
        frame(0x00, b"hello "),
        frame(0x40, b""),
        frame(0x00, b"world"),
        headers_frame(&trailers),
        frame(0x21, b""),
    ]
    .concat();
    let expected = vec![
        Item::Headers(get()),
        data(b"hello world"),
        Item::Trailers(trailers),
    ];
    assert_eq!(
        read(Role::Server, &stream, std::iter::empty()),
        Ok(expected.clone())
    );
    assert_eq!(read(Role::Server, &stream, std::iter::repeat(1)), Ok(expected));
}

#[test]
fn data_passes_through_without_a_copy_and_before_its_frame_is_whole() {
    let mut reader = MessageReader::new(Role::Server);
    reader.next(&mut headers_frame(&connect()).into()).unwrap();
    let (header, used) = data_frame_header(1 << 40);
    let mut input = Bytes::from([&header[..used], b"first part"].concat());
    let address = input[used..].as_ptr();
    let Ok(Some(Item::Data(part))) = reader.next(&mut input) else {
        panic!("no data")
    };
    assert_eq!((&part[..], part.as_ptr()), (&b"first part"[..], address));
    assert_eq!(reader.next(&mut input), Ok(None));
    assert_eq!(reader.finish().unwrap_err().code(), Code::FrameError);
}

/// RFC 9114 section 4.1.
#[test]
fn frames_out_of_order_end_the_connection() {
    let headers = headers_frame(&get());
    let trailers = headers_frame(&HeaderList::new());
    for frames in [
        &[&frame(0x00, b"x")[..]][..],
        &[&headers, &trailers, &frame(0x00, b"x")],
        &[&headers, &trailers, &trailers],
    ] {
        let Err(MessageError::Connection(error)) = read_whole(Role::Server, frames) else {
            panic!("taken")
        };
        assert_eq!(error.code, Code::FrameUnexpected);
    }
}

/// RFC 9114 sections 7.2.3 to 7.2.8.
#[test]
fn frames_of_the_control_stream_and_of_http_2_end_the_connection() {
    for kind in [0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0d] {
        let error = read_whole(Role::Server, &[&frame(kind, b"")]).unwrap_err();
        assert!(matches!(error, MessageError::Connection(_)), "{kind:#x}");
        assert_eq!(error.code(), Code::FrameUnexpected, "{kind:#x}");
    }
    assert_eq!(
        read_whole(Role::Client, &[&frame(0x05, b"\0")])
            .unwrap_err()
            .code(),
        Code::IdError
    );
}

/// RFC 9114 section 4.4: only DATA after CONNECT.
#[test]
fn after_connect_only_data_may_follow_in_either_role() {
    let response = response::response(200);
    for (role, list) in [(Role::Server, connect()), (Role::Client, response)] {
        let headers = headers_frame(&list);
        assert_eq!(
            read_whole(role, &[&headers, &frame(0x00, b"x"), &frame(0x21, b"")]),
            Ok(vec![Item::Headers(list), data(b"x")])
        );
        let trailers = headers_frame(&HeaderList::new());
        assert_eq!(
            read_whole(role, &[&headers, &trailers]).unwrap_err().code(),
            Code::FrameUnexpected
        );
    }
}

#[test]
fn an_oversized_field_section_is_refused_at_its_header() {
    let mut reader = MessageReader::new(Role::Server);
    let mut input = Bytes::from(frame_header(0x01, FIELD_SECTION_ENCODED_BYTES_MAX + 1));
    let error = reader.next(&mut input).unwrap_err();
    assert_eq!(error.code(), Code::ExcessiveLoad);
    assert!(matches!(error, MessageError::Stream { .. }));
    let mut input = Bytes::from(frame_header(0x01, varint::MAX));
    assert!(MessageReader::new(Role::Server).next(&mut input).is_err());
}

#[test]
fn an_endless_unknown_frame_is_skipped_and_never_complete() {
    let mut reader = MessageReader::new(Role::Server);
    assert_eq!(reader.next(&mut frame_header(0x21, varint::MAX).into()), Ok(None));
    for _ in 0..100 {
        assert_eq!(reader.next(&mut Bytes::from(vec![0; 4096])), Ok(None));
    }
    assert_eq!(reader.finish().unwrap_err().code(), Code::FrameError);
}

/// RFC 9114 sections 4.1 and 7.1.
#[test]
fn a_stream_that_ends_early_is_an_error_of_the_right_reach() {
    let headers = headers_frame(&get());
    for cut in 1..headers.len() {
        assert_eq!(
            read_whole(Role::Server, &[&headers[..cut]]).unwrap_err().code(),
            Code::FrameError
        );
    }
    assert_eq!(
        read_whole(Role::Server, &[]).unwrap_err().code(),
        Code::RequestIncomplete
    );
    assert_eq!(
        read_whole(Role::Client, &[]).unwrap_err().code(),
        Code::MessageError
    );
}

#[test]
fn interim_responses_are_skipped_up_to_a_bound() {
    let interim = headers_frame(&response::response(103));
    let response = response::response(404);
    let last = headers_frame(&response);
    let few = [&interim.repeat(8)[..], &last];
    assert_eq!(read_whole(Role::Client, &few), Ok(vec![Item::Headers(response)]));
    let many = [&interim.repeat(9)[..], &last];
    assert_eq!(
        read_whole(Role::Client, &many).unwrap_err().code(),
        Code::ExcessiveLoad
    );
}

#[test]
fn malformed_responses_and_trailers_cost_the_stream() {
    let bad_trailers = headers_frame(&response::response(200));
    let failure = headers_frame(&response::response(404));
    for frames in [&[&headers_frame(&get())[..]][..], &[&failure, &bad_trailers]] {
        let error = read_whole(Role::Client, frames).unwrap_err();
        assert!(matches!(
            error,
            MessageError::Stream {
                code: Code::MessageError,
                ..
            }
        ));
    }
}

fn streams() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        Just(headers_frame(&get())),
        Just(headers_frame(&connect())),
        Just(headers_frame(&response::response(200))),
        Just(headers_frame(&response::response(103))),
        Just(headers_frame(&HeaderList::new().with("checksum", "1"))),
        prop::collection::vec(any::<u8>(), 0..100).prop_map(|payload| frame(0x00, &payload)),
        (0x21..0x1000_u64, prop::collection::vec(any::<u8>(), 0..100))
            .prop_map(|(kind, payload)| frame(kind, &payload)),
        (any::<u8>(), any::<u16>()).prop_map(|(kind, length)| frame_header(kind.into(), length.into())),
        prop::collection::vec(any::<u8>(), 0..10),
    ];
    prop::collection::vec(part, 0..8).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn any_chunking_of_any_stream_gives_the_same(
        stream in streams(),
        cuts in prop::collection::vec(1..40_usize, 1..20),
    ) {
        for role in [Role::Client, Role::Server] {
            let whole = read(role, &stream, std::iter::empty());
            prop_assert_eq!(&read(role, &stream, cuts.iter().copied().cycle()), &whole);
            prop_assert_eq!(&read(role, &stream, std::iter::repeat(1)), &whole);
        }
    }
}
