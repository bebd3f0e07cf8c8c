//! The table of all settings. The file, the environment, the flags with their help, the commented file of a first run
//! and docs/settings.md come from it; a new setting is an entry here and a field in what the entry sets.

use std::path::PathBuf;

use super::error::SettingError;
use super::setting::{Apply, DefaultValue, Flag, Kind, Reader, Setting};
use super::values;
use crate::limits::{CONNECTIONS, TCP_IDLE_SECONDS, UDP_IDLE_SECONDS, UDP_PAYLOAD_BYTES};

const fn setting(
    key: &'static str,
    kind: Kind,
    reader: Reader,
    default: DefaultValue,
    apply: Apply,
) -> Setting {
    Setting {
        key,
        kind,
        reader,
        flag: Flag::None,
        excludes: None,
        default,
        documentation: "",
        apply,
    }
}

/// A default, in TOML.
const fn default(value: &'static str) -> DefaultValue {
    DefaultValue::Value(value)
}

/// What happens without a value, and a value for the file of a first run, in TOML.
const fn unset(effect: &'static str, example: &'static str) -> DefaultValue {
    DefaultValue::Unset { effect, example }
}

impl Setting {
    const fn flag(mut self, flag: Flag) -> Self {
        self.flag = flag;
        self
    }

    const fn excludes(mut self, key: &'static str) -> Self {
        self.excludes = Some(key);
        self
    }

    const fn about(mut self, documentation: &'static str) -> Self {
        self.documentation = documentation;
        self
    }
}

/// Every setting, in the order of the file of a first run. Each source is applied in this order.
pub(super) static SETTINGS: &[Setting] = &[
    setting("listen", Kind::Text, Reader::Server, unset(
        "[::]:443, all addresses",
        "\"[::]:443\"",
    ), |settings, value| {
        settings.listen = Some(values::listen(&value.text()?)?);
        Ok(())
    })
    .flag(Flag::Value("ADDR:PORT"))
    .about("Address and port to listen on; :PORT is all addresses, localhost:PORT this machine alone"),
    setting("public", Kind::List, Reader::ServerAndLink, unset(
        "the listening address, or the source addresses of the default routes",
        "[\"vpn.example.org\"]",
    ), |settings, value| {
        let hosts = value.list()?;
        let read = |host: &String| crate::endpoint::parse_optional_port(host);
        settings.public = hosts.iter().map(read).collect::<Result<_, _>>()?;
        Ok(())
    })
    .flag(Flag::Value("HOST[:PORT]"))
    .about(
        "Host that the link names, with a port if it is not the listening port. Its addresses are closed to users like the \
         server's own",
    ),
    setting("allow_target", Kind::List, Reader::Server, unset(
        "none",
        "[\"127.0.0.1/32:53\"]",
    ), |settings, value| {
        let targets = value.list()?;
        let read = |target: &String| target.parse();
        settings.allow_target = targets.iter().map(read).collect::<Result<_, _>>()?;
        Ok(())
    })
    .flag(Flag::Value("CIDR[:PORT]"))
    .about("Allow targets that are refused by default, such as loopback and the server's own addresses"),
    setting("cover", Kind::Text, Reader::Server, unset("no cover", "\"www.example.org\""), |settings, value| {
        settings.cover.place = Some(crate::endpoint::parse_optional_port(&value.text()?)?);
        Ok(())
    })
    .flag(Flag::Value("HOST[:PORT]"))
    .about(
        "Look like this web site, which has HTTP/3, to everybody without the link: what they send goes to it and back. A host \
         or an address, with a port other than 443",
    ),
    setting("cover_name", Kind::Text, Reader::Server, unset("the cover's host", "\"www.example.org\""), |settings, value| {
        settings.cover.name = Some(values::shown_name(&value.text()?)?);
        Ok(())
    })
    .flag(Flag::Value("HOST"))
    .about("Name that clients ask the cover for; needed where the cover is an address"),
    setting("cover_tcp", Kind::Boolean, Reader::Server, default("true"), |settings, value| {
        settings.cover.tcp = value.boolean()?;
        Ok(())
    })
    .flag(Flag::Off("Leave TCP alone: the cover gets UDP only"))
    .about(
        "Pass TCP connections on to the cover as well, where the ports are free: those to the listening port to the cover's \
         port, those to port 80 to its port 80",
    ),
    setting("cover_window_s", Kind::Integer, Reader::Server, default("120"), |settings, value| {
        settings.cover.window = values::cover_window(&value)?;
        Ok(())
    })
    .about("With a cover, how far a client's clock may be off in seconds, 10 to 600"),
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
        "Route everything through the TUN, or nowhere, whatever other routes there are. Until the end, and after a crash, \
         nothing leaves the machine otherwise",
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
        "With default_route, let nothing leave the machine after the client's end, either, until the next client or `gramway \
         release`",
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
        "Name server: up offers it to clients, connect has this whole machine ask it while the TUN is up, and nobody else \
         if everything is routed",
    ),
    setting("no_dns", Kind::Boolean, Reader::Both, default("false"), |settings, value| {
        settings.tun.no_dns = value.boolean()?;
        Ok(())
    })
    .flag(Flag::On)
    .about(
        "Name servers stay as they are: up offers none to clients, connect uses none that is offered. Overrides dns of the \
         same source and of weaker ones",
    ),
    setting("tun_offloads", Kind::Boolean, Reader::Both, default("true"), |settings, value| {
        settings.tun.offloads = value.boolean()?;
        Ok(())
    })
    .flag(Flag::Off("Disable super-packets (GSO and GRO) on the TUN device"))
    .about("Exchange super-packets (GSO and GRO) with the kernel through the TUN where it supports them"),
    setting("forward", Kind::List, Reader::Client, unset(
        "none",
        "[\"udp:5353=10.0.0.1:53\"]",
    ), |settings, value| {
        settings.forward = crate::forward::parse_all(&value.list()?)?;
        Ok(())
    })
    .flag(Flag::Letter('L', "FORWARD"))
    .about(
        "Forward udp:LISTEN=TARGET or tcp:LISTEN=TARGET. LISTEN is PORT or localhost:PORT (127.0.0.1), ADDR:PORT, [V6]:PORT \
         or :PORT (all addresses); TARGET is HOST:PORT or [V6]:PORT, resolved at the server. Both may have a range of ports \
         of the same length, FIRST-LAST",
    ),
    setting("repair", Kind::Text, Reader::Client, unset("off", "\"40ms\""), |settings, value| {
        settings.common.engine.repair = values::repair(&value.text()?)?;
        Ok(())
    })
    .flag(Flag::Value("LATENCY"))
    .about(
        "Rebuild lost datagrams of UDP forwards, and lost IP packets that are marked urgent (DSCP EF, CS4, CS5, AF4x), from \
         parity, at most this much later than without loss: 1ms to 500ms, or off. Costs at most half as many bytes again, \
         and nothing without loss",
    ),
    setting("link_file", Kind::Path, Reader::Client, unset("none", "\"server.link\""), |settings, value| {
        let path = value.path()?;
        if crate::link::is_link(&path) {
            return Err(SettingError::LinkForFile);
        }
        settings.link_file = Some(PathBuf::from(path));
        Ok(())
    })
    .flag(Flag::Value("FILE"))
    .about("File that holds the link; - reads it from standard input"),
    setting("exit_on_failure", Kind::Boolean, Reader::Client, default("false"), |settings, value| {
        settings.exit_on_failure = value.boolean()?;
        Ok(())
    })
    .flag(Flag::On)
    .about("End with exit code 69 if no connection comes about within 15 s of the start, instead of trying on"),
    setting("bind", Kind::Text, Reader::Client, unset(
        "the system chooses",
        "\"192.0.2.7\"",
    ), |settings, value| {
        let text = value.text()?;
        let address = text
            .parse()
            .map_err(|_| SettingError::text(&text, "not an IP address"))?;
        settings.bind = Some(address);
        Ok(())
    })
    .flag(Flag::Value("ADDR"))
    .about("Local address for connections to the server"),
    setting("connections", Kind::Integer, Reader::Both, unset("one for each core", "2"), |settings, value| {
        let count = value.integer_in(CONNECTIONS, "connections")?;
        settings.common.connections = Some(usize::try_from(count).expect("the range starts above zero"));
        Ok(())
    })
    .flag(Flag::Value("N"))
    .about("Threads that carry traffic, and a client's connections to its server, 1 to 16"),
    setting("max_udp_payload", Kind::Integer, Reader::Both, unset(
        "what the interface's MTU allows",
        "1452",
    ), |settings, value| {
        let bytes = value.integer_in(UDP_PAYLOAD_BYTES, "bytes")?;
        settings.common.max_udp_payload = Some(u16::try_from(bytes).expect("the range ends below 65,536"));
        Ok(())
    })
    .flag(Flag::Value("BYTES"))
    .about("Largest QUIC packet, in bytes of UDP payload, 1200 to 65507"),
    setting("profile", Kind::Text, Reader::Both, default("\"throughput\""), |settings, value| {
        settings.common.profile = values::profile(&value.text()?)?;
        Ok(())
    })
    .flag(Flag::Value("PROFILE"))
    .about(
        "Congestion control: throughput fills the path, latency keeps its queue short, fixed:RATE sends at that rate in bits \
         per second whatever is lost (fixed:500M), 1M to 1000G",
    ),
    setting("gso", Kind::Boolean, Reader::Both, default("true"), |settings, value| {
        settings.common.gso = value.boolean()?;
        Ok(())
    })
    .flag(Flag::Off("Disable UDP segmentation offload (GSO)"))
    .about("Use UDP segmentation offload (GSO) where the kernel supports it"),
    setting("gro", Kind::Boolean, Reader::Both, default("true"), |settings, value| {
        settings.common.gro = value.boolean()?;
        Ok(())
    })
    .flag(Flag::Off("Disable UDP receive offload (GRO)"))
    .about("Use UDP receive offload (GRO) where the kernel supports it"),
    setting("sandbox", Kind::Boolean, Reader::Both, default("true"), |settings, value| {
        settings.has_no_sandbox = !value.boolean()?;
        Ok(())
    })
    .flag(Flag::Off("Keep privileges, files and system calls that are not needed (no capabilities dropped, no Landlock, no seccomp)"))
    .about("Give up privileges, files and system calls that are not needed (capabilities, Landlock, seccomp)"),
    setting("receive_buffer_bytes", Kind::Integer, Reader::Both, default("8388608"), |settings, value| {
        settings.common.receive_buffer_bytes = values::buffer(&value)?;
        Ok(())
    })
    .about(
        "Receive buffer to request for each UDP socket, at a server's sockets to targets only when they carry much, in bytes, \
         65536 to 1073741824",
    ),
    setting("send_buffer_bytes", Kind::Integer, Reader::Both, default("4194304"), |settings, value| {
        settings.common.send_buffer_bytes = values::buffer(&value)?;
        Ok(())
    })
    .about("Send buffer to request for each UDP socket, in bytes, 65536 to 1073741824"),
    setting("udp_idle_timeout_s", Kind::Integer, Reader::Both, default("120"), |settings, value| {
        settings.common.engine.udp_idle_timeout = values::seconds_in(&value, UDP_IDLE_SECONDS)?;
        Ok(())
    })
    .about("Close a UDP session after this many seconds without traffic, 1 to 86400"),
    setting("tcp_idle_timeout_s", Kind::Integer, Reader::Server, default("7440"), |settings, value| {
        settings.common.engine.tcp_idle_timeout = values::seconds_in(&value, TCP_IDLE_SECONDS)?;
        Ok(())
    })
    .about("Reset a TCP connection to a target after this many seconds without traffic, 1 to 604800"),
    setting("oversize", Kind::Text, Reader::Both, default("\"split\""), |settings, value| {
        settings.common.engine.oversize = values::oversize(&value.text()?)?;
        Ok(())
    })
    .about("Payloads that do not fit one QUIC packet: split them between Gramway peers, or drop and count them"),
    setting("queue_policy", Kind::Text, Reader::Both, default("\"drop-newest\""), |settings, value| {
        settings.common.engine.queue_policy = values::queue_policy(&value.text()?)?;
        Ok(())
    })
    .about("What a full queue drops: drop-newest or drop-oldest"),
];

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::super::Settings;
    use super::super::values::Value;
    use super::*;

    fn try_apply(setting: &Setting, text: &str) -> Result<Settings, SettingError> {
        let mut settings = Settings::default();
        let value = Value::from_text(setting.kind, OsStr::new(text))?;
        (setting.apply)(&mut settings, value)?;
        Ok(settings)
    }

    fn apply(setting: &Setting, toml: &str) -> Settings {
        let text = toml.trim_matches(['[', ']']).trim_matches('"');
        try_apply(setting, text).unwrap_or_else(|error| panic!("{}: {error}", setting.key))
    }

    #[test]
    fn every_default_is_what_the_program_does_without_the_setting() {
        let without = format!("{:?}", Settings::default());
        for setting in SETTINGS {
            if let DefaultValue::Value(value) = setting.default {
                assert_eq!(format!("{:?}", apply(setting, value)), without, "{}", setting.key);
            }
        }
    }

    #[test]
    fn every_example_sets_something() {
        let without = format!("{:?}", Settings::default());
        for setting in SETTINGS {
            if let DefaultValue::Unset { example, .. } = setting.default {
                assert_ne!(
                    format!("{:?}", apply(setting, example)),
                    without,
                    "{}",
                    setting.key
                );
            }
        }
    }

    #[test]
    fn every_switch_changes_its_default() {
        for setting in SETTINGS {
            match (setting.flag, setting.default) {
                (Flag::On, default) => assert_eq!(default, DefaultValue::Value("false"), "{}", setting.key),
                (Flag::Off(_), default) => {
                    assert_eq!(default, DefaultValue::Value("true"), "{}", setting.key)
                }
                _ => {}
            }
        }
    }

    #[test]
    fn every_setting_is_documented_without_a_full_stop() {
        for setting in SETTINGS {
            let text = setting.documentation;
            assert!(
                text.starts_with(char::is_uppercase) && !text.ends_with('.'),
                "{}",
                setting.key
            );
        }
    }
    /// Numbers tell theirs at the end of their documentation: "…, FIRST to LAST".
    #[test]
    fn every_number_keeps_exactly_the_bounds_that_are_documented() {
        for setting in SETTINGS.iter().filter(|setting| setting.kind == Kind::Integer) {
            let bounds = setting
                .documentation
                .rsplit_once(", ")
                .map_or("", |(_, bounds)| bounds);
            let bounds = bounds
                .split_once(" to ")
                .unwrap_or_else(|| panic!("{} tells no bounds", setting.key));
            let first: i64 = bounds.0.parse().unwrap();
            let last: i64 = bounds.1.parse().unwrap();
            for (number, is_inside) in [(first - 1, false), (first, true), (last, true), (last + 1, false)] {
                let applied = try_apply(setting, &number.to_string());
                assert_eq!(applied.is_ok(), is_inside, "{} = {number}", setting.key);
            }
        }
    }

    #[test]
    fn latencies_and_rates_keep_exactly_the_bounds_that_are_documented() {
        for (key, bounds, inside, outside) in [
            ("repair", "1ms to 500ms", ["1ms", "500ms"], ["0ms", "501ms"]),
            (
                "profile",
                "1M to 1000G",
                ["fixed:1M", "fixed:1000G"],
                ["fixed:999k", "fixed:1001G"],
            ),
        ] {
            let setting = SETTINGS.iter().find(|setting| setting.key == key).unwrap();
            assert!(setting.documentation.contains(bounds), "{key}");
            assert!(
                inside.iter().all(|text| try_apply(setting, text).is_ok()),
                "{key}"
            );
            assert!(
                outside.iter().all(|text| try_apply(setting, text).is_err()),
                "{key}"
            );
        }
    }
}
