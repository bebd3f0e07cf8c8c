//! A cover: what strangers see of a server in front of somebody else's web site, and which sites can be one.

mod examination;
mod prober;

/// The name that covers have a certificate for.
const NAME: &str = "cover.test";
