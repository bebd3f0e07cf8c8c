//! The receive half of one request stream (RFC 9114 section 4.1): HEADERS, then DATA, then perhaps trailers.
//!
//! A field section is buffered only after its length was found within bounds; DATA passes through as slices of the
//! input; unknown frames are skipped as they come. Interim responses are skipped. Once CONNECT holds, in either role,
//! only DATA may follow (RFC 9114 section 4.4), and what the DATA frames carry is the caller's: TCP bytes or
//! capsules.

use bytes::{Buf, Bytes};

use crate::{
    Code, HeaderList, MessageError, Role,
    frame::{HeaderReader, kind},
    limits::{FIELD_SECTION_ENCODED_BYTES_MAX, INTERIM_RESPONSES_MAX},
    qpack, response,
};

/// A part of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// The header section; characters of names and values are checked, a response's status too, a request's rules are
    /// [`crate::request::classify`]'s.
    Headers(HeaderList),
    /// Some content, never empty.
    Data(Bytes),
    /// The trailer section.
    Trailers(HeaderList),
}

#[derive(Debug)]
enum State {
    /// Between frames, or inside a frame's header.
    Header,
    /// Inside a DATA frame, with so many bytes to come.
    Data(u64),
    /// Inside a frame that is ignored.
    Skip(u64),
    /// Inside HEADERS: what came of it, and what is to come.
    Section(Vec<u8>, u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Headers,
    Content,
    /// CONNECT holds: DATA until the end.
    Tunnel,
    Ended,
}

/// Reads one message. A client's reader expects the response to a CONNECT of either kind.
///
/// ```
/// use masque::{HeaderList, Item, MessageReader, Role, headers_frame};
/// let list = HeaderList::new().with(":status", "200");
/// let mut input = headers_frame(&list).into();
/// let mut reader = MessageReader::new(Role::Client);
/// assert_eq!(reader.next(&mut input), Ok(Some(Item::Headers(list))));
/// assert_eq!(reader.next(&mut input), Ok(None));
/// ```
#[derive(Debug)]
pub struct MessageReader {
    role: Role,
    header: HeaderReader,
    state: State,
    phase: Phase,
    interim_responses: u32,
}

impl MessageReader {
    /// A reader at the start of a stream; `role` is our own, so a server's reader takes requests.
    #[must_use]
    pub fn new(role: Role) -> Self {
        Self {
            role,
            header: HeaderReader::default(),
            state: State::Header,
            phase: Phase::Headers,
            interim_responses: 0,
        }
    }

    /// Consumes from `input` up to the next item; `None` when all of it is consumed and more is needed.
    ///
    /// # Errors
    /// The stream or the connection fails, as the error says; the reader cannot be used any more.
    pub fn next(&mut self, input: &mut Bytes) -> Result<Option<Item>, MessageError> {
        loop {
            match &mut self.state {
                State::Header => {
                    let Some((kind, length)) = self.header.read(input) else {
                        return Ok(None);
                    };
                    self.state = self.enter(kind, length)?;
                }
                State::Data(0) | State::Skip(0) => self.state = State::Header,
                State::Data(_) | State::Skip(_) if input.is_empty() => return Ok(None),
                State::Data(left) => {
                    let data = input.split_to(take(left, input));
                    return Ok(Some(Item::Data(data)));
                }
                State::Skip(left) => input.advance(take(left, input)),
                State::Section(buffer, left) => {
                    let part = input.split_to(take(left, input));
                    let list = if *left > 0 {
                        buffer.extend_from_slice(&part);
                        return Ok(None);
                    } else if buffer.is_empty() {
                        qpack::decode(&part)?
                    } else {
                        buffer.extend_from_slice(&part);
                        qpack::decode(buffer)?
                    };
                    self.state = State::Header;
                    if let Some(item) = self.take_section(list)? {
                        return Ok(Some(item));
                    }
                }
            }
        }
    }

    /// The peer's FIN came, after all data was given to [`MessageReader::next`].
    ///
    /// # Errors
    /// The message is not complete: H3_FRAME_ERROR inside a frame (RFC 9114 section 7.1), H3_REQUEST_INCOMPLETE or
    /// H3_MESSAGE_ERROR before the header section.
    pub fn finish(&mut self) -> Result<(), MessageError> {
        let is_between_frames = match self.state {
            State::Header => self.header.is_empty(),
            State::Data(left) | State::Skip(left) => left == 0,
            State::Section(..) => false,
        };
        if !is_between_frames {
            return Err(MessageError::connection(
                Code::FrameError,
                "request stream ended inside a frame",
            ));
        }
        match (self.phase, self.role) {
            (Phase::Headers, Role::Server) => Err(MessageError::stream(
                Code::RequestIncomplete,
                "request stream ended before its header section",
            )),
            (Phase::Headers, Role::Client) => Err(MessageError::malformed(
                "response stream ended before its header section",
            )),
            _ => Ok(()),
        }
    }

    /// What to do with the payload of a frame of this type, here.
    fn enter(&self, kind: u64, length: u64) -> Result<State, MessageError> {
        let unexpected = |reason| Err(MessageError::connection(Code::FrameUnexpected, reason));
        match (kind, self.phase) {
            (kind::DATA, Phase::Content | Phase::Tunnel) => Ok(State::Data(length)),
            (kind::DATA, Phase::Headers) => unexpected("DATA before HEADERS"),
            (kind::DATA, Phase::Ended) => unexpected("DATA after trailers"),
            (kind::HEADERS, Phase::Tunnel) => unexpected("HEADERS after CONNECT"),
            (kind::HEADERS, Phase::Ended) => unexpected("HEADERS after trailers"),
            (kind::HEADERS, Phase::Headers | Phase::Content) if length > FIELD_SECTION_ENCODED_BYTES_MAX => {
                Err(MessageError::stream(
                    Code::ExcessiveLoad,
                    "encoded field section is too large",
                ))
            }
            (kind::HEADERS, Phase::Headers | Phase::Content) => Ok(State::Section(Vec::new(), length)),
            // We never send MAX_PUSH_ID, so no push ID is valid (RFC 9114 section 7.2.5).
            (kind::PUSH_PROMISE, _) if self.role == Role::Client => Err(MessageError::connection(
                Code::IdError,
                "PUSH_PROMISE without a permitted push ID",
            )),
            (
                kind::CANCEL_PUSH | kind::SETTINGS | kind::PUSH_PROMISE | kind::GOAWAY | kind::MAX_PUSH_ID,
                _,
            ) => unexpected("frame of the control stream on a request stream"),
            (kind, _) if kind::is_reserved(kind) => unexpected("frame type reserved by HTTP/2"),
            _ => Ok(State::Skip(length)),
        }
    }

    fn take_section(&mut self, list: HeaderList) -> Result<Option<Item>, MessageError> {
        if self.phase == Phase::Content {
            self.phase = Phase::Ended;
            if list.iter().any(|field| field.name().starts_with(':')) {
                return Err(MessageError::malformed("pseudo-header field in trailers"));
            }
            return Ok(Some(Item::Trailers(list)));
        }
        let is_tunnel = match self.role {
            Role::Server => list.only(":method") == Some(b"CONNECT"),
            Role::Client => match response::status_of(&list)? {
                100..=199 => {
                    self.interim_responses += 1;
                    if self.interim_responses > INTERIM_RESPONSES_MAX {
                        return Err(MessageError::stream(
                            Code::ExcessiveLoad,
                            "too many interim responses",
                        ));
                    }
                    return Ok(None);
                }
                status => (200..=299).contains(&status),
            },
        };
        self.phase = if is_tunnel { Phase::Tunnel } else { Phase::Content };
        Ok(Some(Item::Headers(list)))
    }
}

/// Takes from what is `left` as much as `input` has, in bytes.
fn take(left: &mut u64, input: &Bytes) -> usize {
    let available = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
    *left -= available as u64;
    available
}
