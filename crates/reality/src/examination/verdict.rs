//! Whether a site can be a cover, by what its visits saw: obstacles, warnings, and the profile to imitate (QR1-27).

use std::fmt;
use std::time::Duration;

use super::observation::{End, Observation};
use crate::client_hello::{X25519, X25519MLKEM768};
use crate::limits;

/// Suites of TLS 1.3 that a server of ours has.
const SUITES: [u16; 3] = [0x1301, 0x1302, 0x1303];

/// Extensions of a ServerHello of ours: key_share, and supported_versions behind it or before it.
const KEY_SHARE_FIRST: [u16; 2] = [51, 43];
const VERSION_FIRST: [u16; 2] = [43, 51];

/// A close for the TLS alert `no_application_protocol` (RFC 9001 section 4.8, RFC 7301 section 3.2).
const NO_APPLICATION_PROTOCOL: u64 = 0x100 + 120;

/// What a server in front of this cover imitates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Cipher suite.
    pub suite: u16,
    /// Group that it chooses where X25519MLKEM768 and X25519 are offered.
    pub group: u16,
    /// Bytes of its connection IDs, 8 to 20.
    pub id_bytes: u8,
    /// Bytes of its Certificate message.
    pub certificate_bytes: usize,
    /// Its ServerHello has `supported_versions` before `key_share`.
    pub is_version_first: bool,
    /// How long after a hello its answer is here, the way to it and back included: strangers wait as long (QR1-29).
    pub answer_delay: Duration,
}

/// Why a site cannot be a cover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// Nobody answered.
    Unreachable,
    /// It speaks another version of QUIC.
    OtherVersions,
    /// It has no HTTP/3.
    NoHttp3,
    /// It closed the connection.
    Closed(Option<u64>),
    /// TLS failed.
    Failed(String),
    /// It stopped in the middle of a handshake.
    Incomplete,
    /// It always has clients prove their address.
    AlwaysRetry,
    /// It asks for another hello than ours.
    HelloRetry,
    /// Its connection IDs have so many bytes.
    IdBytes(usize),
    /// It sends clients elsewhere.
    PreferredAddress,
    /// Its Certificate message has so many bytes.
    CertificateBytes(usize),
    /// It chose this suite.
    Suite(u16),
    /// It chose this group.
    Group(Option<u16>),
}

impl fmt::Display for Obstacle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable => formatter.write_str("nobody answers over QUIC (UDP)"),
            Self::OtherVersions => formatter.write_str("it does not speak version 1 of QUIC"),
            Self::NoHttp3 => formatter.write_str("it has no HTTP/3"),
            Self::Closed(Some(code)) => write!(formatter, "it ends the handshake with error {code:#x}"),
            Self::Closed(None) => formatter.write_str("it ends the handshake in a way of its own"),
            Self::Failed(reason) => write!(formatter, "the TLS handshake fails: {reason}"),
            Self::Incomplete => formatter.write_str("it does not go on with the handshake"),
            Self::AlwaysRetry => formatter
                .write_str("it has every client prove its address (Retry), and a server of ours has none"),
            Self::HelloRetry => {
                formatter.write_str("it asks for another hello (HelloRetryRequest): it has no X25519")
            }
            Self::IdBytes(bytes) => {
                write!(
                    formatter,
                    "its connection IDs have {bytes} bytes; a server of ours needs 8 to 20"
                )
            }
            Self::CertificateBytes(bytes) => write!(
                formatter,
                "its Certificate message has {bytes} bytes; one of ours needs {} to {}",
                limits::COVER_CERTIFICATE_BYTES.start(),
                limits::COVER_CERTIFICATE_BYTES.end()
            ),
            Self::PreferredAddress => {
                formatter.write_str("it sends clients to an address of its own (preferred_address)")
            }
            Self::Suite(suite) => write!(
                formatter,
                "it chose cipher suite {suite:#06x}, which is not of ours"
            ),
            Self::Group(Some(group)) => write!(
                formatter,
                "it chose key exchange {group:#06x}, which is not of ours"
            ),
            Self::Group(None) => formatter.write_str("its answer names no key exchange"),
        }
    }
}

/// What is odd about a cover, or will be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// Round trip to it.
    FarAway(Duration),
    /// Why its certificate is not valid for the name.
    Chain(String),
    /// It has no X25519MLKEM768.
    NoHybrid,
    /// A client with X25519 alone is answered in another way.
    ClassicFails,
    /// Types of the extensions in its ServerHello: others than in ours.
    Extensions(Vec<u16>),
    /// It compressed its certificate.
    CompressedCertificate,
    /// Not all visits saw the same.
    Unsteady,
    /// It had some clients prove their address.
    SometimesRetry,
    /// It tells no versions.
    NoVersionNegotiation,
}

impl fmt::Display for Warning {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FarAway(time) => write!(
                formatter,
                "it is {} ms away: strangers wait that much longer than at an address of its own",
                time.as_millis()
            ),
            Self::Chain(reason) => write!(formatter, "its certificate is not valid for the name: {reason}"),
            Self::NoHybrid => {
                formatter.write_str("it has no X25519MLKEM768, which by now most large sites have")
            }
            Self::ClassicFails => {
                formatter.write_str("it does not answer a client that has X25519 alone with X25519")
            }
            Self::Extensions(types) => write!(
                formatter,
                "its ServerHello has the extensions {types:?}, where ours has {KEY_SHARE_FIRST:?} in either order: whoever \
                 watches a client can tell"
            ),
            Self::CompressedCertificate => {
                formatter.write_str("it compresses its certificate: the length may change with each")
            }
            Self::Unsteady => formatter
                .write_str("its answers differ from visit to visit: several machines behind one name?"),
            Self::SometimesRetry => formatter.write_str("it had some visits prove their address (Retry)"),
            Self::NoVersionNegotiation => {
                formatter.write_str("it does not answer unknown versions, so the round trip is not known")
            }
        }
    }
}

/// What there is to say about a site.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// Why it cannot be a cover; empty where it can.
    pub obstacles: Vec<Obstacle>,
    /// What to think about.
    pub warnings: Vec<Warning>,
    /// What to imitate, where it can be a cover.
    pub profile: Option<Profile>,
}

impl Verdict {
    /// Whether the site is down, or the way to it lossy, so that its visits say nothing about what it is.
    #[must_use]
    pub fn is_out_of_reach(&self) -> bool {
        matches!(self.obstacles[..], [Obstacle::Unreachable | Obstacle::Incomplete])
    }

    /// The obstacles, for people.
    #[must_use]
    pub fn reasons(&self) -> String {
        let texts: Vec<_> = self.obstacles.iter().map(ToString::to_string).collect();
        texts.join("; ")
    }
}

/// Judges visits with X25519MLKEM768 and X25519, and one with X25519 alone. `round_trip` is to the site.
#[must_use]
pub fn judge(visits: &[Observation], classic: Option<&Observation>, round_trip: Option<Duration>) -> Verdict {
    let Some(visit) = visits
        .iter()
        .find(|visit| visit.end == End::Complete)
        .or(visits.last())
    else {
        return Verdict {
            obstacles: vec![Obstacle::Unreachable],
            warnings: Vec::new(),
            profile: None,
        };
    };
    let mut obstacles: Vec<Obstacle> = of_the_end(&visit.end).into_iter().collect();
    if visits.iter().all(|visit| visit.is_retry) {
        obstacles.push(Obstacle::AlwaysRetry);
    }
    if visit.end == End::Complete {
        obstacles.extend(of_the_handshake(visit));
    }
    let profile = obstacles.is_empty().then(|| profile(visit, visits)).flatten();
    Verdict {
        warnings: warnings(visit, visits, classic, round_trip),
        obstacles,
        profile,
    }
}

fn of_the_end(end: &End) -> Option<Obstacle> {
    Some(match end {
        End::Complete => return None,
        End::Silent => Obstacle::Unreachable,
        End::OtherVersions => Obstacle::OtherVersions,
        End::HelloRetry => Obstacle::HelloRetry,
        End::Closed(Some(NO_APPLICATION_PROTOCOL)) => Obstacle::NoHttp3,
        End::Closed(code) => Obstacle::Closed(*code),
        End::Failed(reason) => Obstacle::Failed(reason.clone()),
        End::Incomplete => Obstacle::Incomplete,
    })
}

fn of_the_handshake(visit: &Observation) -> Vec<Obstacle> {
    let mut found = Vec::new();
    if let Some(bytes) = visit
        .id_bytes
        .filter(|bytes| !limits::COVER_ID_BYTES.contains(bytes))
    {
        found.push(Obstacle::IdBytes(bytes));
    }
    if let Some(certificate) = visit
        .certificate
        .filter(|certificate| !limits::COVER_CERTIFICATE_BYTES.contains(&certificate.bytes))
    {
        found.push(Obstacle::CertificateBytes(certificate.bytes));
    }
    if visit.has_preferred_address {
        found.push(Obstacle::PreferredAddress);
    }
    if let Some(hello) = &visit.hello {
        if !SUITES.contains(&hello.suite) {
            found.push(Obstacle::Suite(hello.suite));
        }
        if !hello
            .group
            .is_some_and(|group| [X25519MLKEM768, X25519].contains(&group))
        {
            found.push(Obstacle::Group(hello.group));
        }
    }
    found
}

fn profile(visit: &Observation, visits: &[Observation]) -> Option<Profile> {
    let hello = visit.hello.as_ref()?;
    Some(Profile {
        suite: hello.suite,
        group: hello.group?,
        id_bytes: u8::try_from(visit.id_bytes?).ok()?,
        certificate_bytes: visit.certificate?.bytes,
        is_version_first: hello.extensions == VERSION_FIRST,
        answer_delay: median(visits.iter().filter_map(|visit| visit.answer))?,
    })
}

fn warnings(
    visit: &Observation,
    visits: &[Observation],
    classic: Option<&Observation>,
    round_trip: Option<Duration>,
) -> Vec<Warning> {
    let mut found = Vec::new();
    let Some(hello) = visit.hello.as_ref().filter(|_| visit.end == End::Complete) else {
        return found;
    };
    match round_trip {
        Some(time) if time > limits::COVER_ROUND_TRIP_FAR => found.push(Warning::FarAway(time)),
        Some(_) => {}
        None => found.push(Warning::NoVersionNegotiation),
    }
    if visit
        .certificate
        .is_some_and(|certificate| certificate.is_compressed)
    {
        found.push(Warning::CompressedCertificate);
    }
    if let Some(Err(reason)) = &visit.chain {
        found.push(Warning::Chain(reason.clone()));
    }
    if hello.group != Some(X25519MLKEM768) {
        found.push(Warning::NoHybrid);
    }
    let group = classic.and_then(|visit| visit.hello.as_ref()?.group);
    if classic.is_some() && group != Some(X25519) {
        found.push(Warning::ClassicFails);
    }
    if hello.extensions != KEY_SHARE_FIRST && hello.extensions != VERSION_FIRST {
        found.push(Warning::Extensions(hello.extensions.clone()));
    }
    if !visits.iter().all(|other| looks_like(visit, other)) {
        found.push(Warning::Unsteady);
    }
    if visits.iter().any(|visit| visit.is_retry) && !visits.iter().all(|visit| visit.is_retry) {
        found.push(Warning::SometimesRetry);
    }
    found
}

/// Whether both saw what a server imitates; the length of a signature may differ.
fn looks_like(one: &Observation, other: &Observation) -> bool {
    one.end == other.end
        && one.id_bytes == other.id_bytes
        && one.certificate == other.certificate
        && one.hello == other.hello
}

/// The middle one; of two the smaller.
#[must_use]
pub fn median(times: impl Iterator<Item = Duration>) -> Option<Duration> {
    let mut times: Vec<_> = times.collect();
    times.sort_unstable();
    times.get(times.len().saturating_sub(1) / 2).copied()
}

#[cfg(test)]
mod tests;
