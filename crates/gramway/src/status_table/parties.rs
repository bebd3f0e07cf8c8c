//! Who takes part: connections, users, peers, and the process's own shards.

use std::time::Duration;

use serde_json::Value;

use super::block::Block;
use crate::units::{bytes, milliseconds};

impl Block<'_> {
    pub(super) fn connections(&self) -> String {
        format!(
            "{} open, {} in all; {} reconnects{}",
            self.count("/connections/open"),
            self.count("/connections/total"),
            self.count("/reconnects"),
            self.reasons("refused requests", "/refused_requests"),
        )
    }

    /// Peers that find each other at a server.
    pub(super) fn rendezvous(&self) -> String {
        let relayed = match self.number("/rendezvous/relayed_bytes") {
            0 => String::new(),
            relayed => format!(", {} in all", bytes(relayed)),
        };
        format!(
            "{} peers registered, {} registrations, {} calls, {} answered{}{}{}{}{}{relayed}",
            self.count("/rendezvous/registered"),
            self.count("/rendezvous/registrations"),
            self.count("/rendezvous/calls"),
            self.count("/rendezvous/answers"),
            self.unless_zero("{} of peers that are not there", "/rendezvous/absent"),
            self.unless_zero("{} too many", "/rendezvous/busy"),
            self.unless_zero("{} registrations over the limit", "/rendezvous/over_limit"),
            self.unless_zero("{} registrations without proof", "/rendezvous/unproved"),
            self.unless_zero("{} relayed", "/rendezvous/sockets"),
        )
    }

    pub(super) fn authorizations(&self) -> String {
        format!(
            "{} asked, {} granted, {} refused{}{}{}{}",
            self.count("/authorizations/asked"),
            self.count("/authorizations/granted"),
            self.count("/authorizations/refused"),
            self.unless_zero("{} waiting", "/authorizations/waiting"),
            self.unless_zero("{} not answered in time", "/authorizations/expired"),
            self.unless_zero("{} answered too late", "/authorizations/too_late"),
            self.unless_zero("{} not asked (over the limit)", "/authorizations/over_limit"),
        )
    }
}

pub(super) fn render_user(id: &str, user: &Value) -> String {
    let block = Block(user);
    let name = user["name"].as_str().unwrap_or(id);
    let used = match (user["used_bytes"].as_u64(), user["quota_bytes"].as_u64()) {
        (None, _) => String::new(),
        (Some(used), None) => format!("; {} used", bytes(used)),
        (Some(used), Some(quota)) => {
            format!(
                "; {} used of {}/{}",
                bytes(used),
                bytes(quota),
                block.text("/quota_period")
            )
        }
    };
    let relayed = user["relayed_bytes"].as_u64().filter(|relayed| *relayed > 0);
    let relayed = relayed.map_or_else(String::new, |relayed| {
        format!(", {} relayed to peers", bytes(relayed))
    });
    let excluded = user["excluded"]
        .as_str()
        .map(|reason| format!("; kept out: {reason}"));
    format!(
        "{name}: {} connections open, {} in all; {} sessions open, {} in all; {} leases; {}{relayed}{}{used}{}",
        block.count("/connections"),
        block.count("/connections_total"),
        block.count("/sessions"),
        block.count("/sessions_total"),
        block.count("/leases"),
        block.bytes("/bytes"),
        block.reasons("refused at the limit of", "/refused"),
        excluded.unwrap_or_default(),
    )
}

/// A port of the server whose connections lead to a client.
pub(super) fn render_listener(listener: &Value, process: &Value) -> String {
    let block = Block(listener);
    let party = match (listener["target"].as_str(), listener["user"].as_str()) {
        (Some(target), _) => format!("at the server, to {target}"),
        (None, Some(user)) => {
            let name = process["users"][user]["name"].as_str().unwrap_or(user);
            format!("of {name}")
        }
        (None, None) => String::new(),
    };
    let state = if listener["is_open"] == true {
        "open"
    } else {
        "not open"
    };
    format!(
        "{} {party}: {state}, {} requests wait, {} connections in all",
        block.text("/address"),
        block.count("/waiting"),
        block.count("/total"),
    )
}

pub(super) fn render_peer(peer: &Value) -> String {
    let block = Block(peer);
    let rtt =
        Duration::try_from_secs_f64(peer["rtt_ms"].as_f64().unwrap_or(0.0) / 1_000.0).unwrap_or_default();
    let decimal = |pointer: &str| peer.pointer(pointer).and_then(Value::as_f64).unwrap_or(0.0);
    format!(
        "{}{}{}, round trip {}, window {}, path MTU {}, {} bytes unsplit, {} queued, {} packets lost; {}: {}, \
         path {:.1} Mbit/s, {:.1} ms and {:.1} ms of queue, random loss {:.1} %",
        block.text("/remote"),
        if peer["carrier"] == "tcp" {
            " in TCP's shape"
        } else {
            ""
        },
        if peer["authenticated"] == true {
            ""
        } else {
            " (no token yet)"
        },
        milliseconds(rtt),
        block.bytes("/congestion_window_bytes"),
        block.number("/path_mtu"),
        block.number("/payload_unsplit"),
        block.bytes("/queue_bytes"),
        block.count("/quic/packets_lost"),
        block.text("/path/profile"),
        block.text("/path/phase").replace('_', " "),
        decimal("/path/bandwidth_bits_per_second") / 1e6,
        decimal("/path/base_round_trip_ms"),
        decimal("/path/queueing_delay_ms"),
        decimal("/path/random_loss") * 100.0,
    )
}

pub(super) fn render_shard(shard: &Value) -> String {
    let block = Block(shard);
    let stripe = shard["stripe"].as_object().map_or(String::new(), |_| {
        let rtt = shard.pointer("/stripe/rtt_ms").and_then(Value::as_f64);
        let rtt = Duration::try_from_secs_f64(rtt.unwrap_or(0.0) / 1_000.0).unwrap_or_default();
        format!(
            ", round trip {}, window {}, path MTU {}",
            milliseconds(rtt),
            block.bytes("/stripe/congestion_window_bytes"),
            block.number("/stripe/path_mtu"),
        )
    });
    let carrier = shard["carrier"].as_object().map_or(String::new(), |_| {
        let name = match block.text("/carrier/kind") {
            "tcp" => "in TCP's shape",
            _ => "over UDP",
        };
        format!(" {name} ({})", block.text("/carrier/reason"))
    });
    format!(
        "{}{}{carrier}{stripe}; {} connections, {} UDP sessions, {} TCP connections open; {} datagrams sent, {} received; \
         {} given to others, {} taken{}{}",
        block.text("/state"),
        shard["server_shard"]
            .as_u64()
            .map_or(String::new(), |index| format!(" to shard {index}")),
        block.count("/connections/open"),
        block.count("/udp_sessions/open"),
        block.count("/tcp_connections/open"),
        block.count("/datagrams_sent"),
        block.count("/datagrams_received"),
        block.count("/handover/given"),
        block.count("/handover/taken"),
        block.unless_zero("{} without room", "/handover/dropped"),
        block.unless_zero("{} reconnects", "/reconnects"),
    )
}
