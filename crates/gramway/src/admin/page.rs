//! The status page: one file without anything from elsewhere, in the program.

use aws_lc_rs::digest::{SHA256, digest};
use data_encoding::BASE64;

use super::api::fixed_headers;
use crate::http::Response;

/// Markup, style and script.
const PAGE: &str = include_str!("page.html");

/// The page. Only its own style and script work in it, by their hashes, and it asks nobody but this server.
pub(super) fn page() -> Response {
    let hash = |element| BASE64.encode(digest(&SHA256, inside(element).as_bytes()).as_ref());
    let policy = format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; connect-src 'self'; img-src data:; base-uri \
         'none'; form-action 'none'; frame-ancestors 'none'",
        hash("script"),
        hash("style"),
    );
    let mut headers = fixed_headers();
    headers.push(("content-security-policy", policy));
    Response {
        status: "200 OK",
        content_type: "text/html; charset=utf-8",
        headers,
        body: PAGE.to_owned(),
        has_body: true,
    }
}

/// What stands in the only element of this kind.
fn inside(element: &str) -> &'static str {
    let after = PAGE.split_once(&format!("<{element}>")).map(|(_, after)| after);
    let found = after.and_then(|after| after.split_once(&format!("</{element}>")));
    found.map_or("", |(inside, _)| inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_small_and_names_nothing_elsewhere() {
        assert!(PAGE.len() < 60_000, "{} bytes", PAGE.len());
        assert!(!inside("script").is_empty() && !inside("style").is_empty());
        let without_namespaces = PAGE.replace("http://www.w3.org/2000/svg", "");
        for forbidden in [
            "http:",
            "https:",
            "//cdn",
            "@import",
            "url(",
            " style=",
            "innerHTML",
            "eval(",
        ] {
            assert!(!without_namespaces.contains(forbidden), "{forbidden}");
        }
    }
}
