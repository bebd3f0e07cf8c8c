//! What became of datagrams and packets: the account of each direction, new connections, sockets.

use serde_json::Value;

use super::block::Block;

impl Block<'_> {
    pub(super) fn udp(&self) -> String {
        format!(
            "{} sessions open, {} in all; {} datagrams in, {}; {} out, {}",
            self.count("/udp_sessions/open"),
            self.count("/udp_sessions/total"),
            self.count("/inner_io/segments_received"),
            self.bytes("/inner_io/bytes_received"),
            self.count("/inner_io/segments_sent"),
            self.bytes("/inner_io/bytes_sent"),
        )
    }

    pub(super) fn tcp(&self) -> String {
        format!(
            "{} open, {} in all, {} failed; {} in, {} out",
            self.count("/tcp/open"),
            self.count("/tcp/total"),
            self.count("/tcp/failed"),
            self.bytes("/tcp/bytes_in"),
            self.bytes("/tcp/bytes_out"),
        )
    }

    pub(super) fn quic_sent(&self) -> String {
        format!(
            "{} packets in {} trains, {}; {} datagrams, {} ACK frames, {} STREAM frames",
            self.count("/quic/packets_sent"),
            self.count("/quic/trains_sent"),
            self.bytes("/quic/bytes_sent"),
            self.count("/quic/datagrams_sent"),
            self.count("/quic/acks_sent"),
            self.count("/quic/stream_frames_sent"),
        )
    }

    pub(super) fn quic_received(&self) -> String {
        format!(
            "{} packets, {}; {} datagrams, {} ACK frames, {} STREAM frames",
            self.count("/quic/packets_received"),
            self.bytes("/quic/bytes_received"),
            self.count("/quic/datagrams_received"),
            self.count("/quic/acks_received"),
            self.count("/quic/stream_frames_received"),
        )
    }

    pub(super) fn quic_path(&self) -> String {
        format!(
            "{} packets lost, {} window cuts, {} lost MTU probes, {} black holes",
            self.count("/quic/packets_lost"),
            self.count("/quic/window_cuts"),
            self.count("/quic/lost_mtu_probes"),
            self.count("/quic/black_holes"),
        )
    }

    pub(super) fn direction(&self, pointer: &str) -> String {
        let at = |name: &str| format!("{pointer}/{name}");
        format!(
            "{} accepted{}{}{}, {} sent on{}{}, {} waiting{}",
            self.count(&at("accepted")),
            self.unless_zero("and {} more by splitting", &at("split")),
            self.parity_sent(pointer),
            self.unless_zero("{} repaired", &at("repaired")),
            self.count(&at("sent")),
            self.unless_zero("{} joined to others", &at("joined")),
            self.unless_zero("{} of parity", &at("parity_received")),
            self.count(&at("waiting")),
            self.reasons("dropped", &at("drops")),
        )
    }

    pub(super) fn parity_sent(&self, pointer: &str) -> String {
        let bytes = self.bytes(&format!("{pointer}/parity_sent_bytes"));
        self.unless_zero(
            &format!("{{}} of parity ({bytes})"),
            &format!("{pointer}/parity_sent"),
        )
    }

    /// What became of new connections; `None` where nobody asked for one.
    pub(super) fn incoming(&self) -> Option<String> {
        let words = [
            ("offered", "offered"),
            ("accepted", "accepted"),
            ("damaged", "damaged"),
            ("refused", "refused"),
            ("retried", "asked to prove their address"),
            ("ignored", "ignored"),
            ("expired", "not decided on in time"),
            ("waiting", "waiting"),
            ("turned_down", "behind one not accepted"),
            ("over_limit", "over the limit"),
            ("pushed_out", "pushed out by newcomers before their token came"),
            ("over_rate", "asked to prove their address as many came"),
        ];
        self.list(words.map(|(name, words)| (format!("/incoming/{name}"), words)))
    }

    /// Datagrams at the outer socket that QUIC did not read; `None` where it read all.
    pub(super) fn not_for_quic(&self) -> Option<String> {
        let words = [
            ("other_shard", "of other shards"),
            ("predecessor", "of the process before the upgrade"),
            ("given_away", "given away"),
        ];
        let listed = self.list(words.map(|(name, words)| (format!("/classified/{name}"), words)));
        let dropped = self.reasons("dropped", "/classified/dropped");
        match listed {
            Some(listed) => Some(listed + &dropped),
            None => dropped.strip_prefix("; ").map(str::to_owned),
        }
    }

    pub(super) fn socket(&self, pointer: &str) -> String {
        let at = |name: &str| format!("{pointer}/{name}");
        let per_call = |segments: &str, calls: &str| {
            let (segments, calls) = (self.number(&at(segments)), self.number(&at(calls)));
            segments as f64 / calls.max(1) as f64
        };
        format!(
            "{} received ({:.1} a call), {} dropped by the kernel, {} sent ({:.1} a call), {} split again, \
             {} step-downs, {} found full, buffer {} of {}",
            self.count(&at("segments_received")),
            per_call("segments_received", "receives"),
            self.count(&at("kernel_drops")),
            self.count(&at("segments_sent")),
            per_call("segments_sent", "sends"),
            self.count(&at("split_resends")),
            self.count(&at("gso_step_downs")),
            self.count(&at("would_block")),
            self.bytes(&at("receive_buffer_obtained")),
            self.bytes(&at("receive_buffer_wanted")),
        )
    }
}

pub(super) fn render_sources(kind: &str, counters: &Value) -> String {
    let block = Block(counters);
    format!(
        "{} {} open, {} in all, {} events{}",
        kind.replace('_', " "),
        block.count("/open"),
        block.count("/total"),
        block.count("/events"),
        block.unless_zero("{} deadlines passed", "/deadlines"),
    )
}
