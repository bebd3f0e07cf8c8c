//! What a client carries, and how it finds its server.

use std::path::PathBuf;

use super::{default, setting, unset};
use crate::config::error::SettingError;
use crate::config::setting::{Flag, Kind, Reader, Reload, Setting};
use crate::config::values;
use crate::forward::PartError;

pub(super) static SETTINGS: &[Setting] = &[
    setting("forward", Kind::List, Reader::Client, unset(
        "none",
        "[\"udp:5353=10.0.0.1:53\"]",
    ), |settings, value| {
        settings.forward = crate::forward::parse_all(&value.list()?)?;
        Ok(())
    })
    .flag(Flag::Letter('L', "FORWARD"))
    .about(
        "Forward udp:LISTEN=TARGET or tcp:LISTEN=TARGET. LISTEN is PORT or localhost:PORT (127.0.0.1), ADDR:PORT, [V6]:PORT \
         or :PORT (all addresses); TARGET is HOST:PORT or [V6]:PORT, resolved at the server. Both may have a range of ports \
         of the same length, FIRST-LAST",
    ),
    setting("remote_forward", Kind::List, Reader::Client, unset(
        "none",
        "[\"tcp:8080=localhost:80\"]",
    ), |settings, value| {
        settings.remote_forward = crate::remote_forward::parse_all(&value.list()?)?;
        Ok(())
    })
    .flag(Flag::Letter('R', "FORWARD"))
    .about(
        "Have the server listen at tcp:LISTEN=TARGET, and lead what connects there to TARGET, which this machine resolves and \
         reaches. LISTEN is at the server: PORT (127.0.0.1), ADDR:PORT, [V6]:PORT or :PORT (all addresses), where the link's user \
         may listen (gramway user add --listen). Both may have a range of ports, as in forward",
    ),
    setting("socks", Kind::Text, Reader::Client, unset("none", "\"1080\""), |settings, value| {
        settings.proxies.socks = Some(crate::forward::parse_listener(&value.text()?)?);
        Ok(())
    })
    .flag(Flag::Value("LISTEN"))
    .about(
        "SOCKS5 proxy for local programs: TCP and UDP to any target, names resolved at the server. LISTEN is PORT \
         (127.0.0.1), ADDR:PORT, [V6]:PORT or :PORT (all addresses); it may be that of http",
    ),
    setting("http", Kind::Text, Reader::Client, unset("none", "\"8080\""), |settings, value| {
        settings.proxies.http = Some(crate::forward::parse_listener(&value.text()?)?);
        Ok(())
    })
    .flag(Flag::Value("LISTEN"))
    .about(
        "HTTP proxy for local programs: CONNECT, and http:// in clear, names resolved at the server. LISTEN as for socks",
    ),
    setting("tproxy", Kind::Text, Reader::Client, unset("none", "\"12345\""), |settings, value| {
        settings.tproxy.port = Some(tunnel_proto::link::parse_port(&value.text()?).map_err(PartError::from)?);
        Ok(())
    })
    .flag(Flag::Value("PORT"))
    .about(
        "Transparent proxy of a router: lead TCP and UDP that comes in by tproxy_interface through the tunnel, whatever it is for, \
         by way of this local port (nftables TPROXY). The router's own addresses, multicast, link-local and private networks stay \
         outside. Needs root or CAP_NET_ADMIN and CAP_NET_RAW; undone at the end, also after a kill",
    ),
    setting("tproxy_interface", Kind::List, Reader::Client, unset("none", "[\"lan0\"]"), |settings, value| {
        settings.tproxy.interfaces = value.list()?;
        Ok(())
    })
    .flag(Flag::Value("INTERFACE"))
    .about("Interface whose packets tproxy gets"),
    setting("tproxy_private", Kind::Boolean, Reader::Client, default("false"), |settings, value| {
        settings.tproxy.with_private = value.boolean()?;
        Ok(())
    })
    .flag(Flag::On)
    .about("Lead private networks (RFC 1918, RFC 6598, ULA) through the tunnel as well, with tproxy"),
    setting("repair", Kind::Text, Reader::Client, unset("off", "\"40ms\""), |settings, value| {
        settings.common.engine.repair = values::repair(&value.text()?)?;
        Ok(())
    })
    .flag(Flag::Value("LATENCY"))
    .reload(Reload::New)
    .about(
        "Rebuild lost datagrams of UDP forwards, and lost IP packets that are marked urgent (DSCP EF, CS4, CS5, AF4x), from \
         parity, at most this much later than without loss: 1ms to 500ms, or off. Costs at most half as many bytes again, \
         and nothing without loss",
    ),
    setting("link_file", Kind::Path, Reader::Client, unset("none", "\"server.link\""), |settings, value| {
        let path = value.path()?;
        if crate::link::is_link(&path) {
            return Err(SettingError::LinkForFile);
        }
        settings.link_file = Some(PathBuf::from(path));
        Ok(())
    })
    .flag(Flag::Value("FILE"))
    .about("File that holds the link; - reads it from standard input"),
    setting("tls_roots", Kind::Path, Reader::Client, unset("none", "\"authorities.pem\""), |settings, value| {
        settings.tls_roots = Some(PathBuf::from(value.path()?));
        Ok(())
    })
    .flag(Flag::Value("FILE"))
    .about(
        "PEM file with authorities to trust besides those that browsers trust, where the link names a server with an \
         ordinary certificate",
    ),
    setting("fallback", Kind::List, Reader::Client, unset("none", "[\"/etc/gramway/second.link\"]"), |settings, value| {
        let files = value.list()?;
        if files.iter().any(|file| crate::link::is_link(file.as_ref())) {
            return Err(SettingError::LinkForFile);
        }
        settings.fallback = files.into_iter().map(PathBuf::from).collect();
        Ok(())
    })
    .flag(Flag::Value("FILE"))
    .about(
        "File that holds the link of another server. The client changes to it after ten seconds without a connection, or \
         when its server refuses the link. Servers are tried in this order, that of link_file first; when the connection to \
         another one is lost, the first one is tried first again. TCP connections end, listeners stay. Not with a TUN",
    ),
    setting("exit_on_failure", Kind::Boolean, Reader::Client, default("false"), |settings, value| {
        settings.exit_on_failure = value.boolean()?;
        Ok(())
    })
    .flag(Flag::On)
    .about("End with exit code 69 if there is no connection within 15 s of the start, instead of trying again"),
    setting("bind", Kind::Text, Reader::Client, unset(
        "the system chooses",
        "\"192.0.2.7\"",
    ), |settings, value| {
        let text = value.text()?;
        let address = text
            .parse()
            .map_err(|_| SettingError::text(&text, "not an IP address"))?;
        settings.bind = Some(address);
        Ok(())
    })
    .flag(Flag::Value("ADDR"))
    .about("Local address for connections to the server"),
    setting("carrier", Kind::Text, Reader::Client, default("\"auto\""), |settings, value| {
        settings.carrier = values::carrier(&value.text()?)?;
        Ok(())
    })
    .flag(Flag::Value("udp|tcp|auto"))
    .about(
        "Reach the server over UDP, in packets that look like TCP (tcp: the link has to name a port, see --tcp of gramway up), \
         or over whichever answers first, UDP being asked first (auto); with auto, a connection moves to the other one when its own \
         is blocked or carries too little. TCP's shape needs CAP_NET_RAW; there is no TCP behind \
         it: it does not pass proxies, and an expert can tell",
    ),
];
