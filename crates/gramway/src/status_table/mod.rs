//! The counters of running processes as text for people. A counter that a process does not send is shown as zero, so
//! that versions can be mixed.

mod block;
mod cover;
mod parties;
mod traffic;
mod tun;

use std::fmt::Write;

use serde_json::Value;

use crate::sandbox;
use crate::units::span;
use block::Block;
use parties::{render_listener, render_peer, render_shard, render_user};
use traffic::render_sources;
use tun::render_lease;

/// All processes, one block each.
pub(crate) fn render(processes: &[Value]) -> String {
    let blocks: Vec<_> = processes.iter().map(render_process).collect();
    blocks.join("\n")
}

fn render_process(process: &Value) -> String {
    let block = Block(process);
    let mut text = String::new();
    let mut row = |name: &str, content: String| {
        writeln!(text, "  {name:<14}{content}").expect("writing to a String does not fail");
    };
    row("connections", block.connections());
    if block.number("/authorizations/asked") > 0 {
        row("authorizer", block.authorizations());
    }
    row("UDP", block.udp());
    // UDP datagrams and IP packets together.
    row("into tunnel", block.direction("/ingress"));
    row("out of tunnel", block.direction("/egress"));
    row("TCP", block.tcp());
    row("QUIC sent", block.quic_sent());
    row("QUIC received", block.quic_received());
    row("QUIC path", block.quic_path());
    for (name, content) in [
        ("new peers", block.incoming()),
        ("not for QUIC", block.not_for_quic()),
    ] {
        content.into_iter().for_each(|content| row(name, content));
    }
    if let Some(kinds) = process["sources"].as_object().filter(|kinds| !kinds.is_empty()) {
        let kinds: Vec<_> = kinds
            .iter()
            .map(|(kind, of_it)| render_sources(kind, of_it))
            .collect();
        row("sources", kinds.join("; "));
    }
    for listener in process["listeners"].as_array().into_iter().flatten() {
        row("listener", render_listener(listener, process));
    }
    let is_asked = |name: &str| block.number(&format!("/rendezvous/{name}")) > 0;
    if ["registrations", "over_limit", "unproved"]
        .into_iter()
        .any(is_asked)
    {
        row("rendezvous", block.rendezvous());
    }
    row("outer socket", block.socket("/outer_io"));
    row("inner sockets", block.socket("/inner_io"));
    if process["cover"].is_object() {
        row("cover", block.cover());
        row("looks like", block.cover_profile());
        row("strangers", block.strangers());
    }
    if process.pointer("/cover/tcp").is_some_and(Value::is_object) {
        row("cover TCP", block.cover_tcp());
    }
    if process["tun"].is_object() {
        row("TUN", block.tun());
    }
    if process.pointer("/tun/names").is_some_and(Value::is_object) {
        row("name servers", block.names());
    }
    if process.pointer("/tun/name_server").is_some_and(Value::is_object) {
        row("name server", block.name_server());
    }
    if let Some(text) = sandbox::as_text(process.get("sandbox")) {
        row("sandbox", text);
    }
    for lease in process
        .pointer("/tun/lease_list")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        row("lease", render_lease(lease));
    }
    for (name, user) in process["users"].as_object().into_iter().flatten() {
        row("user", render_user(name, user));
    }
    let shards = process["shards"].as_array().map_or(&[][..], Vec::as_slice);
    // One shard has nothing that is not above.
    for shard in shards.iter().filter(|_| shards.len() > 1) {
        row(&format!("shard {}", shard["index"]), render_shard(shard));
    }
    for peer in process["peers"].as_array().into_iter().flatten() {
        row("peer", render_peer(peer));
    }
    let heading = format!(
        "{} {}, {}{}, for {}\n",
        block.text("/role"),
        block.number("/pid"),
        block.text("/state"),
        process
            .pointer("/local")
            .and_then(Value::as_str)
            .map_or(String::new(), |local| format!(" on {local}")),
        span(process["uptime_seconds"].as_f64().unwrap_or(0.0)),
    );
    heading + &text
}

#[cfg(test)]
mod tests;
