//! Control and QPACK streams: what a peer may say, in any chunks, and what ends the connection.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use masque::{Code, Connection, ConnectionError, Event, HeldBack, Role, Settings, UniDisposition};
use packet::varint;
use proptest::prelude::*;

const CONTROL_STREAM: u64 = 3;

fn frame(kind: u64, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    varint::write(kind, &mut out);
    varint::write(payload.len() as u64, &mut out);
    out.extend_from_slice(payload);
    out
}

fn other(role: Role) -> Role {
    match role {
        Role::Client => Role::Server,
        Role::Server => Role::Client,
    }
}

/// A connection in `role` whose peer sent its SETTINGS and then `frames` on the control stream.
fn after(role: Role, frames: &[Vec<u8>]) -> (Connection, Result<UniDisposition, ConnectionError>) {
    let mut connection = Connection::new(role);
    let [mut control, ..] = Connection::new(other(role)).opening_streams();
    control.extend(frames.concat());
    let result = connection.handle_uni(CONTROL_STREAM, &control);
    (connection, result)
}

fn code_after(role: Role, frames: &[Vec<u8>]) -> Code {
    after(role, frames).1.unwrap_err().code
}

#[test]
fn both_roles_understand_each_other_byte_by_byte() {
    for role in [Role::Client, Role::Server] {
        let mut connection = Connection::new(role);
        let opening = Connection::new(other(role)).opening_streams();
        assert_eq!(connection.peer_settings(), None);
        for (stream, bytes) in [2, 6, 10].into_iter().zip(opening) {
            for byte in bytes {
                assert_eq!(
                    connection.handle_uni(stream, &[byte]),
                    Ok(UniDisposition::Continue)
                );
            }
        }
        let settings = Settings::ours(other(role));
        assert_eq!(connection.peer_settings(), Some(&settings));
        assert_eq!(connection.poll_event(), Some(Event::Settings(settings)));
        assert_eq!(connection.poll_event(), None);
    }
}

/// RFC 9114 section 6.2.1, RFC 9297 section 2.1.1, RFC 9220 section 5: exact bytes.
#[test]
fn the_opening_of_a_server_announces_datagrams_and_extended_connect() {
    let [control, encoder, decoder] = Connection::new(Role::Server).opening_streams();
    assert_eq!(
        control,
        [
            0x00, 0x04, 0x0b, 0x01, 0x00, 0x07, 0x00, 0x06, 0x60, 0x00, 0x08, 0x01, 0x33, 0x01
        ]
    );
    assert_eq!((encoder, decoder), (vec![0x02], vec![0x03]));
}

#[test]
fn the_control_stream_must_begin_with_settings_and_have_one() {
    let mut connection = Connection::new(Role::Client);
    let error = connection
        .handle_uni(CONTROL_STREAM, &[&[0x00], &frame(0x21, b"")[..]].concat())
        .unwrap_err();
    assert_eq!(error.code, Code::MissingSettings);
    assert_eq!(
        code_after(Role::Client, &[frame(0x04, b"")]),
        Code::FrameUnexpected
    );
}

#[test]
fn settings_that_are_too_long_are_refused_at_their_header() {
    let mut connection = Connection::new(Role::Client);
    let error = connection
        .handle_uni(CONTROL_STREAM, &[0x00, 0x04, 0x44, 0x01])
        .unwrap_err();
    assert_eq!(error.code, Code::ExcessiveLoad);
}

/// RFC 9114 sections 7.2 and 7.2.8.
#[test]
fn frames_that_do_not_belong_on_the_control_stream_end_the_connection() {
    for kind in [0x00, 0x01, 0x02, 0x05, 0x06, 0x08, 0x09] {
        for role in [Role::Client, Role::Server] {
            assert_eq!(
                code_after(role, &[frame(kind, b"")]),
                Code::FrameUnexpected,
                "{kind:#x}"
            );
        }
    }
    assert_eq!(
        code_after(Role::Client, &[frame(0x0d, &[1])]),
        Code::FrameUnexpected
    );
}

/// RFC 9114 sections 5.2 and 7.2.6.
#[test]
fn goaway_identifiers_may_only_fall_and_must_name_a_request() {
    let server = Connection::new(Role::Server);
    let (mut connection, result) = after(
        Role::Client,
        &[
            server.goaway_frame(400),
            server.goaway_frame(400),
            server.goaway_frame(8),
        ],
    );
    assert_eq!(result, Ok(UniDisposition::Continue));
    assert!(matches!(connection.poll_event(), Some(Event::Settings(_))));
    assert_eq!(connection.poll_event(), Some(Event::Goaway(8)));
    assert_eq!(connection.poll_event(), None);
    assert_eq!(
        code_after(Role::Client, &[server.goaway_frame(8), server.goaway_frame(12)]),
        Code::IdError
    );
    for id in 1..4 {
        assert_eq!(
            code_after(Role::Client, &[server.goaway_frame(id)]),
            Code::IdError,
            "{id}"
        );
    }
    assert_eq!(code_after(Role::Client, &[frame(0x07, b"")]), Code::FrameError);
    assert_eq!(
        code_after(Role::Client, &[frame(0x07, &[0, 0])]),
        Code::FrameError
    );
    assert_eq!(
        code_after(Role::Client, &[frame(0x07, &[0; 9])]),
        Code::FrameError
    );
}

/// PATH-1, PATH-3.
#[test]
fn what_a_server_says_of_the_path_is_kept_once_and_a_client_has_nothing_to_say() {
    let server = Connection::new(Role::Server);
    let frames = [(100, 3), (70, 7)].map(|(sent, lost)| server.held_back_frame(HeldBack { sent, lost }));
    let (mut connection, result) = after(Role::Client, &frames);
    assert_eq!(result, Ok(UniDisposition::Continue));
    assert!(matches!(connection.poll_event(), Some(Event::Settings(_))));
    let last = HeldBack { sent: 70, lost: 7 };
    assert_eq!(connection.poll_event(), Some(Event::HeldBack(last)));
    assert_eq!(connection.poll_event(), None);
    let (mut connection, result) = after(Role::Server, &frames);
    assert_eq!(result, Ok(UniDisposition::Continue));
    assert!(matches!(connection.poll_event(), Some(Event::Settings(_))));
    assert_eq!(connection.poll_event(), None);
    for payload in [&[1][..], &[1, 2, 3], &[0; 17]] {
        assert_eq!(
            code_after(Role::Client, &[frame(0x1ace_11ed, payload)]),
            Code::FrameError
        );
        let (_, result) = after(Role::Server, &[frame(0x1ace_11ed, payload), frames[0].clone()]);
        assert_eq!(result, Ok(UniDisposition::Continue));
    }
}

/// RFC 9114 sections 4.6, 7.2.3 and 7.2.7.
#[test]
fn push_is_never_permitted() {
    assert_eq!(
        code_after(Role::Server, &[frame(0x0d, &[4]), frame(0x0d, &[3])]),
        Code::IdError
    );
    assert!(
        after(Role::Server, &[frame(0x0d, &[4]), frame(0x0d, &[4])])
            .1
            .is_ok()
    );
    assert_eq!(code_after(Role::Server, &[frame(0x03, &[0])]), Code::IdError);
    assert_eq!(
        Connection::new(Role::Server)
            .handle_uni(2, &[0x01])
            .unwrap_err()
            .code,
        Code::StreamCreationError
    );
    assert_eq!(
        Connection::new(Role::Client)
            .handle_uni(3, &[0x01])
            .unwrap_err()
            .code,
        Code::IdError
    );
}

#[test]
fn unknown_frames_of_any_length_are_skipped() {
    let (mut connection, result) = after(Role::Client, &[frame(0x21, &[7; 5000]), frame(0x07, &[0])]);
    assert_eq!(result, Ok(UniDisposition::Continue));
    assert_eq!(
        connection.poll_event().map(|_| connection.poll_event()),
        Some(Some(Event::Goaway(0)))
    );
}

/// RFC 9114 section 6.2, RFC 9204 section 4.2.
#[test]
fn critical_streams_are_opened_once_and_never_closed() {
    for kind in [0x00, 0x02, 0x03] {
        let mut connection = Connection::new(Role::Server);
        assert!(connection.handle_uni(2, &[kind]).is_ok());
        assert_eq!(
            connection.handle_uni(6, &[kind]).unwrap_err().code,
            Code::StreamCreationError
        );
        assert_eq!(
            connection.handle_uni_closed(2).unwrap_err().code,
            Code::ClosedCriticalStream
        );
    }
}

#[test]
fn unknown_streams_are_stopped_and_those_that_end_before_their_type_tolerated() {
    let mut connection = Connection::new(Role::Server);
    for stream in 0..1000 {
        assert_eq!(
            connection.handle_uni(stream * 4 + 2, &[0x21, 1, 2]),
            Ok(UniDisposition::Stop)
        );
    }
    assert_eq!(connection.handle_uni(2, &[0xc0]), Ok(UniDisposition::Continue));
    assert_eq!(connection.handle_uni_closed(2), Ok(()));
    assert_eq!(connection.handle_uni_closed(6), Ok(()));
}

#[test]
fn streams_that_never_say_their_type_are_bounded() {
    let mut connection = Connection::new(Role::Server);
    let results = (0..100).map(|stream| connection.handle_uni(stream * 4 + 2, &[]));
    let first_error = results.filter_map(Result::err).next();
    assert_eq!(first_error.unwrap().code, Code::ExcessiveLoad);
}

/// RFC 9204 appendix B.2: the encoder stream of a peer that uses a dynamic table.
#[test]
fn qpack_instructions_for_a_dynamic_table_end_the_connection() {
    let mut connection = Connection::new(Role::Server);
    assert!(connection.handle_uni(2, &[0x02, 0x20, 0x20]).is_ok());
    let error = connection.handle_uni(2, &[0x3f, 0xbd, 0x01]).unwrap_err();
    assert_eq!(error.code, Code::QpackEncoderStreamError);
    // RFC 9204 sections 4.4.1 and 4.4.3: nothing was sent that could be acknowledged.
    for instruction in [0x84, 0x01, 0x00] {
        let mut connection = Connection::new(Role::Server);
        let error = connection.handle_uni(2, &[0x03, instruction]).unwrap_err();
        assert_eq!(error.code, Code::QpackDecoderStreamError);
    }
}

/// RFC 9204 section 4.4.2.
#[test]
fn stream_cancellations_are_taken_and_endless_ones_are_not() {
    let mut connection = Connection::new(Role::Server);
    for byte in [0x03, 0x48, 0x7f, 0x80, 0x01, 0x7f, 0x00, 0x40] {
        assert_eq!(connection.handle_uni(2, &[byte]), Ok(UniDisposition::Continue));
    }
    let endless = [&[0x7f][..], &[0xff; 20]].concat();
    assert_eq!(
        connection.handle_uni(2, &endless).unwrap_err().code,
        Code::QpackDecoderStreamError
    );
}

proptest! {
    #[test]
    fn any_chunking_of_any_stream_gives_the_same(
        kind in 0..4_u8,
        with_settings in any::<bool>(),
        bytes in prop::collection::vec(prop_oneof![0..16_u8, any::<u8>()], 0..200),
        cuts in prop::collection::vec(1..20_usize, 1..10),
    ) {
        let settings = if with_settings { frame(0x04, &[0x33, 1]) } else { Vec::new() };
        let stream = [&[kind], &settings[..], &bytes].concat();
        let mut whole = Connection::new(Role::Client);
        let expected = whole.handle_uni(3, &stream);
        let mut connection = Connection::new(Role::Client);
        let mut rest = &stream[..];
        let mut result = Ok(UniDisposition::Continue);
        for cut in cuts.iter().copied().cycle() {
            if rest.is_empty() || result != Ok(UniDisposition::Continue) {
                break;
            }
            let (chunk, after) = rest.split_at(cut.min(rest.len()));
            result = connection.handle_uni(3, chunk);
            rest = after;
        }
        prop_assert_eq!(result, expected);
        prop_assert_eq!(connection.poll_event(), whole.poll_event());
    }
}
