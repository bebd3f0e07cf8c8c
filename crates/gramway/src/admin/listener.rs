//! `--admin`: the status page and the API at a TCP address. The listener opens before the sandbox closes, and answers
//! once there are counters.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;

use super::Admin;
use super::api::serve;
use super::guard::Guard;
use super::settings::AdminSettings;
use super::token::{AdminToken, FILE};
use crate::exit::{Code, Problem, sentence};
use crate::http::{HttpListener, ListenerHandle};
use crate::log;
use crate::state::StateDirectory;

/// A listener that is open; whoever connects waits.
pub(crate) struct AdminListener {
    listener: HttpListener,
    address: SocketAddr,
    token: Option<AdminToken>,
    /// The token is to be written to the state directory.
    is_new: bool,
}

impl AdminSettings {
    /// Opens the listener, where one is wanted; one of `open` may be it.
    ///
    /// # Errors
    /// The address cannot be had, or the token cannot be read.
    pub(crate) fn open(
        &self,
        directory: &StateDirectory,
        open: &[OwnedFd],
    ) -> Result<Option<AdminListener>, Problem> {
        let Some(listen) = self.listen else {
            return Ok(None);
        };
        let opened =
            HttpListener::open(listen, open).and_then(|listener| Ok((listener.local_addr()?, listener)));
        let (address, listener) = opened.map_err(|error| {
            let code = match error.kind() {
                io::ErrorKind::PermissionDenied => Code::Permission,
                _ => Code::Unavailable,
            };
            let error = sentence(&error);
            Problem::new(
                code,
                format!("cannot serve the status page on tcp {listen}: {error}"),
            )
        })?;
        let (token, is_new) = match &self.token_file {
            Some(path) => (Some(AdminToken::of_file(path)?), false),
            None if address.ip().is_loopback() => (None, false),
            None => {
                let (token, is_new) = AdminToken::of_state(directory)?;
                (Some(token), is_new)
            }
        };
        Ok(Some(AdminListener {
            listener,
            address,
            token,
            is_new,
        }))
    }
}

impl AdminListener {
    /// The same for another process.
    pub(crate) fn handle(&self) -> io::Result<ListenerHandle> {
        self.listener.handle()
    }

    /// Answers from here on, and says where. The state directory exists.
    ///
    /// # Errors
    /// The token cannot be written; there is no thread.
    pub(crate) fn serve(self, admin: &Admin, directory: &StateDirectory) -> Result<(), Problem> {
        let Self {
            listener,
            address,
            token,
            is_new,
        } = self;
        if let Some(token) = token.as_ref().filter(|_| is_new) {
            token.keep(directory)?;
        }
        let asks = match (&token, is_new) {
            (None, _) => String::new(),
            (Some(_), true) => format!(", with the token in {}", directory.file(FILE).display()),
            (Some(_), false) => ", with its token".to_owned(),
        };
        let guard = Guard::Network {
            token: token.map(Arc::new),
        };
        let api = Arc::clone(&admin.api);
        thread::Builder::new()
            .name("admin".to_owned())
            .spawn(move || serve(&api, &guard, || listener.accept()))
            .map_err(|error| Problem::bug(format!("cannot serve the status page: {}", sentence(&error))))?;
        log::info("status_page", format!("status page on http://{address}/{asks}"));
        if !address.ip().is_loopback() {
            let text = format!(
                "the status page on {address} is not encrypted: whoever is on the way reads its token; reach it through this \
                 tunnel, ssh -L, or a proxy with TLS"
            );
            log::warning("status_page", text);
        }
        Ok(())
    }
}
