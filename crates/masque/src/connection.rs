//! What belongs to the whole HTTP/3 connection: the unidirectional streams (RFC 9114 section 6.2), SETTINGS and
//! GOAWAY.
//!
//! The peer's control stream is read frame by frame, its payloads bounded. The QPACK streams (RFC 9204 section 4.2)
//! carry nothing useful without a dynamic table; they are checked and dropped. Other streams are unknown: the caller
//! stops them.

use std::collections::{BTreeMap, VecDeque};

use bytes::Buf;
use packet::varint;

use crate::{
    Code, ConnectionError, Settings,
    frame::{HeaderReader, frame, kind},
    held_back::HeldBack,
    limits::{HELD_BACK_BYTES_MAX, SETTINGS_BYTES_MAX, UNIDIRECTIONAL_STREAMS_MAX},
};

/// Stream types (RFC 9114 section 6.2, RFC 9204 section 4.2).
const CONTROL: u64 = 0x00;
const PUSH: u64 = 0x01;
const QPACK_ENCODER: u64 = 0x02;
const QPACK_DECODER: u64 = 0x03;

/// Which end of the connection we are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// We opened it and send requests.
    Client,
    /// We accepted it and answer.
    Server,
}

/// Something the peer said about the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Its SETTINGS came: extended CONNECT and datagrams may be used from here on, if it takes them.
    Settings(Settings),
    /// It takes no new work: requests on stream `id` and above were not processed (from a server; RFC 9114 section
    /// 5.2).
    Goaway(u64),
    /// It had more to send than the path let through.
    HeldBack(HeldBack),
}

/// What becomes of a unidirectional stream.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UniDisposition {
    /// Read on.
    Continue,
    /// Nothing of it interests us: send STOP_SENDING with [`Code::StreamCreationError`] and give no more of it.
    Stop,
}

/// State of one unidirectional stream of the peer.
#[derive(Debug)]
enum Uni {
    /// Its type has not come whole.
    Type([u8; varint::LEN_MAX], usize),
    Control(Control),
    QpackEncoder,
    QpackDecoder {
        /// Bytes of the current instruction's integer so far; 0 between instructions.
        continuation: u32,
    },
}

/// Reader of the control stream.
#[derive(Debug, Default)]
struct Control {
    header: HeaderReader,
    /// The frame that is being read: its type and the bytes to come.
    current: Option<(u64, u64)>,
    /// What came of a payload that is kept.
    payload: Vec<u8>,
}

/// Connection-wide state of HTTP/3.
///
/// ```
/// use masque::{Connection, Event, Role, Settings, UniDisposition};
/// let (server, mut client) = (Connection::new(Role::Server), Connection::new(Role::Client));
/// for (stream, bytes) in [3, 7, 11].into_iter().zip(server.opening_streams()) {
///     assert_eq!(client.handle_uni(stream, &bytes), Ok(UniDisposition::Continue));
/// }
/// assert_eq!(client.poll_event(), Some(Event::Settings(Settings::ours(Role::Server))));
/// ```
#[derive(Debug)]
pub struct Connection {
    role: Role,
    streams: BTreeMap<u64, Uni>,
    /// Types of critical streams that the peer has opened, by type.
    opened: [bool; 4],
    peer_settings: Option<Settings>,
    goaway: Option<u64>,
    max_push_id: Option<u64>,
    events: VecDeque<Event>,
}

impl Connection {
    /// The state at the start of a connection; `role` is ours.
    #[must_use]
    pub const fn new(role: Role) -> Self {
        Self {
            role,
            streams: BTreeMap::new(),
            opened: [false; 4],
            peer_settings: None,
            goaway: None,
            max_push_id: None,
            events: VecDeque::new(),
        }
    }

    /// First bytes of our three unidirectional streams: control with SETTINGS, QPACK encoder, QPACK decoder. They
    /// stay open as long as the connection; GOAWAY goes on the first one, nothing more on the others.
    #[must_use]
    pub fn opening_streams(&self) -> [Vec<u8>; 3] {
        let mut control = vec![CONTROL as u8];
        control.extend(frame(kind::SETTINGS, &Settings::ours(self.role).encode()));
        [control, vec![QPACK_ENCODER as u8], vec![QPACK_DECODER as u8]]
    }

    /// Takes the next bytes of the peer's unidirectional stream `stream`, in any chunks.
    ///
    /// # Errors
    /// The peer broke a rule; close the connection.
    pub fn handle_uni(&mut self, stream: u64, mut data: &[u8]) -> Result<UniDisposition, ConnectionError> {
        let mut uni = match self.streams.remove(&stream) {
            Some(uni) => uni,
            None if self.streams.len() < UNIDIRECTIONAL_STREAMS_MAX => Uni::Type([0; varint::LEN_MAX], 0),
            None => {
                return Err(ConnectionError::new(
                    Code::ExcessiveLoad,
                    "too many unidirectional streams",
                ));
            }
        };
        while let Uni::Type(bytes, used) = &mut uni {
            let Some((first, rest)) = data.split_first() else {
                break;
            };
            bytes[*used] = *first;
            *used += 1;
            data = rest;
            if let Some((kind, _)) = varint::read(&bytes[..*used]) {
                match self.open(kind)? {
                    Some(opened) => uni = opened,
                    None => return Ok(UniDisposition::Stop),
                }
            }
        }
        match &mut uni {
            Uni::Type(..) => {}
            Uni::Control(control) => self.read_control(control, data)?,
            Uni::QpackEncoder => check_encoder_stream(data)?,
            Uni::QpackDecoder { continuation } => check_decoder_stream(data, continuation)?,
        }
        self.streams.insert(stream, uni);
        Ok(UniDisposition::Continue)
    }

    /// The peer's unidirectional stream ended, by FIN or RESET_STREAM.
    ///
    /// # Errors
    /// H3_CLOSED_CRITICAL_STREAM for one that must stay open (RFC 9114 section 6.2.1, RFC 9204 section 4.2).
    pub fn handle_uni_closed(&mut self, stream: u64) -> Result<(), ConnectionError> {
        match self.streams.remove(&stream) {
            None | Some(Uni::Type(..)) => Ok(()),
            Some(_) => Err(ConnectionError::new(
                Code::ClosedCriticalStream,
                "critical stream closed",
            )),
        }
    }

    /// The peer's SETTINGS; `None` until they came, and before that neither datagrams nor extended CONNECT may be
    /// sent (RFC 9297 section 2.1.1, RFC 8441 section 3).
    #[must_use]
    pub const fn peer_settings(&self) -> Option<&Settings> {
        self.peer_settings.as_ref()
    }

    /// The next event, oldest first.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// A GOAWAY frame for our control stream: from a server, the first request stream that it will not process; from
    /// a client, 0 (RFC 9114 section 5.2).
    ///
    /// # Panics
    /// When `id` is above [`varint::MAX`].
    #[must_use]
    pub fn goaway_frame(&self, id: u64) -> Vec<u8> {
        let (bytes, used) = varint::encode(id);
        frame(kind::GOAWAY, &bytes[..used])
    }

    /// A HELD_BACK frame for our control stream.
    #[must_use]
    pub fn held_back_frame(&self, held_back: HeldBack) -> Vec<u8> {
        frame(kind::HELD_BACK, &held_back.encode())
    }

    /// State of a stream whose type is known now; `None` for a type that we do not know.
    fn open(&mut self, kind: u64) -> Result<Option<Uni>, ConnectionError> {
        let uni = match kind {
            CONTROL => Uni::Control(Control::default()),
            QPACK_ENCODER => Uni::QpackEncoder,
            QPACK_DECODER => Uni::QpackDecoder { continuation: 0 },
            PUSH if self.role == Role::Server => {
                return Err(ConnectionError::new(
                    Code::StreamCreationError,
                    "push stream from a client",
                ));
            }
            PUSH => {
                return Err(ConnectionError::new(
                    Code::IdError,
                    "push stream without a permitted push ID",
                ));
            }
            _ => return Ok(None),
        };
        if std::mem::replace(&mut self.opened[kind as usize], true) {
            return Err(ConnectionError::new(
                Code::StreamCreationError,
                "second critical stream of one type",
            ));
        }
        Ok(Some(uni))
    }

    fn read_control(&mut self, control: &mut Control, mut data: &[u8]) -> Result<(), ConnectionError> {
        loop {
            let (kind, left) = match control.current {
                Some(current) => current,
                None => {
                    let Some((kind, length)) = control.header.read(&mut data) else {
                        return Ok(());
                    };
                    self.check_control_frame(kind, length)?;
                    control.payload.clear();
                    (kind, length)
                }
            };
            let taken = usize::try_from(left).unwrap_or(usize::MAX).min(data.len());
            if self.keeps(kind) {
                control.payload.extend_from_slice(&data[..taken]);
            }
            data.advance(taken);
            let left = left - taken as u64;
            if left > 0 {
                control.current = Some((kind, left));
                return Ok(());
            }
            control.current = None;
            self.take_control_frame(kind, &control.payload)?;
        }
    }

    /// Refuses a frame by its header: wrong place, wrong time, or too long to keep.
    fn check_control_frame(&self, kind: u64, length: u64) -> Result<(), ConnectionError> {
        let fail = |code, reason| Err(ConnectionError::new(code, reason));
        match (kind, self.peer_settings) {
            (kind::SETTINGS, Some(_)) => fail(Code::FrameUnexpected, "second SETTINGS"),
            (kind::SETTINGS, None) if length > SETTINGS_BYTES_MAX => {
                fail(Code::ExcessiveLoad, "SETTINGS too long")
            }
            (kind::SETTINGS, None) => Ok(()),
            (_, None) => fail(
                Code::MissingSettings,
                "control stream does not begin with SETTINGS",
            ),
            (kind::DATA | kind::HEADERS | kind::PUSH_PROMISE, _) => fail(
                Code::FrameUnexpected,
                "frame of a request stream on the control stream",
            ),
            (kind::MAX_PUSH_ID, _) if self.role == Role::Client => {
                fail(Code::FrameUnexpected, "MAX_PUSH_ID from a server")
            }
            (kind, _) if kind::is_reserved(kind) => {
                fail(Code::FrameUnexpected, "frame type reserved by HTTP/2")
            }
            (kind::HELD_BACK, _) if self.role == Role::Client && length > HELD_BACK_BYTES_MAX => {
                fail(Code::FrameError, "HELD_BACK frame too long")
            }
            (kind, _) if is_identifier(kind) && length > varint::LEN_MAX as u64 => {
                fail(Code::FrameError, "frame is longer than its identifier")
            }
            _ => Ok(()),
        }
    }

    fn take_control_frame(&mut self, kind: u64, payload: &[u8]) -> Result<(), ConnectionError> {
        match kind {
            kind::SETTINGS => {
                let settings = Settings::decode(payload)?;
                self.peer_settings = Some(settings);
                self.events.push_back(Event::Settings(settings));
            }
            kind::GOAWAY => {
                let id = identifier(payload)?;
                // From a server it names a client-initiated bidirectional stream (RFC 9114 section 7.2.6).
                let is_wrong_kind = self.role == Role::Client && id % 4 != 0;
                if is_wrong_kind || self.goaway.is_some_and(|before| id > before) {
                    return Err(ConnectionError::new(
                        Code::IdError,
                        "GOAWAY with an identifier that cannot be",
                    ));
                }
                if self.goaway.replace(id) != Some(id) {
                    self.set_event(Event::Goaway(id));
                }
            }
            kind::MAX_PUSH_ID => {
                let id = identifier(payload)?;
                if self.max_push_id.is_some_and(|before| id < before) {
                    return Err(ConnectionError::new(Code::IdError, "MAX_PUSH_ID decreases"));
                }
                self.max_push_id = Some(id);
            }
            kind::CANCEL_PUSH => {
                identifier(payload)?;
                return Err(ConnectionError::new(Code::IdError, "CANCEL_PUSH without a push"));
            }
            // PATH-3: what servers say; a client has nothing to tell by it.
            kind::HELD_BACK if self.role == Role::Client => {
                let held_back = HeldBack::decode(payload).ok_or(ConnectionError::new(
                    Code::FrameError,
                    "HELD_BACK frame is not two counts",
                ))?;
                self.set_event(Event::HeldBack(held_back));
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether the payload of a control frame is looked at.
    fn keeps(&self, kind: u64) -> bool {
        let is_of_server = kind == kind::HELD_BACK && self.role == Role::Client;
        is_identifier(kind) || kind == kind::SETTINGS || is_of_server
    }

    /// Keeps one event of a kind at most: a peer that says a million things costs nothing.
    fn set_event(&mut self, event: Event) {
        let is_other = |known: &Event| std::mem::discriminant(known) != std::mem::discriminant(&event);
        self.events.retain(is_other);
        self.events.push_back(event);
    }
}

/// Control frames whose payload is one varint.
const fn is_identifier(kind: u64) -> bool {
    matches!(kind, kind::GOAWAY | kind::MAX_PUSH_ID | kind::CANCEL_PUSH)
}

/// A payload that is one varint and nothing else.
fn identifier(payload: &[u8]) -> Result<u64, ConnectionError> {
    match varint::read(payload) {
        Some((id, used)) if used == payload.len() => Ok(id),
        _ => Err(ConnectionError::new(
            Code::FrameError,
            "frame is not one identifier",
        )),
    }
}

/// The peer's encoder has a table of capacity 0: all it may say is that (RFC 9204 section 4.3.1).
fn check_encoder_stream(data: &[u8]) -> Result<(), ConnectionError> {
    const SET_CAPACITY_0: u8 = 0x20;
    if data.iter().all(|byte| *byte == SET_CAPACITY_0) {
        return Ok(());
    }
    Err(ConnectionError::new(
        Code::QpackEncoderStreamError,
        "instruction for a dynamic table that was not offered",
    ))
}

/// We encode nothing that could be acknowledged: all that may come is Stream Cancellation (RFC 9204 section 4.4.2).
fn check_decoder_stream(data: &[u8], continuation: &mut u32) -> Result<(), ConnectionError> {
    /// Bytes of the longest integer after its prefix: 62 bits.
    const CONTINUATION_MAX: u32 = 9;
    for byte in data {
        *continuation = match (*continuation, byte) {
            (0, 0x7f) => 1,
            (0, 0x40..=0x7e) => 0,
            (1..=CONTINUATION_MAX, 0x80..) => *continuation + 1,
            (1..=CONTINUATION_MAX, _) => 0,
            _ => {
                return Err(ConnectionError::new(
                    Code::QpackDecoderStreamError,
                    "acknowledgement of what was never sent",
                ));
            }
        };
    }
    Ok(())
}
