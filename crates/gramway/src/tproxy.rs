//! `--tproxy`: a router's network goes through the tunnel without knowing it.

use host::{HostChanges, TransparentSettings};
use packet_io::InterfaceName;

use crate::exit::Problem;
use crate::log;
use crate::output::shown;

/// What of it can be set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TransparentProxy {
    /// The port of the listener; `None`: there is no such proxy.
    pub(crate) port: Option<u16>,
    pub(crate) interfaces: Vec<String>,
    pub(crate) with_private: bool,
}

impl TransparentProxy {
    /// Refuses a proxy that gets nothing.
    ///
    /// # Errors
    /// No interface is named, or what is named cannot be one, or is loopback, whose packets are this machine's own.
    pub(crate) fn check(&self) -> Result<(), Problem> {
        if self.port.is_some() && self.interfaces.is_empty() {
            return Err(Problem::usage(
                "--tproxy needs the interfaces whose packets it gets, such as --tproxy-interface lan0 (tproxy_interface in the \
                 config file)",
            ));
        }
        for name in &self.interfaces {
            let why_not = match name.parse::<InterfaceName>() {
                Ok(_) if name != "lo" => continue,
                Ok(_) => "lo has what this machine sends to itself, and is never led away".to_owned(),
                Err(error) => error.to_string(),
            };
            return Err(Problem::usage(format!(
                "--tproxy-interface {}: {why_not}",
                shown(name)
            )));
        }
        Ok(())
    }

    /// Leads packets to the listener, which is there.
    ///
    /// # Errors
    /// An interface is not there, or the kernel lacks what it takes.
    pub(crate) fn start(&self, changes: Option<HostChanges>) -> Result<(), Problem> {
        let (Some(port), Some(changes)) = (self.port, changes) else {
            return Ok(());
        };
        let settings = TransparentSettings {
            port,
            interfaces: self.interfaces.clone(),
            with_private: self.with_private,
        };
        changes.start_transparent_proxy(settings).map_err(|error| {
            if error.is_permission() {
                Problem::permission(error.to_string())
            } else {
                Problem::unavailable(error.to_string())
            }
        })
    }

    /// Leads nothing there any more.
    pub(crate) fn end(&self, changes: Option<HostChanges>) {
        if let (Some(_), Some(changes)) = (self.port, changes)
            && let Err(error) = changes.undo()
        {
            log::warning("tproxy", error.to_string());
        }
    }

    /// `transparent proxy of lan0 on port 12345`, for lines that people read.
    pub(crate) fn describe(&self) -> Option<String> {
        let port = self.port?;
        Some(format!(
            "transparent proxy of {} on port {port}",
            self.interfaces.join(" and ")
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_without_an_interface_is_refused_and_one_with_some_is_described() {
        let mut proxy = TransparentProxy::default();
        assert!(proxy.check().is_ok() && proxy.describe().is_none());
        proxy.port = Some(12_345);
        let problem = proxy.check().unwrap_err();
        assert!(problem.to_string().contains("--tproxy-interface"), "{problem}");
        for wrong in ["lan0 wlan0", "", "lo", "abcdefghijklmnop"] {
            proxy.interfaces = vec!["lan0".to_owned(), wrong.to_owned()];
            let problem = proxy.check().unwrap_err();
            assert!(
                problem.to_string().starts_with("--tproxy-interface "),
                "{problem}"
            );
        }
        proxy.interfaces = ["lan0", "wlan0"].map(str::to_owned).to_vec();
        assert!(proxy.check().is_ok());
        assert_eq!(
            proxy.describe().unwrap(),
            "transparent proxy of lan0 and wlan0 on port 12345"
        );
    }
}
