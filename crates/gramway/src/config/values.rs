//! What a key's value may be: types, units and ranges.

use std::ffi::{OsStr, OsString};
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Duration;

use tunnel::config::Profile;
use tunnel_proto::{Oversize, Prefix, QueuePolicy};

use super::CarrierSetting;
use super::error::SettingError;
use super::setting::Kind;
use crate::addresses;
use crate::limits::{
    COVER_WINDOW_SECONDS, FIXED_RATE_MAX, FIXED_RATE_MIN, REPAIR_MILLISECONDS, SOCKET_BUFFER_BYTES,
};

/// A value before its key gives it a meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Text(String),
    Path(OsString),
    Integer(i64),
    Boolean(bool),
    List(Vec<String>),
}

impl Value {
    /// Reads what a flag or an environment variable holds.
    pub(super) fn from_text(kind: Kind, text: &OsStr) -> Result<Self, SettingError> {
        if kind == Kind::Path {
            return Ok(Self::Path(text.to_owned()));
        }
        let text = text.to_str().ok_or(SettingError::NotUtf8)?;
        match kind {
            Kind::Text | Kind::Path => Ok(Self::Text(text.to_owned())),
            Kind::Integer => match text.parse() {
                Ok(number) => Ok(Self::Integer(number)),
                Err(_) => Err(SettingError::text(text, "not a whole number")),
            },
            Kind::Boolean => match text {
                "true" | "1" => Ok(Self::Boolean(true)),
                "false" | "0" => Ok(Self::Boolean(false)),
                _ => Err(SettingError::text(text, "neither true nor false")),
            },
            Kind::List => {
                let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
                Ok(Self::List(parts.map(str::to_owned).collect()))
            }
        }
    }

    /// Reads what a flag holds that was given once or more: a list takes all of its values, others the last.
    pub(super) fn from_texts(kind: Kind, texts: &[OsString]) -> Result<Self, SettingError> {
        if kind == Kind::List {
            let read = |text: &OsString| text.to_str().map(str::to_owned).ok_or(SettingError::NotUtf8);
            return Ok(Self::List(texts.iter().map(read).collect::<Result<_, _>>()?));
        }
        Self::from_text(kind, texts.last().expect("a flag that was given has a value"))
    }

    pub(super) fn text(self) -> Result<String, SettingError> {
        match self {
            Self::Text(text) => Ok(text),
            _ => Err(SettingError::Type("a text in double quotes")),
        }
    }

    pub(super) fn path(self) -> Result<OsString, SettingError> {
        match self {
            Self::Path(path) => Ok(path),
            value => value.text().map(OsString::from),
        }
    }

    pub(super) fn boolean(self) -> Result<bool, SettingError> {
        match self {
            Self::Boolean(value) => Ok(value),
            _ => Err(SettingError::Type("true or false, without quotes")),
        }
    }

    pub(super) fn list(self) -> Result<Vec<String>, SettingError> {
        match self {
            Self::List(list) => Ok(list),
            _ => Err(SettingError::Type("a list of texts, [\"…\", \"…\"]")),
        }
    }

    pub(super) fn integer_in(
        &self,
        range: RangeInclusive<i64>,
        unit: &'static str,
    ) -> Result<i64, SettingError> {
        match self {
            Self::Integer(number) if range.contains(number) => Ok(*number),
            Self::Integer(number) => Err(SettingError::Range {
                number: *number,
                first: *range.start(),
                last: *range.end(),
                unit,
            }),
            _ => Err(SettingError::Type("a whole number, without quotes")),
        }
    }
}

/// `ADDR:PORT`, port 0 for one that the system chooses.
pub(super) fn listen(text: &str) -> Result<SocketAddr, SettingError> {
    let (address, port) = text.rsplit_once(':').unwrap_or((text, ""));
    let address = addresses::of_listener(address);
    address
        .zip(port.parse().ok())
        .map(SocketAddr::from)
        .ok_or_else(|| SettingError::text(text, "not ADDRESS:PORT, such as [::]:443 or 192.0.2.7:443"))
}

/// `ADDR:PORT` with a port that others can be told.
pub(super) fn listen_at(text: &str) -> Result<SocketAddr, SettingError> {
    let wrong = || SettingError::text(text, "not ADDRESS:PORT, such as [::]:443, with a port from 1 on");
    listen(text)
        .ok()
        .filter(|address| address.port() != 0)
        .ok_or_else(wrong)
}

/// Over what a client reaches its server.
pub(super) fn carrier(text: &str) -> Result<CarrierSetting, SettingError> {
    match text {
        "auto" => Ok(CarrierSetting::Auto),
        "udp" => Ok(CarrierSetting::Udp),
        "tcp" => Ok(CarrierSetting::Tcp),
        _ => Err(SettingError::text(text, "none of udp, tcp and auto")),
    }
}

/// Ranges of addresses. Host bits are an error, because they are probably a mistake.
pub(super) fn prefixes(texts: &[String]) -> Result<Vec<Prefix>, SettingError> {
    let read = |text: &String| {
        text.parse().map_err(|error| SettingError::Prefix {
            text: text.clone(),
            error,
        })
    };
    texts.iter().map(read).collect()
}

/// Addresses.
pub(super) fn ip_addresses(texts: &[String]) -> Result<Vec<IpAddr>, SettingError> {
    let read = |text: &String| {
        text.parse()
            .map_err(|_| SettingError::text(text, "not an IP address"))
    };
    texts.iter().map(read).collect()
}

/// `throughput`, `latency` or `fixed:RATE`.
pub(super) fn profile(text: &str) -> Result<Profile, SettingError> {
    match (text, text.strip_prefix("fixed:")) {
        ("throughput", _) => Ok(Profile::Throughput),
        ("latency", _) => Ok(Profile::Latency),
        (_, Some(rate)) => Ok(Profile::Fixed {
            bits_per_second: bit_rate(rate)?,
        }),
        _ => Err(SettingError::text(text, "not throughput, latency or fixed:RATE")),
    }
}

/// Bits per second: digits and optionally k, M or G (powers of ten).
pub(crate) fn bit_rate(text: &str) -> Result<u64, SettingError> {
    let (digits, factor) = match text.char_indices().last() {
        Some((end, 'k')) => (&text[..end], 1_000),
        Some((end, 'M')) => (&text[..end], 1_000_000),
        Some((end, 'G')) => (&text[..end], 1_000_000_000),
        _ => (text, 1),
    };
    digits
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(factor))
        .filter(|rate| (FIXED_RATE_MIN..=FIXED_RATE_MAX).contains(rate))
        .ok_or_else(|| SettingError::text(text, "not a rate from 1M to 1000G bits per second, such as 500M"))
}

/// Bytes of a socket buffer.
pub(super) fn buffer(value: &Value) -> Result<usize, SettingError> {
    let bytes = value.integer_in(SOCKET_BUFFER_BYTES, "bytes")?;
    Ok(usize::try_from(bytes).expect("the range starts above zero and ends below 2^31"))
}

/// A time in seconds; the range begins above zero.
pub(super) fn seconds_in(value: &Value, range: RangeInclusive<i64>) -> Result<Duration, SettingError> {
    let seconds = value.integer_in(range, "seconds")?;
    Ok(Duration::from_secs(
        u64::try_from(seconds).expect("the range starts above zero"),
    ))
}

/// How far a client's clock may be off.
pub(super) fn cover_window(value: &Value) -> Result<Duration, SettingError> {
    let seconds = value.integer_in(COVER_WINDOW_SECONDS, "seconds")?;
    Ok(Duration::from_secs(seconds.unsigned_abs()))
}

/// The name to show: a host name without a port.
pub(super) fn shown_name(text: &str) -> Result<String, SettingError> {
    match tunnel_proto::link::parse_optional_port(text)? {
        (_, Some(_)) => Err(SettingError::text(text, "not a name: it has a port")),
        (host, None) => tunnel_proto::link::shown_name(&host)
            .ok_or_else(|| SettingError::text(text, "not a name, but an address")),
    }
}

/// A latency in milliseconds, such as `40ms`, or `off`.
pub(super) fn repair(text: &str) -> Result<Option<Duration>, SettingError> {
    if text == "off" {
        return Ok(None);
    }
    let milliseconds = text
        .strip_suffix("ms")
        .and_then(|number| number.trim().parse().ok());
    match milliseconds {
        Some(number) if REPAIR_MILLISECONDS.contains(&number) => Ok(Some(Duration::from_millis(number))),
        Some(number) => Err(SettingError::RepairRange(number)),
        None => Err(SettingError::text(
            text,
            "neither a latency in milliseconds, such as 40ms, nor off",
        )),
    }
}

/// `split` or `drop`.
pub(super) fn oversize(text: &str) -> Result<Oversize, SettingError> {
    match text {
        "split" => Ok(Oversize::Split),
        "drop" => Ok(Oversize::Drop),
        _ => Err(SettingError::text(text, "neither split nor drop")),
    }
}

/// `drop-newest` or `drop-oldest`.
pub(super) fn queue_policy(text: &str) -> Result<QueuePolicy, SettingError> {
    match text {
        "drop-newest" => Ok(QueuePolicy::DropNewest),
        "drop-oldest" => Ok(QueuePolicy::DropOldest),
        _ => Err(SettingError::text(text, "neither drop-newest nor drop-oldest")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_take_decimal_suffixes_and_keep_their_bounds() {
        assert_eq!(bit_rate("2G"), Ok(2_000_000_000));
        assert_eq!(bit_rate("1000k"), Ok(1_000_000));
        assert_eq!(bit_rate("1500000"), Ok(1_500_000));
        for text in [
            "",
            "G",
            "0",
            "999k",
            "1001G",
            "1g",
            "1 G",
            "-1M",
            "99999999999999999999",
            "1µ",
        ] {
            assert!(bit_rate(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_name_to_show_is_a_name_and_nothing_else() {
        assert_eq!(shown_name("WWW.Example.org."), Ok("www.example.org".to_owned()));
        for text in [
            "example.org:443",
            "192.0.2.1",
            "::1",
            "[::1]",
            "",
            "https://example.org",
        ] {
            assert!(shown_name(text).is_err(), "{text}");
        }
    }

    #[test]
    fn profiles_and_words_outside_their_lists_are_refused() {
        assert_eq!(profile("latency"), Ok(Profile::Latency));
        assert!(profile("fast").unwrap_err().to_string().contains("fixed:RATE"));
        assert!(oversize("stream").is_err());
        assert!(queue_policy("oldest").is_err());
        assert_eq!(listen("localhost:443"), Ok("127.0.0.1:443".parse().unwrap()));
        assert_eq!(listen("[::1]:0"), Ok("[::1]:0".parse().unwrap()));
        assert!(listen(":443").is_ok_and(|listen| listen.ip().is_unspecified()));
        for text in ["443", "::1:443", "localhost", "a:443", ":", ":65536"] {
            assert!(listen(text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_keep_their_range_and_say_the_unit() {
        let error = Value::Integer(100)
            .integer_in(1_200..=65_507, "bytes")
            .unwrap_err();
        assert_eq!(error.to_string(), "100 is outside 1200 to 65507 bytes");
        assert!(Value::Text("1".into()).integer_in(0..=9, "bytes").is_err());
    }
}
