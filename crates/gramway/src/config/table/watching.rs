//! What others are told of a running process.

use std::path::PathBuf;

use super::{default, setting, unset};
use crate::config::setting::{Flag, Kind, Reader, Setting};

pub(super) static SETTINGS: &[Setting] = &[
    setting("metrics", Kind::Text, Reader::Both, unset("none", "\"9464\""), |settings, value| {
        settings.metrics.listen = Some(crate::forward::parse_listener(&value.text()?)?);
        Ok(())
    })
    .flag(Flag::Value("LISTEN"))
    .about(
        "Serve the counters of gramway status to Prometheus, at http://LISTEN/metrics without a password. LISTEN is PORT \
         (127.0.0.1), ADDR:PORT, [V6]:PORT or :PORT (all addresses)",
    ),
    setting("metrics_per_user", Kind::Boolean, Reader::Server, default("false"), |settings, value| {
        settings.metrics.per_user = value.boolean()?;
        Ok(())
    })
    .flag(Flag::On)
    .about("Serve what each user does as well, by the user's name"),
    setting("admin", Kind::Text, Reader::Both, unset("none", "\"9465\""), |settings, value| {
        settings.admin.listen = Some(crate::forward::parse_listener(&value.text()?)?);
        Ok(())
    })
    .flag(Flag::Value("LISTEN"))
    .about(
        "Serve the status page and its API at http://LISTEN/; LISTEN as of --metrics. On loopback everybody on this machine may \
         see it and, of a server, change users; elsewhere a token is needed",
    ),
    setting("admin_token_file", Kind::Path, Reader::Both, unset("admin-token in the state directory off loopback, else no token", "\"token\""), |settings, value| {
        settings.admin.token_file = Some(PathBuf::from(value.path()?));
        Ok(())
    })
    .flag(Flag::Value("FILE"))
    .about(
        "File with the token that the status page asks for, also on loopback; it is made at the first start, with a random token",
    ),
];
