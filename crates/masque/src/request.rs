//! Requests: building CONNECT, CONNECT-UDP and other extended CONNECTs, and parsing what a client sent, including
//! CONNECT-IP.
//!
//! A request that breaks RFC 9114 sections 4.2 to 4.4 is malformed and costs its stream. One that is well-formed but
//! not ours is [`Request::Other`]. An invalid target is reported inside the request, so that the caller checks the
//! credential first and strangers learn nothing.

use std::fmt;

use crate::repair::RepairOffer;
use crate::{HeaderList, MessageError, Target, TargetError, bind, ip};

pub use crate::context_field::{SPLIT_FIELD, split_context};

/// Path prefix of the default template (RFC 9298 section 3).
pub(crate) const WELL_KNOWN: &str = "/.well-known/masque/udp/";

/// What a client asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// UDP forward (RFC 9298 section 3.4).
    ConnectUdp(ConnectUdp),
    /// IP packets (RFC 9484 section 4.4).
    ConnectIp(ip::ConnectIp),
    /// TCP forward (RFC 9114 section 4.4); the credential comes in `Proxy-Authorization`.
    Connect {
        /// Where to, from `:authority`.
        target: Result<Target, TargetError>,
        /// Who asks.
        credential: Credential,
    },
    /// An extended CONNECT (RFC 9220 section 3) for something else: whether there is such a service, the caller knows.
    Extended(Extended),
    /// Well-formed and none of ours: 404.
    Other,
}

/// A CONNECT-UDP request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectUdp {
    /// Where to, from the path.
    pub target: Result<Target, TargetError>,
    /// Who asks, from `Authorization`; it counts with [`PathKind::WellKnown`].
    pub credential: Credential,
    /// Which template the path follows.
    pub path: PathKind,
    /// No target is wanted, but a bound socket ([`bind`]).
    pub bind: bool,
    /// The context ID that a Gramway client offers for split payloads (SPLIT-1).
    pub split: Option<u64>,
    /// The repair that a Gramway client offers (REPAIR-1).
    pub repair: Option<RepairOffer>,
    /// `capsule-protocol: ?1` was there (RFC 9297 section 3.4). CONNECT-UDP implies the protocol either way.
    pub capsule_protocol: bool,
}

/// An extended CONNECT whose protocol is not CONNECT-UDP or CONNECT-IP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extended {
    /// `:protocol`
    pub protocol: String,
    /// `:path`
    pub path: String,
    /// Who asks, from `Authorization`.
    pub credential: Credential,
}

/// Which URI template a CONNECT-UDP or CONNECT-IP request follows.
#[derive(Clone, PartialEq, Eq)]
pub enum PathKind {
    /// `/.well-known/masque/udp/{target_host}/{target_port}/` or `/.well-known/masque/ip/{target}/{ipproto}/`
    WellKnown,
    /// `/{segment}/` and the same two variables: the segment may be a credential, so compare it in constant time.
    Segment(String),
}

/// What stands in the credential field.
#[derive(Clone, PartialEq, Eq)]
pub enum Credential {
    /// No such field.
    None,
    /// `Bearer TOKEN`: the token as it stands, not judged.
    Bearer(String),
    /// Another scheme, several fields, or no token.
    Malformed,
}

// Neither prints what could be a secret.
impl fmt::Debug for PathKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(if *self == Self::WellKnown {
            "WellKnown"
        } else {
            "Segment(secret)"
        })
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::None => "None",
            Self::Bearer(_) => "Bearer(secret)",
            Self::Malformed => "Malformed",
        })
    }
}

/// A CONNECT-UDP request to the proxy at `authority` on the default template (RFC 9298 section 3.4); `split` offers a
/// context ID.
#[must_use]
pub fn connect_udp(authority: &str, target: &Target, bearer: &str, split: Option<u64>) -> HeaderList {
    let mut list = HeaderList::new()
        .with(":method", "CONNECT")
        .with(":protocol", "connect-udp")
        .with(":scheme", "https")
        .with(":path", format!("{WELL_KNOWN}{}/", target.path()))
        .with(":authority", authority)
        .with("capsule-protocol", "?1")
        .with("authorization", format!("Bearer {bearer}"));
    if let Some(context_id) = split {
        list.push(SPLIT_FIELD, context_id.to_string());
    }
    list
}

/// A CONNECT request (RFC 9114 section 4.4: `:method` and `:authority` only).
#[must_use]
pub fn connect(target: &Target, bearer: &str) -> HeaderList {
    HeaderList::new()
        .with(":method", "CONNECT")
        .with(":authority", target.to_string())
        .with("proxy-authorization", format!("Bearer {bearer}"))
}

/// An extended CONNECT for another `protocol` at `path`, to the server at `authority` (RFC 9220 section 3).
#[must_use]
pub fn extended_connect(authority: &str, protocol: &str, path: &str, bearer: &str) -> HeaderList {
    HeaderList::new()
        .with(":method", "CONNECT")
        .with(":protocol", protocol)
        .with(":scheme", "https")
        .with(":path", path)
        .with(":authority", authority)
        .with("authorization", format!("Bearer {bearer}"))
}

/// Judges the header list of a request.
///
/// ```
/// use masque::request::{self, Credential, Request};
/// let target: masque::Target = "example.com:22".parse().unwrap();
/// let list = request::connect(&target, "token");
/// let credential = Credential::Bearer("token".to_owned());
/// assert_eq!(request::classify(&list), Ok(Request::Connect { target: Ok(target), credential }));
/// ```
///
/// # Errors
/// H3_MESSAGE_ERROR for the stream where the list breaks RFC 9114 sections 4.2 to 4.4.
pub fn classify(list: &HeaderList) -> Result<Request, MessageError> {
    let pseudo = Pseudo::of(list)?;
    check_fields(list)?;
    let method = pseudo
        .method
        .ok_or(MessageError::malformed("request without :method"))?;
    if method != "CONNECT" {
        pseudo.check_ordinary()?;
        check_host(list, pseudo.authority)?;
        return Ok(Request::Other);
    }
    let Some(protocol) = pseudo.protocol else {
        let (Some(authority), None, None) = (pseudo.authority, pseudo.scheme, pseudo.path) else {
            return Err(MessageError::malformed(
                "CONNECT needs :authority and must not have :scheme and :path",
            ));
        };
        return Ok(Request::Connect {
            target: authority.parse(),
            credential: credential(list, "proxy-authorization"),
        });
    };
    let (Some(scheme), Some(path), Some(authority)) = (pseudo.scheme, pseudo.path, pseudo.authority) else {
        return Err(MessageError::malformed(
            "extended CONNECT needs :scheme, :path and :authority",
        ));
    };
    if scheme.is_empty() || path.is_empty() || authority.is_empty() {
        return Err(MessageError::malformed(
            "extended CONNECT with an empty :scheme, :path or :authority",
        ));
    }
    check_host(list, Some(authority))?;
    if scheme != "https" {
        return Ok(Request::Other);
    }
    match protocol {
        "connect-ip" => Ok(ip::judge(list, path).map_or(Request::Other, Request::ConnectIp)),
        "connect-udp" => Ok(judge_udp(list, path)),
        _ => Ok(Request::Extended(Extended {
            protocol: protocol.to_owned(),
            path: path.to_owned(),
            credential: credential(list, "authorization"),
        })),
    }
}

fn judge_udp(list: &HeaderList, path: &str) -> Request {
    let Some((path, host, port)) = split_path(path, WELL_KNOWN) else {
        return Request::Other;
    };
    Request::ConnectUdp(ConnectUdp {
        target: Target::from_path(host, port),
        credential: credential(list, "authorization"),
        path,
        bind: bind::is_any(host) && bind::is_any(port) && bind::is_bind(list),
        split: split_context(list),
        repair: RepairOffer::of(list),
        capsule_protocol: is_capsule_protocol(list),
    })
}

/// Whether `capsule-protocol` is true; parameters are ignored (RFC 9297 section 3.4).
pub(crate) fn is_capsule_protocol(list: &HeaderList) -> bool {
    is_true(list, "capsule-protocol")
}

/// Whether a field is the structured boolean true (RFC 8941 section 3.3.6); parameters are ignored.
pub(crate) fn is_true(list: &HeaderList, name: &str) -> bool {
    list.only(name).is_some_and(|value| {
        value
            .strip_prefix(b"?1")
            .is_some_and(|rest| matches!(rest.first(), None | Some(b' ' | b';')))
    })
}

/// The pseudo-header fields of a request (RFC 9114 section 4.3.1, RFC 9220 section 3).
#[derive(Default)]
struct Pseudo<'a> {
    method: Option<&'a str>,
    scheme: Option<&'a str>,
    authority: Option<&'a str>,
    path: Option<&'a str>,
    protocol: Option<&'a str>,
}

impl<'a> Pseudo<'a> {
    fn of(list: &'a HeaderList) -> Result<Self, MessageError> {
        let mut pseudo = Self::default();
        for field in list.iter().take_while(|field| field.name().starts_with(':')) {
            let slot = match field.name() {
                ":method" => &mut pseudo.method,
                ":scheme" => &mut pseudo.scheme,
                ":authority" => &mut pseudo.authority,
                ":path" => &mut pseudo.path,
                ":protocol" => &mut pseudo.protocol,
                _ => {
                    return Err(MessageError::malformed(
                        "unknown pseudo-header field in a request",
                    ));
                }
            };
            let value = std::str::from_utf8(field.value())
                .map_err(|_| MessageError::malformed("pseudo-header field is not text"))?;
            if slot.replace(value).is_some() {
                return Err(MessageError::malformed("pseudo-header field given twice"));
            }
        }
        Ok(pseudo)
    }

    /// Rules for every method but CONNECT.
    fn check_ordinary(&self) -> Result<(), MessageError> {
        if self.protocol.is_some() {
            return Err(MessageError::malformed(
                ":protocol with a method other than CONNECT",
            ));
        }
        let (Some(scheme), Some(path)) = (self.scheme, self.path) else {
            return Err(MessageError::malformed("request without :scheme or :path"));
        };
        let is_http = matches!(scheme, "http" | "https");
        if is_http && !path.starts_with('/') && !(path == "*" && self.method == Some("OPTIONS")) {
            return Err(MessageError::malformed(":path does not start with a slash"));
        }
        Ok(())
    }
}

/// Rules for the fields after the pseudo-header fields, in requests and responses (RFC 9114 sections 4.2 and 4.3).
pub(crate) fn check_fields(list: &HeaderList) -> Result<(), MessageError> {
    for field in list.iter().skip_while(|field| field.name().starts_with(':')) {
        match field.name() {
            name if name.starts_with(':') => {
                return Err(MessageError::malformed(
                    "pseudo-header field after an ordinary field",
                ));
            }
            "connection" | "keep-alive" | "proxy-connection" | "transfer-encoding" | "upgrade" => {
                return Err(MessageError::malformed("connection-specific field"));
            }
            "te" if field.value() != b"trailers" => {
                return Err(MessageError::malformed("te field other than trailers"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// RFC 9114 section 4.3.1: `:authority` or `host` is there, not empty, and both say the same.
fn check_host(list: &HeaderList, authority: Option<&str>) -> Result<(), MessageError> {
    let mut names = authority
        .map(str::as_bytes)
        .into_iter()
        .chain(list.values("host"));
    match names.next() {
        Some(first) if !first.is_empty() && names.all(|name| name == first) => Ok(()),
        _ => Err(MessageError::malformed(
            ":authority and host are missing, empty or differ",
        )),
    }
}

/// The template that a path follows, and the two variables at its end, not decoded.
pub(crate) fn split_path<'a>(path: &'a str, well_known: &str) -> Option<(PathKind, &'a str, &'a str)> {
    let (kind, rest) = match path.strip_prefix(well_known) {
        Some(rest) => (PathKind::WellKnown, rest),
        None => {
            let (segment, rest) = path.strip_prefix('/')?.split_once('/')?;
            (PathKind::Segment(segment.to_owned()), rest)
        }
    };
    let (first, second) = rest.strip_suffix('/')?.split_once('/')?;
    let is_one_segment = |text: &str| !text.is_empty() && !text.contains(['/', '?', '#']);
    let segment_fits = !matches!(&kind, PathKind::Segment(segment) if !is_one_segment(segment));
    (segment_fits && is_one_segment(first) && is_one_segment(second)).then_some((kind, first, second))
}

/// RFC 6750 section 2.1; the scheme's case does not matter (RFC 9110 section 11.1).
pub(crate) fn credential(list: &HeaderList, name: &str) -> Credential {
    if list.values(name).next().is_none() {
        return Credential::None;
    }
    let token = list.only(name).and_then(|value| {
        let (scheme, token) = std::str::from_utf8(value).ok()?.split_once(' ')?;
        let token = token.trim_matches(' ');
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
        (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && token.bytes().all(is_token))
            .then_some(token)
    });
    token.map_or(Credential::Malformed, |token| {
        Credential::Bearer(token.to_owned())
    })
}
