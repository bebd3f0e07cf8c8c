//! Where a server listens, who its link names, and what its users reach.

use tunnel::config::TcpListen;

use super::{setting, unset};
use crate::config::setting::{Flag, Kind, Reader, Setting};
use crate::config::values;

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
        let read = |host: &String| crate::endpoint::parse_optional_port(host);
        settings.public = hosts.iter().map(read).collect::<Result<_, _>>()?;
        Ok(())
    })
    .flag(Flag::Value("HOST[:PORT]"))
    .about(
        "Host that the link names, with a port if it is not the listening port. Its addresses are closed to users like the \
         server's own",
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
    .about("Allow targets that are refused by default, such as loopback and the server's own addresses"),
];
