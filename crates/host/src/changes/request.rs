//! What can be asked for: every kind of change that Gramway makes, and its answer. As text it is JSON of at most
//! [`MESSAGE_BYTES_MAX`]; who makes changes for another process looks at each value first ([`Request::check`]).

use std::io;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::check;
use crate::dns::NamesWay;
use crate::error::HostError;
use crate::kill_switch::Exception;
use crate::limits::{MESSAGE_BYTES_MAX, PREFIX_TEXT_BYTES_MAX, PREFIXES_MAX, REASON_BYTES_MAX, REASONS_MAX};
use crate::prefix::Prefix;
use crate::transparent_proxy::TransparentSettings;

// The longest lists fit: in a request two of them together, in an answer one with its reasons.
const _: () = assert!(
    PREFIXES_MAX * PREFIX_TEXT_BYTES_MAX + REASONS_MAX * (REASON_BYTES_MAX + 3) + 256 <= MESSAGE_BYTES_MAX
);

/// A change to the host. All but the first are about the device that the first one made, but for the transparent proxy,
/// which needs none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Request {
    /// Make the TUN device, once.
    OpenDevice {
        name: Option<String>,
        queues: usize,
        offloads: bool,
        /// The machine takes packets of its own addresses from it.
        takes_own: bool,
        /// Packets that wait in the kernel.
        queue_packets: u32,
    },
    SetMtu(u32),
    /// The device is up, and has exactly these.
    SetAddresses(Vec<Prefix>),
    /// Routes of the main table into the device.
    AddRoutes(Vec<Prefix>),
    RemoveRoutes(Vec<Prefix>),
    StartDefaultRoute,
    SetDefaultRoute {
        into_tun: Vec<Prefix>,
        exceptions: Vec<Prefix>,
    },
    /// A route to the server by another interface than the device.
    SetExceptionRoute {
        server: IpAddr,
        index: u32,
        gateway: Option<IpAddr>,
        source: Option<IpAddr>,
    },
    StartForwarding {
        v4: bool,
        v6: bool,
    },
    StartNat(Vec<Prefix>),
    /// What comes in by a router's interfaces goes to a local listener.
    StartTransparentProxy(TransparentSettings),
    StartKillSwitch {
        exceptions: Vec<Exception>,
        is_kept: bool,
    },
    SetKillSwitch {
        exceptions: Vec<Exception>,
        was_through: bool,
    },
    EndKillSwitch {
        as_asked: bool,
    },
    SetNameServers {
        servers: Vec<IpAddr>,
        all_names: bool,
    },
    UnsetNameServers,
    LookAtNameServers,
    /// Everything but the kill switch.
    Undo,
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Answer {
    Done,
    /// The queues of the device come with it.
    Device {
        name: String,
        index: u32,
    },
    Refused(Refused),
    /// What people should hear.
    Warnings(Vec<String>),
    NameServersSet(Vec<NamesWay>),
    /// The kill switch stays; the name servers hold.
    Is(bool),
    /// The kernel's number for why a socket's option was not set.
    OptionRefused(i32),
    Failed(Failure),
}

/// Routes that could not be made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// What they lead to.
    pub destinations: Vec<Prefix>,
    /// Why, a sentence for each of the first `limits::REASONS_MAX`.
    pub reasons: Vec<String>,
}

/// An error as it is told to another process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Failure {
    kind: FailureKind,
    /// A whole sentence.
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FailureKind {
    Permission,
    BadParameter,
    Other,
}

impl Request {
    /// Whether Gramway asks for such a change.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn check(&self) -> io::Result<()> {
        match self {
            Self::SetMtu(bytes) => check::mtu(*bytes),
            Self::SetAddresses(prefixes) => check::addresses(prefixes),
            Self::StartTransparentProxy(settings) => check::transparent_proxy(settings),
            Self::StartNat(prefixes) => check::pools(prefixes),
            Self::AddRoutes(prefixes) | Self::RemoveRoutes(prefixes) => check::routes(prefixes, &[]),
            Self::SetDefaultRoute { into_tun, exceptions } => check::routes(into_tun, exceptions),
            Self::SetExceptionRoute {
                server,
                gateway,
                source,
                ..
            } => check::exception_route(*server, *gateway, *source),
            Self::StartKillSwitch { exceptions, .. } | Self::SetKillSwitch { exceptions, .. } => {
                check::kill_switch(exceptions)
            }
            Self::SetNameServers { servers, .. } => check::name_servers(servers),
            Self::OpenDevice {
                name,
                queues,
                queue_packets,
                ..
            } => check::device(name.as_deref(), *queues, *queue_packets),
            Self::StartDefaultRoute
            | Self::StartForwarding { .. }
            | Self::EndKillSwitch { .. }
            | Self::UnsetNameServers
            | Self::LookAtNameServers
            | Self::Undo => Ok(()),
        }
    }
}

impl Refused {
    pub(super) fn of(refused: impl IntoIterator<Item = (Prefix, HostError)>) -> Self {
        let mut all = Self::default();
        for (destination, error) in refused {
            all.destinations.push(destination);
            if all.reasons.len() < REASONS_MAX {
                all.reasons.push(shortened(error.to_string()));
            }
        }
        all
    }
}

impl Failure {
    pub(crate) fn of(error: &HostError) -> Self {
        let kind = match error.kind() {
            _ if error.is_permission() => FailureKind::Permission,
            io::ErrorKind::InvalidInput => FailureKind::BadParameter,
            _ => FailureKind::Other,
        };
        let text = shortened(error.to_string());
        Self { kind, text }
    }

    pub(crate) fn into_error(self) -> HostError {
        let kind = match self.kind {
            FailureKind::Permission => io::ErrorKind::PermissionDenied,
            FailureKind::BadParameter => io::ErrorKind::InvalidInput,
            FailureKind::Other => io::ErrorKind::Other,
        };
        HostError::sentence(self.text, kind)
    }
}

/// A text of at most [`REASON_BYTES_MAX`] bytes as JSON.
pub(super) fn shortened(mut text: String) -> String {
    let is_long = |text: &str| serde_json::to_vec(text).is_ok_and(|json| json.len() > REASON_BYTES_MAX);
    while is_long(&text) {
        text.truncate(text.floor_char_boundary(text.len() * 3 / 4));
    }
    text
}

/// Writes a message for another process.
pub(crate) fn encode(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let bytes = serde_json::to_vec(message)?;
    if bytes.len() > MESSAGE_BYTES_MAX {
        return Err(too_long());
    }
    Ok(bytes)
}

/// Reads one of another process.
pub(crate) fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> io::Result<T> {
    if bytes.len() > MESSAGE_BYTES_MAX {
        return Err(too_long());
    }
    Ok(serde_json::from_slice(bytes)?)
}

fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the message is too long")
}

/// Reads `input` as a request and as an answer: what is understood is the same after it was written and read again,
/// and what passes the check fits a message.
pub(crate) fn fuzz(input: &[u8]) {
    if let Ok(request) = decode::<Request>(input) {
        let is_fine = request.check().is_ok();
        match encode(&request) {
            Ok(written) => assert_eq!(decode::<Request>(&written).expect("what we write"), request),
            Err(_) => assert!(!is_fine, "what Gramway asks for fits"),
        }
    }
    if let Ok(answer) = decode::<Answer>(input)
        && let Ok(written) = encode(&answer)
    {
        assert_eq!(decode::<Answer>(&written).expect("what we write"), answer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn longest(count: usize) -> Vec<Prefix> {
        let prefix = "2001:db88:1111:2222:3333:4444:5555:6666/128".parse().unwrap();
        vec![prefix; count]
    }

    #[test]
    fn the_longest_messages_fit() {
        let request = Request::SetDefaultRoute {
            into_tun: longest(PREFIXES_MAX - 5),
            exceptions: longest(5),
        };
        request.check().unwrap();
        let written = encode(&request).unwrap();
        assert_eq!(decode::<Request>(&written).unwrap(), request);
        let error = |_| HostError::sentence("\u{7}\"ü".repeat(999), io::ErrorKind::Other);
        let refused = longest(PREFIXES_MAX)
            .into_iter()
            .map(|prefix| (prefix, error(())));
        let answer = Answer::Refused(Refused::of(refused));
        let written = encode(&answer).unwrap();
        assert_eq!(decode::<Answer>(&written).unwrap(), answer);
        let too_many = Request::AddRoutes(longest(PREFIXES_MAX + 1));
        assert!(too_many.check().unwrap_err().to_string().contains("2000"));
    }

    #[test]
    fn an_error_says_the_same_at_the_other_end() {
        for (kind, is_permission) in [
            (io::ErrorKind::PermissionDenied, true),
            (io::ErrorKind::ReadOnlyFilesystem, true),
            (io::ErrorKind::AddrInUse, false),
        ] {
            let error = HostError::new("set the MTU", kind);
            let written = encode(&Failure::of(&error)).unwrap();
            let told = decode::<Failure>(&written).unwrap().into_error();
            assert_eq!(told.to_string(), error.to_string());
            assert_eq!(told.is_permission(), is_permission);
        }
    }

    #[test]
    fn what_is_no_message_is_an_error() {
        for text in [
            "",
            "{",
            "\"format_disk\"",
            "{\"set_mtu\":-1}",
            "{\"set_mtu\":1280,\"undo\":null}",
            "{\"start_nat\":[\"10.0.0.0/33\"]}",
            "{\"end_kill_switch\":{\"as_asked\":true,\"more\":1}}",
        ] {
            assert!(decode::<Request>(text.as_bytes()).is_err(), "{text}");
        }
        let nested = "[".repeat(MESSAGE_BYTES_MAX);
        assert!(decode::<Request>(nested.as_bytes()).is_err());
        assert!(decode::<Request>(&vec![b' '; MESSAGE_BYTES_MAX + 1]).is_err());
    }
}
