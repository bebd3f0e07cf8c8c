//! Examines a web site that is to be a cover, over the network: the decisions are those of [`reality::examination`].
//!
//! It asks for versions a few times, for the round trip, then visits the site a few times as clients would, and once
//! as a client without X25519MLKEM768. Each visit has a socket of its own. It blocks for some round trips; where nobody
//! answers, for eight seconds at each address, and begins with no other after `limits::COVER_EXAMINATION_TIME`.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

pub use reality::examination::verdict::{Obstacle, Profile, Verdict, Warning};
pub use reality::examination::{CertificateMessage, End, Groups, Observation, Roots, ServerHello};
use reality::examination::{verdict, version_probe, visit::Visit};

use crate::handle::Failure;
use crate::{limits, names};

/// What is examined.
#[derive(Clone, Debug)]
pub struct Site {
    /// Name or address.
    pub host: String,
    /// UDP port.
    pub port: u16,
    /// The name to ask for.
    pub name: String,
    /// Whose certificates are valid.
    pub roots: Roots,
}

/// What was found.
#[derive(Clone, Debug)]
pub struct Findings {
    /// Where.
    pub address: SocketAddr,
    /// The versions of QUIC that the site lists, if it answers unknown ones.
    pub versions: Option<Vec<u32>>,
    /// The way to the site and back: the median of several.
    pub round_trip: Option<Duration>,
    /// What visits saw that offered X25519MLKEM768 and X25519.
    pub visits: Vec<Observation>,
    /// What one saw that offered X25519 alone.
    pub classic: Option<Observation>,
    /// Whether the site can be a cover.
    pub verdict: Verdict,
}

/// Examines it, at the first of its addresses where somebody answers.
///
/// # Errors
/// [`Failure::Unavailable`] when the name has no address, or this machine no way to send.
pub fn examine(site: &Site) -> Result<Findings, Failure> {
    let unavailable =
        |reason: String| Failure::Unavailable(format!("cannot examine {}: {reason}", site.host));
    let addresses = names::addresses(&site.host, site.port).map_err(unavailable)?;
    examine_among(&addresses, site).map_err(unavailable)
}

/// The same at these addresses, in this order.
///
/// # Errors
/// Why this machine cannot send.
pub(crate) fn examine_among(addresses: &[SocketAddr], site: &Site) -> Result<Findings, String> {
    let begun = Instant::now();
    let mut last = Err("its name has no address".to_owned());
    for address in addresses {
        let found = examine_at(*address, site);
        match found {
            Ok(found) if found.visits.iter().any(|visit| visit.end != End::Silent) => return Ok(found),
            // That nobody answers says more than that there is no way, as where a machine has no IPv6.
            Err(_) if last.is_ok() => {}
            found => last = found,
        }
        if begun.elapsed() > limits::COVER_EXAMINATION_TIME {
            break;
        }
    }
    last
}

fn examine_at(address: SocketAddr, site: &Site) -> Result<Findings, String> {
    let probes = probe_versions(address).map_err(|error| error.to_string())?;
    let round_trip = verdict::median(probes.iter().map(|(time, _)| *time));
    let mut visits = Vec::new();
    for _ in 0..limits::COVER_VISITS {
        visits.push(visit(address, site, Groups::Hybrid)?);
        // Where nobody is, or nobody who goes on, further visits see the same.
        if visits
            .iter()
            .all(|visit| matches!(visit.end, End::Silent | End::Incomplete))
        {
            break;
        }
    }
    let is_visited = visits.iter().any(|visit| visit.end == End::Complete);
    let classic = is_visited
        .then(|| visit(address, site, Groups::Classic))
        .transpose()?;
    Ok(Findings {
        address,
        versions: probes.into_iter().next().map(|(_, versions)| versions),
        round_trip,
        verdict: verdict::judge(&visits, classic.as_ref(), round_trip),
        visits,
        classic,
    })
}

/// Round trips, each with the versions of its answer. Where the first is lost, further ones are not sent.
fn probe_versions(address: SocketAddr) -> io::Result<Vec<(Duration, Vec<u32>)>> {
    let mut found = Vec::new();
    let mut buffer = vec![0; packet::UDP_PAYLOAD_MAX];
    for _ in 0..limits::COVER_VERSION_PROBES {
        let socket = connected(address)?;
        let id = random_id()?;
        let sent = Instant::now();
        // What the kernel refuses is as if nobody had answered.
        let _ = socket.send(&version_probe::datagram(id));
        while let Some(length) = receive(&socket, &mut buffer, sent + limits::COVER_PROBE_TIME) {
            if let Some(versions) = version_probe::read_answer(&buffer[..length], id) {
                found.push((sent.elapsed(), versions));
                break;
            }
        }
        if found.is_empty() {
            break;
        }
    }
    Ok(found)
}

fn visit(address: SocketAddr, site: &Site, groups: Groups) -> Result<Observation, String> {
    let text = |error: io::Error| error.to_string();
    let socket = connected(address).map_err(text)?;
    let mut buffer = vec![0; packet::UDP_PAYLOAD_MAX];
    let id = random_id().map_err(text)?;
    let mut visit = Visit::begin(&site.name, &site.roots, groups, id, Instant::now())?;
    loop {
        while let Some(datagram) = visit.poll_transmit() {
            // A datagram that does not leave is a lost one.
            let _ = socket.send(&datagram);
        }
        if let Some(seen) = visit.observation() {
            return Ok(seen.clone());
        }
        let deadline = visit.poll_timeout().unwrap_or_else(Instant::now);
        match receive(&socket, &mut buffer, deadline) {
            Some(length) => visit.handle_datagram(&buffer[..length], Instant::now()),
            None => visit.handle_timeout(Instant::now()),
        }
    }
}

fn connected(address: SocketAddr) -> io::Result<UdpSocket> {
    let any: SocketAddr = match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(address)?;
    Ok(socket)
}

/// The length of the next datagram; `None` where there is none by then. A refusal by ICMP counts as nothing: it may be
/// forged, and others may answer.
fn receive(socket: &UdpSocket, buffer: &mut [u8], deadline: Instant) -> Option<usize> {
    loop {
        let left = deadline.checked_duration_since(Instant::now())?;
        // Zero would mean for ever.
        socket
            .set_read_timeout(Some(left.max(Duration::from_millis(1))))
            .ok()?;
        match socket.recv(buffer) {
            Ok(length) => return Some(length),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
            Err(_) => return None,
        }
    }
}

fn random_id() -> io::Result<[u8; 8]> {
    let mut id = [0; 8];
    aws_lc_rs::rand::fill(&mut id).map_err(|_| io::Error::other("the system gives no random numbers"))?;
    Ok(id)
}
