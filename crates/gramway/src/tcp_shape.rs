//! The carrier in TCP's shape as settings, links and privileges have it (specs/fake-tcp.md).

use std::net::SocketAddr;

use rustix::thread::{CapabilitySet, capabilities};
use tunnel::config::{CarrierChoice, TcpListen};
use tunnel_proto::link::Endpoint;

use crate::config::{CarrierSetting, Settings};
use crate::exit::Problem;
use crate::log;

/// Whether this process may exchange packets that look like TCP.
fn is_allowed() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::NET_RAW))
}

/// What is missing, and how it is had.
pub(crate) fn require(setting: &str) -> Result<(), Problem> {
    if is_allowed() {
        return Ok(());
    }
    Err(Problem::permission(format!(
        "{setting} needs the capability CAP_NET_RAW for packets that look like TCP; run it as root, or as a service with \
         AmbientCapabilities=CAP_NET_RAW"
    )))
}

/// Refuses a server that is to listen in TCP's shape, at `udp` over UDP, where it may not or cannot.
pub(crate) fn check_server(settings: &Settings, udp: SocketAddr) -> Result<(), Problem> {
    let Some(tcp) = settings.tcp else { return Ok(()) };
    let port = tcp.address(udp).port();
    if settings.cover.place.is_some() && settings.cover.tcp && port == udp.port() {
        return Err(Problem::usage(format!(
            "with a cover, connections to TCP port {port} go to the cover; name another port, such as --tcp=:8443, or leave \
             TCP to us with --no-cover-tcp"
        )));
    }
    require("--tcp")
}

/// The port that the link names: all hosts have the same. Where it is UDP's, so it is where others see it.
pub(crate) fn announced(tcp: Option<TcpListen>, endpoints: &[Endpoint]) -> Option<u16> {
    match tcp? {
        TcpListen::LikeUdp => endpoints.first().map(|endpoint| endpoint.port),
        TcpListen::At(address) => Some(address.port()),
    }
}

/// Over what a client reaches its server, whose link names `tcp_port`. Without the privilege `auto` is UDP.
pub(crate) fn of_client(setting: CarrierSetting, tcp_port: Option<u16>) -> Result<CarrierChoice, Problem> {
    match setting {
        CarrierSetting::Udp => Ok(CarrierChoice::UDP),
        CarrierSetting::Auto => {
            if tcp_port.is_some() && !is_allowed() {
                log::warning(
                    "carrier",
                    "the server is sought over UDP alone; packets that look like TCP need the capability CAP_NET_RAW",
                );
            }
            Ok(CarrierChoice {
                udp: true,
                tcp_port: tcp_port.filter(|_| is_allowed()),
            })
        }
        CarrierSetting::Tcp if tcp_port.is_none() => Err(Problem::usage(
            "--carrier tcp: the link names no TCP port; start the server with --tcp, and use the link that it prints then",
        )),
        CarrierSetting::Tcp => {
            require("--carrier tcp")?;
            Ok(CarrierChoice { udp: false, tcp_port })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_carrier_without_its_port_is_refused_and_udp_needs_nothing() {
        assert_eq!(of_client(CarrierSetting::Auto, None).unwrap(), CarrierChoice::UDP);
        assert_eq!(
            of_client(CarrierSetting::Udp, Some(443)).unwrap(),
            CarrierChoice::UDP
        );
        let problem = of_client(CarrierSetting::Tcp, None).unwrap_err();
        assert!(
            problem.to_string().contains("start the server with --tcp"),
            "{problem}"
        );
    }

    #[test]
    fn a_cover_keeps_its_tcp_port() {
        let mut settings = Settings {
            tcp: Some(TcpListen::LikeUdp),
            ..Settings::default()
        };
        settings.cover.place = Some(("www.example.org".to_owned(), None));
        let udp = "[::]:443".parse().unwrap();
        let problem = check_server(&settings, udp).unwrap_err();
        assert_eq!(problem.code() as u8, 64);
        assert!(
            problem.to_string().contains("TCP port 443 go to the cover"),
            "{problem}"
        );
    }

    #[test]
    fn the_link_names_the_port_that_others_see() {
        let endpoints = [Endpoint::parse("example.org:8443").unwrap()];
        assert_eq!(announced(None, &endpoints), None);
        assert_eq!(announced(Some(TcpListen::LikeUdp), &endpoints), Some(8_443));
        let at = TcpListen::At("[::]:444".parse().unwrap());
        assert_eq!(announced(Some(at), &endpoints), Some(444));
    }
}
