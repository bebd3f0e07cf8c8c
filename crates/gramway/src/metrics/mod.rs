//! `--metrics`: the counters of this process for Prometheus, in OpenMetrics text over HTTP.
//!
//! The listener opens before the sandbox closes, and answers once there are counters. Nothing in the answer names a
//! target or an address; users are in it only with `--metrics-per-user`.

mod exposition;
mod page;
mod settings;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use tunnel::handle::Controller;

use crate::exit::{Code, Problem, sentence};
use crate::output;
use crate::users::Register;
use exposition::Scrape;
pub(crate) use settings::MetricsSettings;

/// A listener that is open; whoever connects waits.
#[derive(Debug)]
pub(crate) struct MetricsListener {
    listener: TcpListener,
    address: SocketAddr,
    per_user: bool,
}

impl MetricsSettings {
    /// Opens the listener, where one is wanted.
    ///
    /// # Errors
    /// The address cannot be had.
    pub(crate) fn open(self) -> Result<Option<MetricsListener>, Problem> {
        let Some(listen) = self.listen else {
            return Ok(None);
        };
        let opened = TcpListener::bind(listen).and_then(|listener| Ok((listener.local_addr()?, listener)));
        let (address, listener) = opened.map_err(|error| {
            let code = match error.kind() {
                io::ErrorKind::PermissionDenied => Code::Permission,
                _ => Code::Unavailable,
            };
            let error = sentence(&error);
            Problem::new(code, format!("cannot serve metrics on tcp {listen}: {error}"))
        })?;
        Ok(Some(MetricsListener {
            listener,
            address,
            per_user: self.per_user,
        }))
    }
}

impl MetricsListener {
    /// Answers from here on, on threads of its own, and says where; users have the names of this register.
    ///
    /// # Errors
    /// There is no thread for it.
    pub(crate) fn serve(self, controller: Controller, users: Option<Arc<Register>>) -> Result<(), Problem> {
        let Self {
            listener,
            address,
            per_user,
        } = self;
        let started = SystemTime::now().duration_since(UNIX_EPOCH);
        let start_seconds = started.unwrap_or_default().as_secs_f64();
        let answer = move || {
            let scrape = Scrape {
                snapshot: controller.snapshot()?,
                start_seconds,
                users: users.clone().filter(|_| per_user),
            };
            Some(scrape.text())
        };
        thread::Builder::new()
            .name("metrics".to_owned())
            .spawn(move || page::serve(&listener, answer))
            .map_err(|error| Problem::bug(format!("cannot serve metrics: {}", sentence(&error))))?;
        output::event(&format!("metrics on http://{address}/metrics"));
        if !address.ip().is_loopback() {
            output::event(&format!(
                "warning: the page of metrics on {address} asks nobody for a password: whoever reaches this address sees \
                 that Gramway runs here, and how much it carries"
            ));
        }
        Ok(())
    }
}
