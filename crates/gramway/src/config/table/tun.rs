//! The TUN device of either end: addresses, routes, name servers.

use super::{default, setting, unset};
use crate::config::setting::{Flag, Kind, Reader, Setting};
use crate::config::values;

pub(super) static SETTINGS: &[Setting] = &[
    setting("tun", Kind::Text, Reader::Both, unset("no TUN device", "\"auto\""), |settings, value| {
        settings.tun.name = Some(value.text()?).filter(|name| !name.is_empty());
        Ok(())
    })
    .flag(Flag::OptionalValue {
        value: "NAME",
        alone: crate::tun::AUTOMATIC,
    })
    .about(
        "Carry IP packets through a TUN device of this name; \"auto\", or the flag without a name, takes the first free \
         gramwayN. Needs root or CAP_NET_ADMIN",
    ),
    setting("pool", Kind::List, Reader::Server, unset(
        "10.86.0.0/24 and a private IPv6 network",
        "[\"10.86.0.0/24\"]",
    ), |settings, value| {
        settings.tun.pools = values::prefixes(&value.list()?)?;
        Ok(())
    })
    .flag(Flag::Value("CIDR"))
    .about("Lease clients' addresses from this network; its first address is the server's own"),
    setting("nat", Kind::Boolean, Reader::Server, default("false"), |settings, value| {
        settings.tun.nat = value.boolean()?;
        Ok(())
    })
    .flag(Flag::On)
    .about("Translate clients' addresses to this machine's, so that they reach what it reaches"),
    setting("advertise", Kind::List, Reader::Server, unset(
        "everything with nat, else nothing",
        "[\"192.168.1.0/24\"]",
    ), |settings, value| {
        settings.tun.advertise = Some(values::prefixes(&value.list()?)?);
        Ok(())
    })
    .flag(Flag::Value("CIDR"))
    .about("Advertise this network to clients, besides the pools"),
    setting("client_to_client", Kind::Boolean, Reader::Server, default("false"), |settings, value| {
        settings.tun.client_to_client = value.boolean()?;
        Ok(())
    })
    .flag(Flag::On)
    .about("Let clients of the TUN reach each other"),
    setting("route", Kind::List, Reader::Client, unset(
        "what the server advertises",
        "[\"192.168.1.0/24\"]",
    ), |settings, value| {
        settings.tun.routes = Some(values::prefixes(&value.list()?)?);
        // A weaker source's; the same source's comes after this.
        settings.tun.no_routes = false;
        Ok(())
    })
    .flag(Flag::Value("CIDR"))
    .excludes("no_routes")
    .about("Route this network through the TUN"),
    setting("no_routes", Kind::Boolean, Reader::Client, default("false"), |settings, value| {
        settings.tun.no_routes = value.boolean()?;
        Ok(())
    })
    .flag(Flag::On)
    .about(
        "Route nothing through the TUN, except the default route if default_route asks for it. Overrides route of the same \
         source and of weaker ones",
    ),
    setting("default_route", Kind::Boolean, Reader::Client, default("false"), |settings, value| {
        settings.tun.default_route = value.boolean()?;
        Ok(())
    })
    .flag(Flag::On)
    .about(
        "Route everything through the TUN and let nothing else leave the machine, until the end and after a crash",
    ),
    setting("allow_lan", Kind::Boolean, Reader::Client, default("false"), |settings, value| {
        settings.tun.allow_lan = value.boolean()?;
        Ok(())
    })
    .flag(Flag::On)
    .about(
        "With default_route, let packets to private, link-local and multicast networks, and to those on the machine's links, \
         leave outside the tunnel",
    ),
    setting("exclude", Kind::List, Reader::Client, unset("none", "[\"198.51.100.0/24\"]"), |settings, value| {
        settings.tun.exclude = values::prefixes(&value.list()?)?;
        Ok(())
    })
    .flag(Flag::Value("CIDR"))
    .about("With default_route, let packets to this network leave outside the tunnel"),
    setting("kill_switch", Kind::Boolean, Reader::Client, default("false"), |settings, value| {
        settings.tun.kill_switch = value.boolean()?;
        Ok(())
    })
    .flag(Flag::On)
    .about(
        "With default_route, let nothing leave the machine after the client has ended either, until the next client or \
         `gramway release`",
    ),
    setting("dns", Kind::List, Reader::Both, unset(
        "up: a name server at the server's own address, which asks those of its machine; connect: with default_route what \
         the server offers, else none",
        "[\"10.86.0.1\"]",
    ), |settings, value| {
        settings.tun.dns = values::ip_addresses(&value.list()?)?;
        // A weaker source's; the same source's comes after this.
        settings.tun.no_dns = false;
        Ok(())
    })
    .flag(Flag::Value("ADDR"))
    .excludes("no_dns")
    .about(
        "Name server: up offers it to clients; connect sets it for this whole machine while the TUN is up, as the only one \
         if everything is routed",
    ),
    setting("no_dns", Kind::Boolean, Reader::Both, default("false"), |settings, value| {
        settings.tun.no_dns = value.boolean()?;
        Ok(())
    })
    .flag(Flag::On)
    .about(
        "Leave name servers as they are: up offers none to clients, connect uses none that is offered. Overrides dns of the \
         same source and of weaker ones",
    ),
    setting("tun_offloads", Kind::Boolean, Reader::Both, default("true"), |settings, value| {
        settings.tun.offloads = value.boolean()?;
        Ok(())
    })
    .flag(Flag::Off("Disable super-packets (GSO and GRO) on the TUN device"))
    .about("Exchange super-packets (GSO and GRO) with the kernel through the TUN where it supports them"),
];
