//! A cover: what strangers see of a server that stands in front of somebody else's web site.

mod prober;
