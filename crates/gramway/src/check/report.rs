//! What `gramway check` prints: what was found, for people and as JSON.

use std::time::Duration;

use serde_json::{Value, json};
use tunnel::examination::{End, Findings, Observation};
use tunnel_proto::link::Endpoint;

use crate::tls_names::{group_name, suite_name};
use crate::units;

/// Lines for people; the verdict is last.
pub(super) fn text(findings: &Findings) -> String {
    let mut lines = vec![format!("examined {}", findings.address)];
    if let Some(versions) = &findings.versions {
        let versions: Vec<_> = versions.iter().map(|version| version_name(*version)).collect();
        lines.push(format!("QUIC versions: {}", versions.join(", ")));
    }
    if let Some(time) = findings.round_trip {
        lines.push(format!("round trip: {}", units::milliseconds(time)));
    }
    if let Some(visit) = seen(findings) {
        lines.extend(of_the_handshake(findings, visit));
    }
    let verdict = &findings.verdict;
    lines.extend(
        verdict
            .warnings
            .iter()
            .map(|warning| format!("warning: {warning}")),
    );
    if verdict.obstacles.is_empty() {
        lines.push("fits".to_owned());
    }
    lines.extend(
        verdict
            .obstacles
            .iter()
            .map(|obstacle| format!("does not fit because {obstacle}")),
    );
    lines.join("\n")
}

/// The same, in the units of the protocol: milliseconds, bytes, numbers of the registries.
pub(super) fn json(cover: &Endpoint, name: &str, findings: &Findings) -> Value {
    let verdict = &findings.verdict;
    let texts = |all: &mut dyn Iterator<Item = String>| all.collect::<Vec<_>>();
    json!({
        "cover": cover.to_string(),
        "name": name,
        "address": findings.address.to_string(),
        "fits": verdict.obstacles.is_empty(),
        "obstacles": texts(&mut verdict.obstacles.iter().map(ToString::to_string)),
        "warnings": texts(&mut verdict.warnings.iter().map(ToString::to_string)),
        "versions": findings.versions,
        "round_trip_ms": findings.round_trip.map(in_ms),
        "profile": verdict.profile.as_ref().map(|profile| json!({
            "suite": profile.suite,
            "group": profile.group,
            "id_bytes": profile.id_bytes,
            "certificate_bytes": profile.certificate_bytes,
            "is_version_first": profile.is_version_first,
            "answer_delay_ms": in_ms(profile.answer_delay),
        })),
        "handshake": seen(findings).map(|visit| handshake(findings, visit)),
    })
}

fn handshake(findings: &Findings, visit: &Observation) -> Value {
    let hello = visit.hello.as_ref();
    json!({
        "suite": hello.map(|hello| hello.suite),
        "group": hello.and_then(|hello| hello.group),
        "group_with_x25519_alone": classic_group(findings),
        "server_hello_extensions": hello.map(|hello| &hello.extensions),
        "id_bytes": visit.id_bytes,
        "first_flight": visit.flight,
        "certificate_bytes": visit.certificate.map(|certificate| certificate.bytes),
        "is_certificate_compressed": visit.certificate.map(|certificate| certificate.is_compressed),
        "is_certificate_valid": visit.chain.as_ref().map(Result::is_ok),
        "idle_timeout_ms": visit.idle_timeout_ms,
        "has_preferred_address": visit.has_preferred_address,
        "is_retry": visit.is_retry,
        "answer_ms": visit.answer.map(in_ms),
    })
}

/// The visit that tells most.
fn seen(findings: &Findings) -> Option<&Observation> {
    let visits = &findings.visits;
    let complete = visits.iter().find(|visit| visit.end == End::Complete);
    complete.or_else(|| visits.iter().find(|visit| visit.hello.is_some()))
}

fn of_the_handshake(findings: &Findings, visit: &Observation) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(hello) = &visit.hello {
        let group = |group: Option<u16>| group.map_or_else(|| "no group".to_owned(), group_name);
        let mut line = format!("TLS: {}, {}", suite_name(hello.suite), group(hello.group));
        if findings.classic.is_some() && classic_group(findings) != hello.group {
            line += &format!("; {} for clients without it", group(classic_group(findings)));
        }
        lines.push(line);
    }
    let bytes: usize = visit.flight.iter().sum();
    let mut line = format!(
        "first flight: {} datagrams, {} bytes",
        visit.flight.len(),
        units::count(bytes as u64)
    );
    if let Some(certificate) = visit.certificate {
        line += &format!(
            ", {} of them the Certificate message",
            units::count(certificate.bytes as u64)
        );
    }
    lines.push(line);
    if let Some(bytes) = visit.id_bytes {
        lines.push(format!("connection IDs: {bytes} bytes"));
    }
    if let Some(profile) = &findings.verdict.profile {
        let delay = units::milliseconds(profile.answer_delay);
        lines.push(format!(
            "a hello is answered after {delay}, the way there and back included"
        ));
    }
    if let Some(time) = visit.idle_timeout_ms {
        lines.push(format!(
            "connections end after {} idle seconds",
            time as f64 / 1_000.0
        ));
    }
    lines
}

fn classic_group(findings: &Findings) -> Option<u16> {
    findings.classic.as_ref()?.hello.as_ref()?.group
}

fn in_ms(time: Duration) -> f64 {
    // Microseconds are as fine as they are of use.
    time.as_micros() as f64 / 1_000.0
}

fn version_name(version: u32) -> String {
    match version {
        1 => "1".to_owned(),
        0x6b33_43cf => "2".to_owned(),
        other => format!("{other:#x}"),
    }
}
