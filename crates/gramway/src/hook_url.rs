//! The URL of an authentication hook, as a setting.

use std::net::IpAddr;

/// `http://HOST…` or `https://HOST…`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HookUrl(String);

impl HookUrl {
    /// Reads it; what the text is instead.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        let url = Self(text.to_owned());
        if !text.chars().all(|c| c.is_ascii_graphic()) {
            return Err("no URL: it has spaces, or characters other than ASCII");
        }
        match url.host() {
            None | Some("") => Err("no URL that begins with http://HOST or https://HOST"),
            Some(host) if host.contains('@') => Err("a URL with a password, which would be shown in logs"),
            Some(_) => Ok(url),
        }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// With its port.
    fn host(&self) -> Option<&str> {
        let rest = self.0.strip_prefix("http://");
        let rest = rest.or_else(|| self.0.strip_prefix("https://"))?;
        rest.split(['/', '?', '#']).next()
    }

    /// What to tell where tokens go through a network in clear.
    pub(crate) fn warning(&self) -> Option<String> {
        let host = self.host().filter(|_| self.0.starts_with("http://"))?;
        let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((v6, _)) => v6,
            None => host.rsplit_once(':').map_or(host, |(name, _)| name),
        };
        let is_here = name == "localhost" || name.parse().is_ok_and(|address: IpAddr| address.is_loopback());
        (!is_here).then(|| {
            format!("tokens of users go to {host} in clear; use https:// or a server on this machine")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_host_and_tokens_in_clear_are_told() {
        let warns = |text: &str| HookUrl::parse(text).unwrap().warning().is_some();
        assert!(
            !warns("http://127.0.0.1:8080/auth") && !warns("http://[::1]:80/") && !warns("http://localhost")
        );
        assert!(!warns("https://panel.example.org/auth") && warns("http://panel.example.org/auth"));
        assert!(warns("http://192.0.2.1/") && warns("http://[2001:db8::1]/?x"));
        for text in [
            "",
            "panel",
            "ftp://panel/",
            "http:///x",
            "http://a b/",
            "http://me:secret@panel/",
        ] {
            assert!(HookUrl::parse(text).is_err(), "{text:?}");
        }
    }
}
