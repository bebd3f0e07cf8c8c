//! Where a server listens, who its link names, and what its users reach.

use std::path::PathBuf;

use tunnel::config::TcpListen;

use super::{default, setting, unset};
use crate::config::error::SettingError;
use crate::config::setting::{Flag, Kind, Reader, Reload, Setting};
use crate::config::values;
use crate::drain::DrainTime;
use crate::limits::DRAIN_SECONDS;

pub(super) static SETTINGS: &[Setting] = &[
    setting("listen", Kind::Text, Reader::Server, unset(
        "[::]:443, all addresses",
        "\"[::]:443\"",
    ), |settings, value| {
        settings.listen = Some(values::listen(&value.text()?)?);
        Ok(())
    })
    .flag(Flag::Value("ADDR:PORT"))
    .about("Address and port to listen on; :PORT is all addresses, localhost:PORT this machine alone"),
    setting("public", Kind::List, Reader::ServerAndLink, unset(
        "the listening address, or the source addresses of the default routes",
        "[\"vpn.example.org\"]",
    ), |settings, value| {
        let hosts = value.list()?;
        let read = |host: &String| tunnel_proto::link::parse_optional_port(host);
        settings.public = hosts.iter().map(read).collect::<Result<_, _>>()?;
        Ok(())
    })
    .flag(Flag::Value("HOST[:PORT]"))
    .about(
        "Host that the link names, with a port if it is not the listening port. Clients may not use its addresses as \
         targets, like those of the server itself",
    ),
    setting("tls_cert", Kind::Path, Reader::Server, unset("one of its own, pinned by the link", "\"fullchain.pem\""), |settings, value| {
        settings.tls_cert = Some(PathBuf::from(value.path()?));
        Ok(())
    })
    .flag(Flag::Value("FILE"))
    .about(
        "PEM file of an ordinary certificate, with its chain. Clients then check the certificate and its names instead of a \
         pinned key; the link has these names unless `public` gives others. Read again when it changes",
    ),
    setting("tls_key", Kind::Path, Reader::Server, unset("none", "\"privkey.pem\""), |settings, value| {
        settings.tls_key = Some(PathBuf::from(value.path()?));
        Ok(())
    })
    .flag(Flag::Value("FILE"))
    .about("PEM file of that certificate's private key, which only this user may read"),
    setting("tls_pin", Kind::Boolean, Reader::Server, default("false"), |settings, value| {
        settings.tls_pin = value.boolean()?;
        Ok(())
    })
    .flag(Flag::On)
    .about(
        "Pin the key of `tls_cert` in the link: clients then trust no authority and check no name, and the key must stay the \
         same when the certificate is renewed",
    ),
    setting("tcp", Kind::Text, Reader::Server, unset("UDP alone", "\"auto\""), |settings, value| {
        let text = value.text()?;
        settings.tcp = match text.as_str() {
            "off" => None,
            "auto" => Some(TcpListen::LikeUdp),
            _ => Some(TcpListen::At(values::listen_at(&text)?)),
        };
        Ok(())
    })
    .flag(Flag::OptionalValue {
        value: "ADDR:PORT",
        alone: "auto",
    })
    .about(
        "Listen in packets that look like TCP as well, for networks that block or throttle UDP: at ADDR:PORT, at the address \
         and number of UDP (auto), or off. The link names the port. Needs CAP_NET_RAW. There is no TCP behind these packets: \
         they do not pass proxies, and an expert can tell",
    ),
    setting("allow_target", Kind::List, Reader::Server, unset(
        "none",
        "[\"127.0.0.1/32:53\"]",
    ), |settings, value| {
        let targets = value.list()?;
        let read = |target: &String| target.parse();
        settings.allow_target = targets.iter().map(read).collect::<Result<_, _>>()?;
        Ok(())
    })
    .flag(Flag::Value("CIDR[:PORT]"))
    .reload(Reload::New)
    .about("Allow targets that are refused by default, such as loopback and the server's own addresses"),
    setting("rendezvous", Kind::Boolean, Reader::Server, default("true"), |settings, value| {
        settings.has_no_rendezvous = !value.boolean()?;
        Ok(())
    })
    .flag(Flag::Off("Let no peers (`gramway peer`) find each other at this server, and relay nothing between them"))
    .about(
        "Let peers of the server's users (`gramway peer`) find each other here by their IDs, and relay between those whose routers \
         keep them apart",
    ),
    setting("drain_timeout_s", Kind::Integer, Reader::Server, default("30"), |settings, value| {
        settings.drain_time = DrainTime(values::seconds_in(&value, DRAIN_SECONDS)?);
        Ok(())
    })
    .about(
        "How long a server that drains (`gramway ctl drain`, `gramway ctl upgrade`) waits for its clients to leave before \
         it ends their connections, in seconds, 0 to 86400",
    ),
    setting("line_to_clients", Kind::Text, Reader::Server, unset("shared as the network shares it", "\"90M\""), |settings, value| {
        settings.common.engine.line.to_clients = Some(values::bit_rate(&value.text()?)?);
        Ok(())
    })
    .flag(Flag::Value("RATE"))
    .reload(Reload::Live)
    .about(
        "What the server's line carries towards all clients together, in bits per second of payload: where they ask for more, \
         users share it evenly, however many flows and connections each has. Take a tenth less than the line has",
    ),
    setting("line_from_clients", Kind::Text, Reader::Server, unset("shared as the network shares it", "\"90M\""), |settings, value| {
        settings.common.engine.line.from_clients = Some(values::bit_rate(&value.text()?)?);
        Ok(())
    })
    .flag(Flag::Value("RATE"))
    .reload(Reload::Live)
    .about("The same from all clients together. Datagrams beyond a user's share are dropped (rate_limit), TCP is slowed down"),
    setting("auth_hook", Kind::Text, Reader::Server, unset("none", "\"http://127.0.0.1:8080/auth\""), |settings, value| {
        let text = value.text()?;
        let read = crate::hook_url::HookUrl::parse(&text);
        settings.auth_hook = Some(read.map_err(|what| SettingError::text(&text, what))?);
        Ok(())
    })
    .flag(Flag::Value("URL"))
    .about(
        "Ask this HTTP server about tokens that are neither the owner's nor a user's: POST of {\"addr\", \"auth\", \"tx\"}, \
         answered by {\"ok\": true, \"id\": NAME} (Hysteria's hook). Not with a cover",
    ),
    setting("auth_hook_roots", Kind::Path, Reader::Server, unset("those that browsers trust", "\"authorities.pem\""), |settings, value| {
        settings.auth_hook_roots = Some(PathBuf::from(value.path()?));
        Ok(())
    })
    .flag(Flag::Value("FILE"))
    .about("PEM file with the certificates that are trusted for an `auth_hook` with https://, instead of those that browsers trust"),
];
