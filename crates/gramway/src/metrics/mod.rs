//! `--metrics`: the counters of this process for Prometheus, in OpenMetrics text over HTTP.
//!
//! The listener opens before the sandbox closes, and answers once there are counters. Nothing in the answer names a
//! target or an address; users are in it only with `--metrics-per-user`.

mod exposition;
mod page;
mod settings;

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use tunnel::handle::Controller;

use crate::exit::{Code, Problem, sentence};
use crate::http::{HttpListener, ListenerHandle};
use crate::log;
use crate::reload::Reloader;
use crate::users::Register;
use exposition::Scrape;
pub(crate) use settings::MetricsSettings;

/// A listener that is open; whoever connects waits.
#[derive(Debug)]
pub(crate) struct MetricsListener {
    listener: HttpListener,
    address: SocketAddr,
}

impl MetricsSettings {
    /// Opens the listener, where one is wanted; one of `open` may be it.
    ///
    /// # Errors
    /// The address cannot be had.
    pub(crate) fn open(self, open: &[OwnedFd]) -> Result<Option<MetricsListener>, Problem> {
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
            Problem::new(code, format!("cannot serve metrics on tcp {listen}: {error}"))
        })?;
        Ok(Some(MetricsListener { listener, address }))
    }
}

impl MetricsListener {
    /// The same for another process.
    pub(crate) fn handle(&self) -> io::Result<ListenerHandle> {
        self.listener.handle()
    }

    /// Answers from here on, on threads of its own, and says where; users have the names of this register.
    ///
    /// # Errors
    /// There is no thread for it.
    pub(crate) fn serve(
        self,
        controller: Controller,
        users: Option<Arc<Register>>,
        reloader: Arc<Reloader>,
    ) -> Result<(), Problem> {
        let Self { listener, address } = self;
        let started = SystemTime::now().duration_since(UNIX_EPOCH);
        let start_seconds = started.unwrap_or_default().as_secs_f64();
        let answer = move || {
            let scrape = Scrape {
                snapshot: controller.snapshot()?,
                start_seconds,
                users: users.clone().filter(|_| reloader.has_metrics_per_user()),
                reload: reloader.last(),
            };
            Some(scrape.text())
        };
        thread::Builder::new()
            .name("metrics".to_owned())
            .spawn(move || page::serve(&listener, answer))
            .map_err(|error| Problem::bug(format!("cannot serve metrics: {}", sentence(&error))))?;
        log::info("metrics", format!("metrics on http://{address}/metrics"));
        if !address.ip().is_loopback() {
            let text = format!(
                "the page of metrics on {address} asks nobody for a password: whoever reaches this address sees that Gramway \
                 runs here, and how much it carries"
            );
            log::warning("metrics", text);
        }
        Ok(())
    }
}
