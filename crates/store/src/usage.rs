//! What users may use: quotas, the periods for which they hold, and the days by which use is counted.
//!
//! Days, weeks and months are those of UTC, so that a server's time zone changes nothing. Use is counted by day and by
//! *epoch*: a run of a server within one day. Each epoch has its own numbers, which only grow, so that neither a crash
//! nor a repeated call counts anything twice.

/// A day: how many have passed since 1970-01-01, UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(pub u32);

/// Names a run of a server within one day: a random number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch(pub u64);

/// How much a user may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Bytes in both directions, at most [`crate::limits::QUOTA_BYTES_MAX`].
    pub bytes: u64,
    /// Within which time.
    pub period: Period,
}

/// After which time a quota begins anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Period {
    /// A day.
    Day,
    /// A week, which begins on Monday.
    Week,
    /// A month of the calendar.
    Month,
    /// Never.
    Total,
}

const SECONDS_PER_DAY: u64 = 86_400;

impl Day {
    /// Before all days.
    pub const FIRST: Self = Self(0);

    /// The day of a time in seconds of Unix time.
    #[must_use]
    pub fn of(unix_seconds: u64) -> Self {
        Self(u32::try_from(unix_seconds / SECONDS_PER_DAY).unwrap_or(u32::MAX))
    }

    /// When it begins, in seconds of Unix time.
    #[must_use]
    pub fn begin(self) -> u64 {
        u64::from(self.0) * SECONDS_PER_DAY
    }

    /// The day of a date of the Gregorian calendar from 1970 on; `None` where there is no such day.
    #[must_use]
    pub fn of_date(year: u32, month: u32, day: u32) -> Option<Self> {
        if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || day == 0 {
            return None;
        }
        // Days since 0000-03-01, where the leap day is a year's last.
        let (year, month_from_march) = if month > 2 {
            (year, month - 3)
        } else {
            (year - 1, month + 9)
        };
        let whole_years = year * 365 + year / 4 - year / 100 + year / 400;
        let found = Self(whole_years + (153 * month_from_march + 2) / 5 + day - 1 - DAYS_TO_1970);
        (found.date().2 == day).then_some(found)
    }

    /// Year, month (1 to 12) and day of the month (1 to 31).
    #[must_use]
    pub fn date(self) -> (u32, u32, u32) {
        // The Gregorian calendar repeats itself after 400 years; the rest is as in `of_date`.
        let days = u64::from(self.0) + u64::from(DAYS_TO_1970);
        let (era, in_era) = (days / DAYS_PER_ERA, days % DAYS_PER_ERA);
        let year_of_era = (in_era - in_era / 1_460 + in_era / 36_524 - in_era / 146_096) / 365;
        let in_year = in_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * in_year + 2) / 153;
        let day = in_year - (153 * month_from_march + 2) / 5 + 1;
        let is_after_new_year = month_from_march >= 10;
        let month = if is_after_new_year {
            month_from_march - 9
        } else {
            month_from_march + 3
        };
        let year = era * 400 + year_of_era + u64::from(is_after_new_year);
        (year as u32, month as u32, day as u32)
    }
}

/// From 0000-03-01 to 1970-01-01.
const DAYS_TO_1970: u32 = 719_468;
const DAYS_PER_ERA: u64 = 146_097;

impl Period {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Day, Self::Week, Self::Month, Self::Total];

    /// Its name, for people and files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Total => "total",
        }
    }

    /// The period of a name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|period| period.name() == name)
    }

    /// The first day of the one that `today` belongs to.
    #[must_use]
    pub fn first_day(self, today: Day) -> Day {
        match self {
            Self::Day => today,
            // 1970-01-01 was a Thursday.
            Self::Week => Day(today.0.saturating_sub((today.0 + 3) % 7)),
            Self::Month => Day(today.0 - (today.date().2 - 1)),
            Self::Total => Day::FIRST,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_dates_are_those_of_the_calendar() {
        for (date, days) in [
            ((1970, 1, 1), 0),
            ((1972, 2, 29), 789),
            ((2000, 2, 29), 11_016),
            ((2000, 3, 1), 11_017),
            ((2026, 11, 23), 20_780),
            ((2100, 3, 1), 47_541),
            ((9999, 12, 31), 2_932_896),
        ] {
            let day = Day::of_date(date.0, date.1, date.2);
            assert_eq!(day, Some(Day(days)), "{date:?}");
            assert_eq!(Day(days).date(), date);
        }
        for (year, month, day) in [
            (2026, 2, 29),
            (2100, 2, 29),
            (2026, 4, 31),
            (2026, 13, 1),
            (1969, 1, 1),
            (2026, 1, 0),
        ] {
            assert_eq!(Day::of_date(year, month, day), None, "{year}-{month}-{day}");
        }
        for days in 0..200_000 {
            let (year, month, day) = Day(days).date();
            assert_eq!(Day::of_date(year, month, day), Some(Day(days)));
        }
        assert_eq!(Day::of(86_399), Day(0));
        assert_eq!(Day::of(86_400).begin(), 86_400);
    }

    #[test]
    fn a_period_begins_with_its_day_monday_first_of_the_month_or_never() {
        let date = |year, month, day| Day::of_date(year, month, day).unwrap();
        let monday = date(2026, 11, 23);
        for weekday in 0..7 {
            assert_eq!(Period::Week.first_day(Day(monday.0 + weekday)), monday);
        }
        assert_eq!(Period::Week.first_day(Day(0)), Day(0), "there is nothing before");
        assert_eq!(Period::Day.first_day(monday), monday);
        assert_eq!(Period::Month.first_day(monday), date(2026, 11, 1));
        assert_eq!(Period::Month.first_day(date(2024, 2, 29)), date(2024, 2, 1));
        assert_eq!(Period::Total.first_day(monday), Day::FIRST);
        for period in Period::ALL {
            assert_eq!(Period::of_name(period.name()), Some(period));
        }
    }
}
