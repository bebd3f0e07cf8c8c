//! The examination of a cover at a server's start: what the server imitates is measured, or, where the cover does not
//! answer, what it was the last time.

use std::net::SocketAddr;

use tunnel::examination::{Findings, Profile, Roots, Site, Verdict, examine};
use tunnel_proto::link::Endpoint;

use super::Cover;
use crate::exit::Problem;
use crate::log;

/// What a server imitates.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Imitated {
    /// What was measured now, at this address.
    Measured(Profile, SocketAddr),
    /// What was measured at an earlier start.
    Kept(Profile),
}

impl Imitated {
    pub(crate) fn profile(&self) -> &Profile {
        match self {
            Self::Measured(profile, _) | Self::Kept(profile) => profile,
        }
    }

    /// Where the cover answered; `None` where it did not.
    pub(crate) fn met(&self) -> Option<SocketAddr> {
        match self {
            Self::Measured(_, address) => Some(*address),
            Self::Kept(_) => None,
        }
    }
}

impl Cover {
    /// Examines it, and tells what is odd about it; `kept` is its profile of an earlier start. It blocks.
    ///
    /// # Errors
    /// It cannot be a cover (QR1-27), or does not answer and is not known from earlier.
    pub(crate) fn examine(&self, kept: Option<Profile>) -> Result<Imitated, Problem> {
        let site = Site {
            host: self.place.host.clone(),
            port: self.place.port,
            name: self.name.clone(),
            roots: Roots::with(Vec::new()).map_err(Problem::bug)?,
        };
        match examine(&site) {
            Ok(findings) if !findings.verdict.is_out_of_reach() => self.judge(&findings),
            Ok(findings) => self.unanswered(&findings.verdict.reasons(), kept),
            Err(failure) => self.unanswered(&Problem::from(failure).to_string(), kept),
        }
    }

    fn judge(&self, findings: &Findings) -> Result<Imitated, Problem> {
        let verdict = &findings.verdict;
        let Some(profile) = &verdict.profile else {
            return Err(refusal(&self.place, verdict));
        };
        for warning in &verdict.warnings {
            log::warning("cover", format!("the cover {}: {warning}", self.place));
        }
        Ok(Imitated::Measured(profile.clone(), findings.address))
    }

    fn unanswered(&self, reason: &str, kept: Option<Profile>) -> Result<Imitated, Problem> {
        let Some(profile) = kept else {
            return Err(Problem::unavailable(format!(
                "cannot look like the cover {} without having met it: {reason}; start again when it answers, or name another \
                 (gramway check --cover examines one)",
                self.place
            )));
        };
        let text = format!(
            "the cover {} does not answer ({reason}): the server looks as the cover did when it was examined last, and strangers \
             get what it answers",
            self.place
        );
        log::warning("cover", text);
        Ok(Imitated::Kept(profile))
    }
}

/// Why this site is not taken, for `gramway check` and `gramway up` alike.
pub(crate) fn refusal(place: &Endpoint, verdict: &Verdict) -> Problem {
    Problem::unavailable(format!("{place} cannot be a cover: {}", verdict.reasons()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn profile() -> Profile {
        Profile {
            suite: 0x1301,
            group: 0x11ec,
            id_bytes: 8,
            certificate_bytes: 2_000,
            is_version_first: false,
            answer_delay: Duration::ZERO,
        }
    }

    /// QR1-27.
    #[test]
    fn a_cover_that_does_not_answer_is_what_it_was_and_one_that_was_never_met_is_refused() {
        let cover = Cover {
            place: Endpoint::parse("www.example.org:443").unwrap(),
            name: "www.example.org".to_owned(),
        };
        let kept = cover.unanswered("nobody answers", Some(profile())).unwrap();
        assert_eq!(kept, Imitated::Kept(profile()));
        let problem = cover.unanswered("nobody answers", None).unwrap_err();
        assert_eq!(problem.code() as u8, 69);
        assert!(
            problem.to_string().contains("start again when it answers"),
            "{problem}"
        );
    }
}
