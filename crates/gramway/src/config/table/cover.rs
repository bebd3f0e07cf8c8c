//! The web site that a server looks like.

use std::path::PathBuf;

use super::{default, setting, unset};
use crate::config::setting::{Flag, Kind, Reader, Setting};
use crate::config::values;

pub(super) static SETTINGS: &[Setting] = &[
    setting("cover", Kind::Text, Reader::Server, unset("no cover", "\"www.example.org\""), |settings, value| {
        settings.cover.place = Some(tunnel_proto::link::parse_optional_port(&value.text()?)?);
        Ok(())
    })
    .flag(Flag::Value("HOST[:PORT]"))
    .about(
        "Look like this web site, which must have HTTP/3, to everybody without the link: packets of such visitors go to the \
         site, and its answers go back. A host or an address, with a port if it is not 443",
    ),
    setting("cover_name", Kind::Text, Reader::Server, unset("the cover's host", "\"www.example.org\""), |settings, value| {
        settings.cover.name = Some(values::shown_name(&value.text()?)?);
        Ok(())
    })
    .flag(Flag::Value("HOST"))
    .about("Name that clients ask the cover for; needed where the cover is an address"),
    setting("cover_tcp", Kind::Boolean, Reader::Server, default("true"), |settings, value| {
        settings.cover.tcp = value.boolean()?;
        Ok(())
    })
    .flag(Flag::Off("Leave TCP alone: the cover gets UDP only"))
    .about(
        "Pass TCP connections on to the cover as well, where the ports are free: those to the listening port to the cover's \
         port, those to port 80 to its port 80",
    ),
    setting("cover_window_s", Kind::Integer, Reader::Server, default("120"), |settings, value| {
        settings.cover.window = values::cover_window(&value)?;
        Ok(())
    })
    .about("With a cover, how far a client's clock may be off in seconds, 10 to 600"),
    setting("cover_roots", Kind::Path, Reader::Client, unset("none", "\"authorities.pem\""), |settings, value| {
        settings.cover_roots = Some(PathBuf::from(value.path()?));
        Ok(())
    })
    .flag(Flag::Value("FILE"))
    .about(
        "PEM file with authorities to trust besides those that browsers trust, to recognise the web site of a server with a \
         cover",
    ),
];
