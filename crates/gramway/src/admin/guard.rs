//! Who may ask what over TCP.
//!
//! A browser asks for every page that it shows, also for hostile ones. So a request must name this machine by address
//! or as localhost (DNS rebinding), must not come from the page of another site, and what changes something must have
//! a header that only our own page and programs send (CSRF). Whether a token is asked for depends on the address.

use std::sync::Arc;

use super::token::AdminToken;
use crate::http::{OTHER_HOST, Refusal, Request};

/// The header that what changes something must have; its value does not matter.
const HEADER: &str = "x-gramway";

/// Where one logs in.
pub(super) const LOGIN: &str = "/v1/login";

const OTHER_SITE: Refusal = Refusal {
    status: "403 Forbidden",
    reason: "pages of other sites may not ask",
};
const NO_HEADER: Refusal = Refusal {
    status: "403 Forbidden",
    reason: "what changes something needs the header x-gramway, such as: x-gramway: 1",
};
const NO_TOKEN: Refusal = Refusal {
    status: "401 Unauthorized",
    reason: "the token of the admin API is needed, as: authorization: Bearer TOKEN",
};

/// Who comes in at one listener.
#[derive(Clone)]
pub(super) enum Guard {
    /// The admin socket: whoever may open its file may do everything.
    File,
    /// A TCP address.
    Network { token: Option<Arc<AdminToken>> },
}

impl Guard {
    /// Lets a request pass, or says why not.
    pub(super) fn check(&self, request: &Request) -> Result<(), Refusal> {
        let Self::Network { token } = self else {
            return Ok(());
        };
        let Some(host) = request.headers("host").next() else {
            return Err(OTHER_HOST);
        };
        if !request.is_for_this_machine() {
            return Err(OTHER_HOST);
        }
        if !request.path.starts_with("/v1/") {
            // The page itself tells nothing.
            return Ok(());
        }
        let is_ours = |site: &str| site == "same-origin" || site == "none";
        let is_origin = |origin: &str| {
            let place = origin.split_once("://").map(|(_, place)| place);
            place.is_some_and(|place| place.eq_ignore_ascii_case(host))
        };
        if !request.headers("sec-fetch-site").all(is_ours) || !request.headers("origin").all(is_origin) {
            return Err(OTHER_SITE);
        }
        if request.method != "GET" && request.headers(HEADER).next().is_none() {
            return Err(NO_HEADER);
        }
        let Some(token) = token else {
            return Ok(());
        };
        // A cookie does not log in again.
        let is_known = token.is_shown(request) || (request.path != LOGIN && token.is_logged_in(request));
        if is_known { Ok(()) } else { Err(NO_TOKEN) }
    }

    /// What a browser keeps that has shown the token.
    pub(super) fn cookie(&self) -> Option<String> {
        match self {
            Self::Network { token: Some(token) } => Some(token.cookie()),
            _ => None,
        }
    }
}
