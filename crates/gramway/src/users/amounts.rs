//! How much and how long, as people write it: quotas and ends.

use store::limits::QUOTA_BYTES_MAX;
use store::{Day, Period, Quota};

use crate::units;

/// What an option says: a value, or that there is none.
pub(super) type Set<T> = Option<T>;

/// `100G/month`, `500M/day`, `2T` in all, `none`. Units are powers of ten, and never left out: whoever writes `10`
/// means something larger than ten bytes.
pub(super) fn parse_quota(text: &str) -> Result<Set<Quota>, String> {
    if text == "none" {
        return Ok(None);
    }
    let (amount, period) = text.split_once('/').unwrap_or((text, Period::Total.name()));
    let period = Period::of_name(period).ok_or("behind the slash stands day, week, month or total")?;
    let digits = amount.trim_end_matches(|c: char| !c.is_ascii_digit());
    let factor = match &amount[digits.len()..] {
        "k" | "K" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "T" => 1_000_000_000_000,
        _ => return Err("a quota is a number with its unit, K, M, G or T, like 100G/month".to_owned()),
    };
    let number: u64 = digits
        .parse()
        .map_err(|_| "a quota is a whole number, like 100G/month")?;
    match number.checked_mul(factor) {
        Some(bytes @ 1..=QUOTA_BYTES_MAX) => Ok(Some(Quota { bytes, period })),
        _ => Err(format!(
            "a quota is between 1K and {}",
            units::bytes(QUOTA_BYTES_MAX)
        )),
    }
}

/// `20M`, `1G`, `none`: bits per second in powers of ten.
pub(super) fn parse_rate(text: &str) -> Result<Set<u64>, String> {
    if text == "none" {
        return Ok(None);
    }
    let rate = crate::config::bit_rate(text).map_err(|error| error.to_string())?;
    Ok(Some(rate))
}

/// The same as people read it.
pub(super) fn rate_text(bits_per_second: u64) -> String {
    match bits_per_second {
        rate if rate % 1_000_000_000 == 0 => format!("{} Gbit/s", rate / 1_000_000_000),
        rate => format!("{} Mbit/s", rate as f64 / 1e6),
    }
}

/// When a user expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ends {
    /// So many seconds from now.
    In(u64),
    /// At the beginning of this day, UTC.
    On(Day),
}

impl Ends {
    /// In seconds of Unix time.
    pub(super) fn at(self, now: u64) -> u64 {
        match self {
            Self::In(seconds) => now.saturating_add(seconds),
            Self::On(day) => day.begin(),
        }
    }
}

/// `30s`, `90m`, `12h`, `30d`, `4w`, `2027-01-31`, `never`.
pub(super) fn parse_ends(text: &str) -> Result<Set<Ends>, String> {
    let form = "say how long, like 30d (s, m, h, d, w), or a date, like 2027-01-31, or never";
    if text == "never" {
        return Ok(None);
    }
    let parts: Vec<_> = text.split('-').collect();
    if let [year, month, day] = parts[..] {
        let number = |text: &str| text.parse::<u32>().map_err(|_| form);
        let day = Day::of_date(number(year)?, number(month)?, number(day)?);
        return day
            .map(|day| Some(Ends::On(day)))
            .ok_or("there is no such day".to_owned());
    }
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let factor = match &text[digits.len()..] {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        "w" => 7 * 86_400,
        _ => return Err(form.to_owned()),
    };
    // A hundred years are enough, and every number that follows fits.
    match digits.parse::<u32>() {
        Ok(number @ 1..) if u64::from(number) * factor <= 100 * 366 * 86_400 => {
            Ok(Some(Ends::In(u64::from(number) * factor)))
        }
        _ => Err(form.to_owned()),
    }
}

/// `100 GB/month`.
pub(super) fn quota_text(quota: Quota) -> String {
    format!("{}/{}", units::bytes(quota.bytes), quota.period.name())
}

/// `2027-01-31 00:00`, UTC, from seconds of Unix time.
pub(super) fn time_text(unix_seconds: u64) -> String {
    let (year, month, day) = Day::of(unix_seconds).date();
    let minute = unix_seconds / 60 % 1_440;
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}",
        minute / 60,
        minute % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_an_amount_in_a_period_or_none() {
        let quota = |bytes, period| Ok(Some(Quota { bytes, period }));
        assert_eq!(parse_quota("100G/month"), quota(100_000_000_000, Period::Month));
        assert_eq!(parse_quota("5k/day"), quota(5_000, Period::Day));
        assert_eq!(parse_quota("7G/week"), quota(7_000_000_000, Period::Week));
        assert_eq!(parse_quota("2T"), quota(2_000_000_000_000, Period::Total));
        assert_eq!(parse_quota("none"), Ok(None));
        for text in [
            "",
            "G",
            "10",
            "7/week",
            "1.5G",
            "-1G",
            "1GB",
            "1G/year",
            "0K",
            "1G/",
            "9999999999T",
            "é",
        ] {
            assert!(parse_quota(text).is_err(), "{text}");
        }
        assert_eq!(
            quota_text(parse_quota("100G/month").unwrap().unwrap()),
            "100 GB/month"
        );
    }

    #[test]
    fn an_end_is_a_while_from_now_a_day_or_never() {
        let at = |text| parse_ends(text).map(|ends| ends.map(|ends| ends.at(1_000)));
        assert_eq!(at("30d"), Ok(Some(1_000 + 30 * 86_400)));
        assert_eq!(at("4w"), Ok(Some(1_000 + 28 * 86_400)));
        assert_eq!(at("90m"), Ok(Some(1_000 + 5_400)));
        assert_eq!(at("5s"), Ok(Some(1_005)));
        assert_eq!(at("1970-01-03"), Ok(Some(2 * 86_400)));
        assert_eq!(at("never"), Ok(None));
        for text in [
            "",
            "d",
            "0d",
            "30",
            "30y",
            "2026-02-30",
            "2026-2",
            "1-2-3-4",
            "99999999w",
            "é",
        ] {
            assert!(parse_ends(text).is_err(), "{text}");
        }
        assert_eq!(time_text(20_780 * 86_400 + 3_660), "2026-11-23 01:01");
    }
}
