//! The table of all settings. The file, the environment, the flags with their help, the commented file of a first run and
//! docs/settings.md come from it; a new setting is an entry here and a field in what the entry sets.

use std::path::PathBuf;

use tunnel_proto::TunRoutes;

use super::error::SettingError;
use super::setting::{Apply, DefaultValue, Flag, Kind, Reader, Setting, TakesEffect};
use super::values;
use crate::limits::{CONNECTIONS, UDP_PAYLOAD_BYTES};

const fn setting(key: &'static str, kind: Kind, reader: Reader, apply: Apply) -> Setting {
    Setting {
        key,
        kind,
        reader,
        flag: Flag::None,
        excludes: None,
        default: DefaultValue::Value(""),
        takes_effect: TakesEffect::AtStart,
        documentation: "",
        apply,
    }
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

    /// The default, in TOML.
    const fn default(mut self, value: &'static str) -> Self {
        self.default = DefaultValue::Value(value);
        self
    }

    /// What happens without a value, and a value for the file of a first run, in TOML.
    const fn unset(mut self, effect: &'static str, example: &'static str) -> Self {
        self.default = DefaultValue::Unset { effect, example };
        self
    }

    const fn about(mut self, documentation: &'static str) -> Self {
        self.documentation = documentation;
        self
    }
}

/// Every setting, in the order of the file of a first run. The environment is applied in this order.
pub(super) static SETTINGS: &[Setting] = &[
    setting("listen", Kind::Text, Reader::Server, |settings, value| {
        settings.listen = Some(values::listen(&value.text()?)?);
        Ok(())
    })
    .flag(Flag::Value("ADDR:PORT"))
    .unset("[::]:443, all addresses", "\"[::]:443\"")
    .about("Address and port to listen on"),
    setting("public", Kind::List, Reader::ServerAndLink, |settings, value| {
        let hosts = value.list()?;
        let read = |host: &String| crate::endpoint::parse_optional_port(host);
        settings.public = hosts.iter().map(read).collect::<Result<_, _>>()?;
        Ok(())
    })
    .flag(Flag::Value("HOST[:PORT]"))
    .unset(
        "the listening address, or the source addresses of the default routes",
        "[\"vpn.example.org\"]",
    )
    .about("Host that the link names, with a port if it is not the listening port"),
    setting("allow_target", Kind::List, Reader::Server, |settings, value| {
        let targets = value.list()?;
        let read = |target: &String| target.parse();
        settings.allow_target = targets.iter().map(read).collect::<Result<_, _>>()?;
        Ok(())
    })
    .flag(Flag::Value("CIDR[:PORT]"))
    .unset("none", "[\"127.0.0.1/32:53\"]")
    .about("Allow targets that are refused by default, such as loopback and the server's own addresses"),
    setting("tun", Kind::Text, Reader::Both, |settings, value| {
        settings.tun.name = Some(value.text()?).filter(|name| !name.is_empty());
        Ok(())
    })
    .flag(Flag::OptionalValue {
        value: "NAME",
        alone: crate::tun::AUTOMATIC,
    })
    .unset("no TUN device", "\"auto\"")
    .about(
        "Carry IP packets through a TUN device of this name; \"auto\", or the flag without a name, takes the first free \
         gramwayN. Needs root or CAP_NET_ADMIN",
    ),
    setting("pool", Kind::List, Reader::Server, |settings, value| {
        settings.tun.pools = values::prefixes(&value.list()?)?;
        Ok(())
    })
    .flag(Flag::Value("CIDR"))
    .unset("10.86.0.0/24 and a private IPv6 network", "[\"10.86.0.0/24\"]")
    .about("Lease clients' addresses from this network; its first address is the server's own"),
    setting("nat", Kind::Boolean, Reader::Server, |settings, value| {
        settings.tun.nat = value.boolean()?;
        Ok(())
    })
    .flag(Flag::On)
    .default("false")
    .about("Translate clients' addresses to this machine's, so that they reach what it reaches"),
    setting("advertise", Kind::List, Reader::Server, |settings, value| {
        settings.tun.advertise = Some(values::prefixes(&value.list()?)?);
        Ok(())
    })
    .flag(Flag::Value("CIDR"))
    .unset("everything with nat, else nothing", "[\"192.168.1.0/24\"]")
    .about("Advertise this network to clients, besides the pools"),
    setting("client_to_client", Kind::Boolean, Reader::Server, |settings, value| {
        settings.tun.client_to_client = value.boolean()?;
        Ok(())
    })
    .flag(Flag::On)
    .default("false")
    .about("Let clients of the TUN reach each other"),
    setting("route", Kind::List, Reader::Client, |settings, value| {
        settings.tun.routes = TunRoutes::These(values::prefixes(&value.list()?)?);
        Ok(())
    })
    .flag(Flag::Value("CIDR"))
    .excludes("no_routes")
    .unset("what the server advertises", "[\"192.168.1.0/24\"]")
    .about("Route this network through the TUN"),
    setting("no_routes", Kind::Boolean, Reader::Client, |settings, value| {
        if value.boolean()? {
            settings.tun.routes = TunRoutes::None;
        }
        Ok(())
    })
    .flag(Flag::On)
    .default("false")
    .about("Route nothing through the TUN, except the default route if default_route asks for it"),
    setting("default_route", Kind::Boolean, Reader::Client, |settings, value| {
        settings.tun.default_route = value.boolean()?;
        Ok(())
    })
    .flag(Flag::On)
    .default("false")
    .about("Route everything that has no more specific route through the TUN"),
    setting("dns", Kind::List, Reader::Client, |settings, value| {
        settings.tun.dns = values::addresses(&value.list()?)?;
        Ok(())
    })
    .flag(Flag::Value("ADDR"))
    .unset("the system's own", "[\"10.86.0.1\"]")
    .about("Name server to ask while the TUN is up"),
    setting("tun_offloads", Kind::Boolean, Reader::Both, |settings, value| {
        settings.tun.offloads = value.boolean()?;
        Ok(())
    })
    .flag(Flag::Off("Disable super-packets (GSO and GRO) on the TUN device"))
    .default("true")
    .about("Exchange super-packets (GSO and GRO) with the kernel through the TUN where it supports them"),
    setting("forward", Kind::List, Reader::Client, |settings, value| {
        settings.forward = crate::forward::parse_all(&value.list()?)?;
        Ok(())
    })
    .flag(Flag::Letter('L', "FORWARD"))
    .unset("none", "[\"udp:5353=10.0.0.1:53\"]")
    .about(
        "Forward udp:LISTEN=TARGET or tcp:LISTEN=TARGET. LISTEN is PORT (on 127.0.0.1), ADDR:PORT or [V6]:PORT; TARGET is \
         HOST:PORT or [V6]:PORT, resolved at the server",
    ),
    setting("repair", Kind::Text, Reader::Client, |settings, value| {
        settings.common.engine.repair = values::repair(&value.text()?)?;
        Ok(())
    })
    .flag(Flag::Value("LATENCY"))
    .unset("off", "\"40ms\"")
    .about(
        "Rebuild lost datagrams of UDP forwards, and lost IP packets that are marked urgent (DSCP EF, CS4, CS5, AF4x), from \
         parity, at most this much later than without loss: 1ms to 500ms, or off. Costs at most half as many bytes again, \
         and nothing without loss",
    ),
    setting("link_file", Kind::Path, Reader::Client, |settings, value| {
        settings.link_file = Some(PathBuf::from(value.path()?));
        Ok(())
    })
    .flag(Flag::Value("FILE"))
    .unset("none", "\"server.link\"")
    .about("File that holds the link; - reads it from standard input"),
    setting("bind", Kind::Text, Reader::Client, |settings, value| {
        let text = value.text()?;
        let address = text
            .parse()
            .map_err(|_| SettingError::text(&text, "not an IP address"))?;
        settings.bind = Some(address);
        Ok(())
    })
    .unset("the system chooses", "\"192.0.2.7\"")
    .about("Local address for connections to the server"),
    setting("connections", Kind::Integer, Reader::Both, |settings, value| {
        let count = value.integer_in(CONNECTIONS, "connections")?;
        settings.common.connections = Some(usize::try_from(count).expect("the range starts above zero"));
        Ok(())
    })
    .flag(Flag::Value("N"))
    .unset("one for each core", "2")
    .about("Threads that carry traffic, and a client's connections to its server, 1 to 16"),
    setting("max_udp_payload", Kind::Integer, Reader::Both, |settings, value| {
        let bytes = value.integer_in(UDP_PAYLOAD_BYTES, "bytes")?;
        settings.common.max_udp_payload = Some(u16::try_from(bytes).expect("the range ends below 65,536"));
        Ok(())
    })
    .flag(Flag::Value("BYTES"))
    .unset("what the interface's MTU allows", "1452")
    .about("Largest QUIC packet, in bytes of UDP payload, 1200 to 65507"),
    setting("profile", Kind::Text, Reader::Both, |settings, value| {
        settings.common.profile = values::profile(&value.text()?)?;
        Ok(())
    })
    .flag(Flag::Value("PROFILE"))
    .default("\"throughput\"")
    .about(
        "Congestion control: throughput fills the path, latency keeps its queue short, fixed:RATE sends at that rate in bits \
         per second whatever is lost (fixed:500M)",
    ),
    setting("gso", Kind::Boolean, Reader::Both, |settings, value| {
        settings.common.gso = value.boolean()?;
        Ok(())
    })
    .flag(Flag::Off("Disable UDP segmentation offload (GSO)"))
    .default("true")
    .about("Use UDP segmentation offload (GSO) where the kernel supports it"),
    setting("gro", Kind::Boolean, Reader::Both, |settings, value| {
        settings.common.gro = value.boolean()?;
        Ok(())
    })
    .flag(Flag::Off("Disable UDP receive offload (GRO)"))
    .default("true")
    .about("Use UDP receive offload (GRO) where the kernel supports it"),
    setting("receive_buffer_bytes", Kind::Integer, Reader::Both, |settings, value| {
        settings.common.receive_buffer_bytes = values::buffer(&value)?;
        Ok(())
    })
    .default("8388608")
    .about("Receive buffer to request for each UDP socket, in bytes"),
    setting("send_buffer_bytes", Kind::Integer, Reader::Both, |settings, value| {
        settings.common.send_buffer_bytes = values::buffer(&value)?;
        Ok(())
    })
    .default("4194304")
    .about("Send buffer to request for each UDP socket, in bytes"),
    setting("udp_idle_timeout_s", Kind::Integer, Reader::Both, |settings, value| {
        settings.common.engine.udp_idle_timeout = values::seconds(&value)?;
        Ok(())
    })
    .default("120")
    .about("Close a UDP session after this many seconds without traffic"),
    setting("oversize", Kind::Text, Reader::Both, |settings, value| {
        settings.common.engine.oversize = values::oversize(&value.text()?)?;
        Ok(())
    })
    .default("\"split\"")
    .about("Payloads that do not fit one QUIC packet: split them between Gramway peers, or drop and count them"),
    setting("queue_policy", Kind::Text, Reader::Both, |settings, value| {
        settings.common.engine.queue_policy = values::queue_policy(&value.text()?)?;
        Ok(())
    })
    .default("\"drop-newest\"")
    .about("What a full queue drops: drop-newest or drop-oldest"),
];

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::super::Settings;
    use super::super::values::Value;
    use super::*;

    fn apply(setting: &Setting, toml: &str) -> Settings {
        let mut settings = Settings::default();
        let text = toml.trim_matches(['[', ']']).trim_matches('"');
        let value = Value::from_text(setting.kind, OsStr::new(text)).unwrap();
        (setting.apply)(&mut settings, value).unwrap_or_else(|error| panic!("{}: {error}", setting.key));
        settings
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
}
