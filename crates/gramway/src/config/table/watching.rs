//! What others are told of a running process.

use std::path::PathBuf;

use super::{default, setting, unset};
use crate::config::error::SettingError;
use crate::config::setting::{Flag, Kind, Reader, Reload, Setting};
use crate::limits::VERBOSE;
use crate::qlog::TracedUsers;

pub(super) static SETTINGS: &[Setting] = &[
    setting("verbose", Kind::Integer, Reader::Both, default("0"), |settings, value| {
        let level = value.integer_in(VERBOSE, "")?;
        settings.verbose = u8::try_from(level).expect("the range ends at 2");
        Ok(())
    })
    .reload(Reload::Live)
    .about(
        "Log who connects to a server, leaves, is turned away and gets which addresses (1, as -v), also addresses (2, as -vv): \
         from where, and in JSON and the journal all of them, in records of the debug level, 0 to 2",
    ),
    setting("log_format", Kind::Text, Reader::Both, default("\"auto\""), |settings, value| {
        let text = value.text()?;
        settings.log_format = text.parse().map_err(|reason| SettingError::text(&text, reason))?;
        Ok(())
    })
    .flag(Flag::Value("FORMAT"))
    .about(
        "How the log is written to standard error: human, json (one object a line), journald (fields, to the system's journal), \
         or auto: human on a terminal, journald where standard error leads to the journal, else json",
    ),
    setting("qlog", Kind::Path, Reader::Both, unset("no traces", "\"traces\""), |settings, value| {
        settings.qlog.directory = Some(PathBuf::from(value.path()?));
        Ok(())
    })
    .flag(Flag::Value("DIR"))
    .about(
        "Write traces of connections into this directory, for qvis and others that read qlog: packets with their sizes and times, \
         losses and congestion, no addresses and no content. Of a client all connections, of a server those of qlog_user. At most \
         16 files of 16 MiB each; the oldest ones make room",
    ),
    setting("qlog_user", Kind::List, Reader::Server, unset("nobody", "[\"ann\"]"), |settings, value| {
        settings.qlog.users = TracedUsers::new(value.list()?);
        Ok(())
    })
    .flag(Flag::Value("USER"))
    .reload(Reload::New)
    .about("Users whose connections qlog traces, from their next connection on: names, owner, or * for all"),
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
    .reload(Reload::Live)
    .about("Add metrics for each user, by the user's name"),
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
