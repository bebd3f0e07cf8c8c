//! What can be done to a user who exists, by `gramway user` and by the admin API alike.

use store::{Day, Quota, Sqlite, Store, StoreError, User};

use super::amounts::{Ends, Set, parse_ends, parse_quota, parse_rate};
use super::{open, problem, unix_now};
use crate::cli::UserTerms;
use crate::exit::Problem;
use crate::state::StateDirectory;

/// One of them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Disable,
    Enable,
    Renew(Terms),
    Remove,
}

/// Does it. The user as it is then, and the bytes it has used; nothing of one who is removed.
///
/// # Errors
/// There is no such user, which is [`crate::exit::Code::Usage`]; the database cannot be used.
pub(crate) fn apply(
    directory: &StateDirectory,
    name: &str,
    action: &Action,
) -> Result<Option<(User, u64)>, Problem> {
    let now = unix_now();
    let user = match action {
        Action::Disable => change(directory, name, |user| user.is_disabled = true)?,
        Action::Enable => change(directory, name, |user| user.is_disabled = false)?,
        Action::Renew(terms) => change(directory, name, |user| terms.apply(user, now))?,
        Action::Remove => {
            let removed = existing(directory, name)?.remove(name);
            return removed.map(|()| None).map_err(|error| problem(directory, &error));
        }
    };
    let used = used(&mut existing(directory, name)?, &user).map_err(|error| problem(directory, &error))?;
    Ok(Some((user, used)))
}

/// Changes what the store has of a user.
pub(super) fn change(
    directory: &StateDirectory,
    name: &str,
    mut edit: impl FnMut(&mut User),
) -> Result<User, Problem> {
    let changed = existing(directory, name)?.change(name, &mut edit);
    changed.map_err(|error| problem(directory, &error))
}

/// The database, which there is where there is this user.
fn existing(directory: &StateDirectory, name: &str) -> Result<Sqlite, Problem> {
    let nobody = || problem(directory, &StoreError::NoSuchUser(name.to_owned()));
    open(directory)?.ok_or_else(nobody)
}

/// Bytes used within the present period of the quota, or in all.
pub(super) fn used(store: &mut dyn Store, user: &User) -> Result<u64, StoreError> {
    let today = Day::of(unix_now());
    let since = user
        .quota
        .map_or(Day::FIRST, |quota| quota.period.first_day(today));
    store.used(user.id, since..=today)
}

/// What options say; `None` where they are not given.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Terms {
    expires: Option<Set<Ends>>,
    quota: Option<Set<Quota>>,
    rate: Option<Set<u64>>,
}

impl Terms {
    /// Reads them.
    ///
    /// # Errors
    /// One cannot be read, or lies in the past.
    pub(crate) fn parse(given: &UserTerms) -> Result<Self, Problem> {
        let wrong =
            |option: &str, text: &str, error: String| Problem::usage(format!("{option} {text}: {error}"));
        let expires = given.expires.as_deref().map(|text| {
            let ends = parse_ends(text).map_err(|error| wrong("--expires", text, error))?;
            match ends {
                Some(Ends::On(day)) if day.begin() <= unix_now() => {
                    Err(wrong("--expires", text, "that day has begun already".to_owned()))
                }
                ends => Ok(ends),
            }
        });
        let quota = given.quota.as_deref();
        let quota = quota.map(|text| parse_quota(text).map_err(|error| wrong("--quota", text, error)));
        let rate = given.rate.as_deref();
        let rate = rate.map(|text| parse_rate(text).map_err(|error| wrong("--rate", text, error)));
        Ok(Self {
            expires: expires.transpose()?,
            quota: quota.transpose()?,
            rate: rate.transpose()?,
        })
    }

    pub(super) fn apply(&self, user: &mut User, now: u64) {
        if let Some(expires) = self.expires {
            user.expires = expires.map(|ends| ends.at(now));
        }
        if let Some(quota) = self.quota {
            user.quota = quota;
        }
        if let Some(rate) = self.rate {
            user.bits_per_second = rate;
        }
    }
}
