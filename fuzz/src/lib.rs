//! What the fuzz targets do, as ordinary functions, so that their starting inputs and every input that ever failed can
//! also be run without the engine.
//!
//! A target does more than not to panic: each compares what it got with a second way to the same result.

// The program has no library: what reads its link and its settings is compiled here, too.
#[allow(dead_code, unused_imports, reason = "the program uses the rest")]
#[path = "../../crates/gramway/src/addresses.rs"]
mod addresses;
#[allow(dead_code, unused_imports, reason = "the program uses the rest")]
#[path = "../../crates/gramway/src/admin/settings.rs"]
mod admin;
#[allow(dead_code, unused_imports, reason = "the program uses the rest")]
#[path = "../../crates/gramway/src/users/hook/answer.rs"]
mod answer;
#[allow(dead_code, unused_imports, reason = "the program uses the rest")]
#[path = "../../crates/gramway/src/config/mod.rs"]
mod config;
#[allow(dead_code, unused_imports, reason = "the program uses the rest")]
#[path = "../../crates/gramway/src/cover/mod.rs"]
mod cover;
#[allow(dead_code, unused_imports, reason = "the program uses the rest")]
#[path = "../../crates/gramway/src/drain/time.rs"]
mod drain;
#[allow(dead_code, unused_imports, reason = "the program uses the rest")]
#[path = "../../crates/gramway/src/exit.rs"]
mod exit;
#[allow(dead_code, unused_imports, reason = "the program uses the rest")]
#[path = "../../crates/gramway/src/forward.rs"]
mod forward;
#[allow(dead_code, unused_imports, reason = "the program uses the rest")]
#[path = "../../crates/gramway/src/hook_url.rs"]
mod hook_url;
#[allow(dead_code, unused_imports, reason = "the program uses the rest")]
#[path = "../../crates/gramway/src/http/mod.rs"]
mod http;
#[allow(dead_code, unused_imports, reason = "the program uses the rest")]
#[path = "../../crates/gramway/src/identity.rs"]
mod identity;
#[allow(dead_code, unused_imports, reason = "the program uses the rest")]
#[path = "../../crates/gramway/src/limits.rs"]
mod limits;
#[allow(dead_code, unused_imports, reason = "the program uses the rest")]
#[path = "../../crates/gramway/src/link.rs"]
mod link;
#[allow(dead_code, unused_imports, reason = "the program uses the rest")]
#[path = "../../crates/gramway/src/log/mod.rs"]
mod log;
#[allow(dead_code, unused_imports, reason = "the program uses the rest")]
#[path = "../../crates/gramway/src/metrics/settings.rs"]
mod metrics;
#[allow(dead_code, unused_imports, reason = "the program uses the rest")]
#[path = "../../crates/gramway/src/output.rs"]
mod output;
#[allow(dead_code, unused_imports, reason = "the program uses the rest")]
#[path = "../../crates/gramway/src/proxies.rs"]
mod proxies;
#[allow(dead_code, unused_imports, reason = "the program uses the rest")]
#[path = "../../crates/gramway/src/qlog/settings.rs"]
mod qlog;
#[allow(dead_code, unused_imports, reason = "the program uses the rest")]
#[path = "../../crates/gramway/src/recent.rs"]
mod recent;
#[allow(dead_code, unused_imports, reason = "the program uses the rest")]
#[path = "../../crates/gramway/src/remote_forward.rs"]
mod remote_forward;
#[allow(dead_code, unused_imports, reason = "the program uses the rest")]
#[path = "../../crates/gramway/src/server_state/mod.rs"]
mod server_state;
#[allow(dead_code, unused_imports, reason = "the program uses the rest")]
#[path = "../../crates/gramway/src/state/mod.rs"]
mod state;
#[allow(dead_code, unused_imports, reason = "the program uses the rest")]
#[path = "../../crates/gramway/src/tproxy.rs"]
mod tproxy;
#[allow(dead_code, unused_imports, reason = "the program uses the rest")]
#[path = "../../crates/gramway/src/tun.rs"]
mod tun;
#[allow(dead_code, unused_imports, reason = "the program uses the rest")]
#[path = "../../crates/gramway/src/units.rs"]
mod units;

pub mod capsules;
pub mod client_hello;
pub mod coalesce;
pub mod config_file;
pub mod control_messages;
pub mod engine;
pub mod fake_tcp_segment;
pub mod fake_tcp_stack;
pub mod files_code;
pub mod files_manifest;
pub mod files_state;
pub mod helper_call;
pub mod hook_answer;
pub mod http3_connection;
pub mod http3_message;
pub mod http_request;
pub mod icmp_quote;
pub mod initial;
pub mod initial_frames;
pub mod input;
pub mod ip_packet;
pub mod link_text;
pub mod name_lookup;
pub mod name_message;
pub mod netlink;
pub mod packets;
pub mod peer_check;
pub mod peer_frame;
pub mod proxy_negotiation;
pub mod rendezvous_message;
pub mod repair_datagram;
pub mod socks_datagram;
pub mod split_fragment;
pub mod steering;
pub mod uds_farewell;
pub mod uds_frame;
pub mod uds_handshake;
pub mod undo_list;
pub mod vnet_segment;

/// One fuzz target.
pub struct Target {
    /// Name of the program, and of the directory of its inputs.
    pub name: &'static str,
    /// Runs one input.
    ///
    /// Panics where what is checked does not hold.
    pub run: fn(&[u8]),
    /// A few small inputs that reach far.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

macro_rules! targets {
    ($($name:ident),*) => {
        /// All targets.
        pub const TARGETS: &[Target] =
            &[$(Target { name: stringify!($name), run: $name::run, seeds: $name::seeds }),*];
    };
}

targets!(
    ip_packet,
    icmp_quote,
    vnet_segment,
    coalesce,
    capsules,
    http3_message,
    split_fragment,
    repair_datagram,
    peer_frame,
    peer_check,
    rendezvous_message,
    uds_farewell,
    uds_frame,
    uds_handshake,
    http3_connection,
    control_messages,
    steering,
    fake_tcp_segment,
    fake_tcp_stack,
    netlink,
    undo_list,
    helper_call,
    hook_answer,
    http_request,
    name_message,
    proxy_negotiation,
    socks_datagram,
    link_text,
    client_hello,
    initial_frames,
    initial,
    config_file,
    name_lookup,
    files_manifest,
    files_code,
    files_state,
    engine
);
