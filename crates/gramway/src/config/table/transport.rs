//! Connections between client and server, and what flows over them.

use super::{default, setting, unset};
use crate::config::setting::{Flag, Kind, Reader, Reload, Setting};
use crate::config::values;
use crate::limits::{CONNECTIONS, TCP_IDLE_SECONDS, UDP_IDLE_SECONDS, UDP_PAYLOAD_BYTES};

pub(super) static SETTINGS: &[Setting] = &[
    setting("connections", Kind::Integer, Reader::Both, unset("one for each core", "2"), |settings, value| {
        let count = value.integer_in(CONNECTIONS, "connections")?;
        settings.common.connections = Some(usize::try_from(count).expect("the range starts above zero"));
        Ok(())
    })
    .flag(Flag::Value("N"))
    .about("Threads that carry traffic, and a client's connections to its server, 1 to 16"),
    setting("max_udp_payload", Kind::Integer, Reader::Both, unset(
        "what the interface's MTU allows",
        "1452",
    ), |settings, value| {
        let bytes = value.integer_in(UDP_PAYLOAD_BYTES, "bytes")?;
        settings.common.max_udp_payload = Some(u16::try_from(bytes).expect("the range ends below 65,536"));
        Ok(())
    })
    .flag(Flag::Value("BYTES"))
    .about("Largest QUIC packet, in bytes of UDP payload, 1200 to 65507"),
    setting("profile", Kind::Text, Reader::Both, default("\"throughput\""), |settings, value| {
        settings.common.profile = values::profile(&value.text()?)?;
        Ok(())
    })
    .flag(Flag::Value("PROFILE"))
    .about(
        "Congestion control: throughput fills the path, latency keeps its queue short, fixed:RATE sends at that rate in bits \
         per second whatever is lost (fixed:500M), 1M to 1000G",
    ),
    setting("gso", Kind::Boolean, Reader::Both, default("true"), |settings, value| {
        settings.common.gso = value.boolean()?;
        Ok(())
    })
    .flag(Flag::Off("Disable UDP segmentation offload (GSO)"))
    .about("Use UDP segmentation offload (GSO) where the kernel supports it"),
    setting("gro", Kind::Boolean, Reader::Both, default("true"), |settings, value| {
        settings.common.gro = value.boolean()?;
        Ok(())
    })
    .flag(Flag::Off("Disable UDP receive offload (GRO)"))
    .about("Use UDP receive offload (GRO) where the kernel supports it"),
    setting("sandbox", Kind::Boolean, Reader::Both, default("true"), |settings, value| {
        settings.has_no_sandbox = !value.boolean()?;
        Ok(())
    })
    .flag(Flag::Off("Keep privileges, files and system calls that are not needed (no capabilities dropped, no Landlock, no seccomp)"))
    .about("Give up privileges, files and system calls that are not needed (capabilities, Landlock, seccomp)"),
    setting("receive_buffer_bytes", Kind::Integer, Reader::Both, default("8388608"), |settings, value| {
        settings.common.receive_buffer_bytes = values::buffer(&value)?;
        Ok(())
    })
    .about(
        "Receive buffer to request for each UDP socket, at a server's sockets to targets only when they carry much, in bytes, \
         65536 to 1073741824",
    ),
    setting("send_buffer_bytes", Kind::Integer, Reader::Both, default("4194304"), |settings, value| {
        settings.common.send_buffer_bytes = values::buffer(&value)?;
        Ok(())
    })
    .about("Send buffer to request for each UDP socket, in bytes, 65536 to 1073741824"),
    setting("udp_idle_timeout_s", Kind::Integer, Reader::Both, default("120"), |settings, value| {
        settings.common.engine.udp_idle_timeout = values::seconds_in(&value, UDP_IDLE_SECONDS)?;
        Ok(())
    })
    .reload(Reload::Live)
    .about("Close a UDP session after this many seconds without traffic, 1 to 86400"),
    setting("tcp_idle_timeout_s", Kind::Integer, Reader::Server, default("7440"), |settings, value| {
        settings.common.engine.tcp_idle_timeout = values::seconds_in(&value, TCP_IDLE_SECONDS)?;
        Ok(())
    })
    .reload(Reload::Live)
    .about("Reset a TCP connection to a target after this many seconds without traffic, 1 to 604800"),
    setting("oversize", Kind::Text, Reader::Both, default("\"split\""), |settings, value| {
        settings.common.engine.oversize = values::oversize(&value.text()?)?;
        Ok(())
    })
    .reload(Reload::New)
    .about("Payloads that do not fit one QUIC packet: split them between Gramway peers, or drop and count them"),
    setting("queue_policy", Kind::Text, Reader::Both, default("\"drop-newest\""), |settings, value| {
        settings.common.engine.queue_policy = values::queue_policy(&value.text()?)?;
        Ok(())
    })
    .reload(Reload::Live)
    .about("What a full queue drops: drop-newest or drop-oldest"),
];
