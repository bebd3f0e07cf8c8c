//! The payload of SETTINGS (RFC 9114 section 7.2.4, RFC 9204 section 5, RFC 9220 section 5, RFC 9297 section 5.1).

use packet::varint;

use crate::{Code, ConnectionError, Role, limits};

const QPACK_MAX_TABLE_CAPACITY: u64 = 0x01;
const MAX_FIELD_SECTION_SIZE: u64 = 0x06;
const QPACK_BLOCKED_STREAMS: u64 = 0x07;
const ENABLE_CONNECT_PROTOCOL: u64 = 0x08;
const H3_DATAGRAM: u64 = 0x33;

/// What one side announced. What is not announced has the specification's default, `Settings::default()`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Settings {
    /// SETTINGS_H3_DATAGRAM: it takes HTTP Datagrams (RFC 9297). It also needs a non-zero `max_datagram_frame_size`
    /// transport parameter, which the QUIC layer knows.
    pub h3_datagram: bool,
    /// SETTINGS_ENABLE_CONNECT_PROTOCOL: the server takes extended CONNECT (RFC 9220).
    pub extended_connect: bool,
    /// SETTINGS_MAX_FIELD_SECTION_SIZE in bytes (see [`crate::HeaderList::size`]); `None` = unlimited.
    pub max_field_section_size: Option<u64>,
}

impl Settings {
    /// What this crate announces in `role`.
    #[must_use]
    pub const fn ours(role: Role) -> Self {
        Self {
            h3_datagram: true,
            extended_connect: matches!(role, Role::Server),
            max_field_section_size: Some(limits::FIELD_SECTION_BYTES_MAX),
        }
    }

    /// The payload of a SETTINGS frame. QPACK gets no dynamic table.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut put = |id, value| {
            varint::write(id, &mut out);
            varint::write(value, &mut out);
        };
        put(QPACK_MAX_TABLE_CAPACITY, 0);
        put(QPACK_BLOCKED_STREAMS, 0);
        if let Some(size) = self.max_field_section_size {
            put(MAX_FIELD_SECTION_SIZE, size);
        }
        if self.extended_connect {
            put(ENABLE_CONNECT_PROTOCOL, 1);
        }
        if self.h3_datagram {
            put(H3_DATAGRAM, 1);
        }
        out
    }

    /// Reads the whole payload of a SETTINGS frame.
    pub(crate) fn decode(mut payload: &[u8]) -> Result<Self, ConnectionError> {
        let mut settings = Self::default();
        let mut seen = std::collections::BTreeSet::new();
        while !payload.is_empty() {
            let (id, value) = take_pair(&mut payload)?;
            if !seen.insert(id) {
                return Err(ConnectionError::new(Code::SettingsError, "setting given twice"));
            }
            match id {
                // RFC 9114 section 7.2.4.1: HTTP/2 settings without a counterpart.
                0x02..=0x05 => {
                    return Err(ConnectionError::new(
                        Code::SettingsError,
                        "setting reserved by HTTP/2",
                    ));
                }
                MAX_FIELD_SECTION_SIZE => settings.max_field_section_size = Some(value),
                ENABLE_CONNECT_PROTOCOL => settings.extended_connect = boolean(value)?,
                H3_DATAGRAM => settings.h3_datagram = boolean(value)?,
                _ => {}
            }
        }
        Ok(settings)
    }
}

fn take_pair(payload: &mut &[u8]) -> Result<(u64, u64), ConnectionError> {
    let mut take = || {
        let (value, used) = varint::read(payload)?;
        *payload = &payload[used..];
        Some(value)
    };
    let pair = take().and_then(|id| Some((id, take()?)));
    pair.ok_or(ConnectionError::new(
        Code::FrameError,
        "SETTINGS frame ends inside a setting",
    ))
}

fn boolean(value: u64) -> Result<bool, ConnectionError> {
    match value {
        0 | 1 => Ok(value == 1),
        _ => Err(ConnectionError::new(
            Code::SettingsError,
            "boolean setting is neither 0 nor 1",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_settings_survive_a_round_trip_in_both_roles() {
        for role in [Role::Client, Role::Server] {
            let settings = Settings::ours(role);
            assert_eq!(Settings::decode(&settings.encode()), Ok(settings));
        }
    }

    #[test]
    fn settings_that_break_a_rule_are_refused() {
        for (payload, code) in [
            (&[0x33, 1, 0x33, 1][..], Code::SettingsError),
            (&[0x33, 2], Code::SettingsError),
            (&[0x08, 2], Code::SettingsError),
            (&[0x02, 0], Code::SettingsError),
            (&[0x05, 0], Code::SettingsError),
            (&[0x33], Code::FrameError),
            (&[0x33, 0x40], Code::FrameError),
        ] {
            assert_eq!(Settings::decode(payload).unwrap_err().code, code, "{payload:?}");
        }
    }

    #[test]
    fn unknown_settings_are_ignored() {
        assert_eq!(Settings::decode(&[0x21, 7, 0x00, 1]), Ok(Settings::default()));
    }
}
