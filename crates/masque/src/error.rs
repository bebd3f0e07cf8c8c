//! Error codes of HTTP/3 and how far each failure reaches: one request, or the whole connection.

use std::fmt;

/// An application error code, as it goes into CONNECTION_CLOSE, RESET_STREAM and STOP_SENDING.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// H3_DATAGRAM_ERROR (RFC 9297 section 5.2).
    DatagramError = 0x33,
    /// H3_NO_ERROR (RFC 9114 section 8.1, as the codes below).
    NoError = 0x100,
    /// H3_GENERAL_PROTOCOL_ERROR.
    GeneralProtocolError = 0x101,
    /// H3_INTERNAL_ERROR.
    InternalError = 0x102,
    /// H3_STREAM_CREATION_ERROR.
    StreamCreationError = 0x103,
    /// H3_CLOSED_CRITICAL_STREAM.
    ClosedCriticalStream = 0x104,
    /// H3_FRAME_UNEXPECTED.
    FrameUnexpected = 0x105,
    /// H3_FRAME_ERROR.
    FrameError = 0x106,
    /// H3_EXCESSIVE_LOAD.
    ExcessiveLoad = 0x107,
    /// H3_ID_ERROR.
    IdError = 0x108,
    /// H3_SETTINGS_ERROR.
    SettingsError = 0x109,
    /// H3_MISSING_SETTINGS.
    MissingSettings = 0x10a,
    /// H3_REQUEST_REJECTED.
    RequestRejected = 0x10b,
    /// H3_REQUEST_CANCELLED.
    RequestCancelled = 0x10c,
    /// H3_REQUEST_INCOMPLETE.
    RequestIncomplete = 0x10d,
    /// H3_MESSAGE_ERROR.
    MessageError = 0x10e,
    /// H3_CONNECT_ERROR.
    ConnectError = 0x10f,
    /// H3_VERSION_FALLBACK.
    VersionFallback = 0x110,
    /// QPACK_DECOMPRESSION_FAILED (RFC 9204 section 6, as the codes below).
    QpackDecompressionFailed = 0x200,
    /// QPACK_ENCODER_STREAM_ERROR.
    QpackEncoderStreamError = 0x201,
    /// QPACK_DECODER_STREAM_ERROR.
    QpackDecoderStreamError = 0x202,
}

impl Code {
    /// The number on the wire.
    #[must_use]
    pub const fn value(self) -> u64 {
        self as u64
    }
}

impl fmt::Display for Code {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{self:?} ({:#x})", self.value())
    }
}

/// The peer broke a rule that ends the connection: close it with `code`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{reason}: {code}")]
pub struct ConnectionError {
    /// Code for CONNECTION_CLOSE.
    pub code: Code,
    /// What the peer did, for logs and the reason phrase.
    pub reason: &'static str,
}

impl ConnectionError {
    pub(crate) const fn new(code: Code, reason: &'static str) -> Self {
        Self { code, reason }
    }
}

/// A message on a request stream cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// Only this request fails: reset and stop its stream with `code`. A server may answer first where the failure
    /// allows it: 431 for [`Code::ExcessiveLoad`], 400 for [`Code::MessageError`].
    #[error("{reason}: {code}")]
    Stream {
        /// Code for RESET_STREAM and STOP_SENDING.
        code: Code,
        /// What is wrong with the message.
        reason: &'static str,
    },
    /// The connection fails with it.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
}

impl MessageError {
    pub(crate) const fn stream(code: Code, reason: &'static str) -> Self {
        Self::Stream { code, reason }
    }

    /// A malformed message (RFC 9114 section 4.1.2).
    pub(crate) const fn malformed(reason: &'static str) -> Self {
        Self::stream(Code::MessageError, reason)
    }

    pub(crate) const fn connection(code: Code, reason: &'static str) -> Self {
        Self::Connection(ConnectionError::new(code, reason))
    }

    /// The code to send, whichever it ends.
    #[must_use]
    pub const fn code(&self) -> Code {
        match self {
            Self::Stream { code, .. } => *code,
            Self::Connection(error) => error.code,
        }
    }
}
