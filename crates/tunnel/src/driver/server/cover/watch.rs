//! When the cover is looked at while the server runs, and what is known of it since.
//!
//! It is looked at every few hours, because sites change, and at once where it leaves strangers without an answer. Once
//! it is silent, it is looked at ever less often, and soon after a stranger got an answer of it.

use std::time::{Duration, Instant};

use reality::examination::verdict::Profile;

use crate::limits;
use crate::snapshot::CoverLooks;

/// What a look found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// It can be imitated.
    Profile(Profile),
    /// It cannot, for this reason.
    Unfit(String),
    /// It does not answer.
    Silence,
}

/// What its owner should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// It does not answer.
    Silent,
    /// It answers again.
    Back,
    /// It answers, and cannot be imitated any more.
    Unfit(String),
    /// Its connection IDs have so many bytes, and the server's another number until it starts again.
    OtherIds(u8),
}

#[derive(Debug)]
pub(super) struct Watch {
    /// Bytes of the server's connection IDs.
    own_id_bytes: u8,
    /// Bytes of the cover's, as it was last met.
    id_bytes: u8,
    silent_since: Option<Instant>,
    unfit: Option<String>,
    due: Instant,
    is_looking: bool,
    /// When the last look ended.
    looked: Option<Instant>,
    /// From a look at a silent cover to the next one.
    retry: Duration,
    looks: CoverLooks,
}

impl Watch {
    /// Of a server whose connection IDs have so many bytes, and whose cover answers at its start or does not. `draw` is
    /// a random number, here and elsewhere.
    pub(super) fn new(now: Instant, id_bytes: u8, answers: bool, draw: u64) -> Self {
        Self {
            own_id_bytes: id_bytes,
            id_bytes,
            silent_since: (!answers).then_some(now),
            unfit: None,
            due: now
                + if answers {
                    interval(draw)
                } else {
                    limits::COVER_SILENCE_RETRY
                },
            is_looking: false,
            looked: None,
            retry: limits::COVER_SILENCE_RETRY,
            looks: CoverLooks::default(),
        }
    }

    /// Whether it is to be looked at now; [`Self::handle_looked`] or [`Self::handle_failed`] follows.
    pub(super) fn poll(&mut self, now: Instant) -> bool {
        let is_due = !self.is_looking && self.due <= now;
        self.is_looking |= is_due;
        is_due
    }

    /// It owes a stranger an answer.
    pub(super) fn handle_doubt(&mut self, now: Instant) {
        let looked = self.looked.map(|looked| looked + limits::COVER_DOUBT_INTERVAL);
        if self.silent_since.is_none() && looked.is_none_or(|again| again <= now) {
            self.due = self.due.min(now);
        }
    }

    /// It answered a stranger.
    pub(super) fn handle_heard(&mut self, now: Instant) {
        let looked = self.looked.map(|looked| looked + limits::COVER_SILENCE_RETRY);
        if self.silent_since.is_some() {
            self.due = self.due.min(looked.unwrap_or(now).max(now));
        }
    }

    /// This machine could not look.
    pub(super) fn handle_failed(&mut self, now: Instant) {
        self.is_looking = false;
        self.due = now + limits::COVER_SILENCE_RETRY_MAX;
    }

    /// A look has ended.
    pub(super) fn handle_looked(&mut self, now: Instant, found: &Found, draw: u64) -> Vec<News> {
        self.is_looking = false;
        self.looked = Some(now);
        self.looks.total += 1;
        if *found == Found::Silence {
            self.looks.unanswered += 1;
            self.due = now + self.retry;
            self.retry = (self.retry * 2).min(limits::COVER_SILENCE_RETRY_MAX);
            let is_new = self.silent_since.is_none();
            self.silent_since.get_or_insert(now);
            return is_new.then_some(News::Silent).into_iter().collect();
        }
        self.retry = limits::COVER_SILENCE_RETRY;
        self.due = now + interval(draw);
        let back = self.silent_since.take().map(|_| News::Back);
        back.into_iter().chain(self.judge(found)).collect()
    }

    /// What is new about a cover that answers.
    fn judge(&mut self, found: &Found) -> Option<News> {
        match found {
            Found::Profile(profile) => {
                self.unfit = None;
                let former = std::mem::replace(&mut self.id_bytes, profile.id_bytes);
                let is_new = profile.id_bytes != former && profile.id_bytes != self.own_id_bytes;
                is_new.then_some(News::OtherIds(profile.id_bytes))
            }
            Found::Unfit(reason) => {
                let is_new = self.unfit.as_ref() != Some(reason);
                self.unfit = Some(reason.clone());
                is_new.then(|| News::Unfit(reason.clone()))
            }
            Found::Silence => None,
        }
    }

    pub(super) fn is_silent(&self) -> bool {
        self.silent_since.is_some()
    }

    /// For how long it has not answered.
    pub(super) fn silence(&self, now: Instant) -> Option<Duration> {
        Some(now.saturating_duration_since(self.silent_since?))
    }

    /// Why it cannot be imitated any more.
    pub(super) fn unfit(&self) -> Option<&str> {
        self.unfit.as_deref()
    }

    /// Bytes of its connection IDs, where the server's have another number.
    pub(super) fn other_id_bytes(&self) -> Option<u8> {
        (self.id_bytes != self.own_id_bytes).then_some(self.id_bytes)
    }

    pub(super) fn looks(&self) -> CoverLooks {
        self.looks
    }
}

/// A quarter less or more than [`limits::COVER_LOOK_INTERVAL`].
fn interval(draw: u64) -> Duration {
    let whole = limits::COVER_LOOK_INTERVAL;
    let spread = whole.as_secs() / 2;
    whole * 3 / 4 + Duration::from_secs(draw % (spread + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAW: u64 = 0;

    fn found(id_bytes: u8) -> Found {
        Found::Profile(Profile {
            suite: 0x1301,
            group: 0x11ec,
            id_bytes,
            certificate_bytes: 2_000,
            is_version_first: false,
            answer_delay: Duration::ZERO,
        })
    }

    fn watch(answers: bool) -> (Watch, Instant) {
        let now = Instant::now();
        (Watch::new(now, 8, answers, DRAW), now)
    }

    /// Goes on to the next look, which is due after `wait` and not before.
    fn wait_for_look(watch: &mut Watch, now: &mut Instant, wait: Duration) {
        *now += wait.checked_sub(Duration::from_secs(1)).unwrap();
        assert!(!watch.poll(*now), "before {wait:?}");
        *now += Duration::from_secs(1);
        assert!(watch.poll(*now) && !watch.poll(*now), "after {wait:?}");
    }

    #[test]
    fn a_cover_is_looked_at_every_few_hours_at_times_that_nobody_can_foretell() {
        let (hours, quarter) = (limits::COVER_LOOK_INTERVAL, limits::COVER_LOOK_INTERVAL / 4);
        assert_eq!(
            (interval(0), interval(hours.as_secs() / 2)),
            (hours - quarter, hours + quarter)
        );
        assert!((0..100_000).all(|draw| (hours - quarter..=hours + quarter).contains(&interval(draw))));
        let (mut watch, mut now) = watch(true);
        for _ in 0..3 {
            wait_for_look(&mut watch, &mut now, interval(DRAW));
            assert_eq!(watch.handle_looked(now, &found(8), DRAW), []);
        }
        assert_eq!((watch.looks().total, watch.looks().unanswered), (3, 0));
    }

    /// QR1-26.
    #[test]
    fn a_cover_that_owes_an_answer_is_looked_at_and_its_silence_told_once_until_it_is_back() {
        let (mut watch, mut now) = watch(true);
        watch.handle_doubt(now);
        assert!(watch.poll(now));
        assert_eq!(watch.handle_looked(now, &Found::Silence, DRAW), [News::Silent]);
        assert!(watch.is_silent());
        let mut wait = limits::COVER_SILENCE_RETRY;
        for _ in 0..10 {
            watch.handle_doubt(now);
            wait_for_look(&mut watch, &mut now, wait);
            assert_eq!(watch.handle_looked(now, &Found::Silence, DRAW), []);
            wait = (wait * 2).min(limits::COVER_SILENCE_RETRY_MAX);
        }
        assert!(watch.silence(now).unwrap() > limits::COVER_SILENCE_RETRY_MAX);
        // An answer to a stranger is as good as one to us, but a site that answers nobody else is not looked at all the
        // time.
        now += limits::COVER_SILENCE_RETRY;
        watch.handle_heard(now);
        assert!(watch.poll(now));
        assert_eq!(watch.handle_looked(now, &Found::Silence, DRAW), []);
        watch.handle_heard(now);
        wait_for_look(&mut watch, &mut now, limits::COVER_SILENCE_RETRY);
        assert_eq!(watch.handle_looked(now, &found(8), DRAW), [News::Back]);
        assert_eq!((watch.is_silent(), watch.silence(now)), (false, None));
        assert_eq!((watch.looks().total, watch.looks().unanswered), (13, 12));
        wait_for_look(&mut watch, &mut now, interval(DRAW));
    }

    #[test]
    fn what_no_site_answers_does_not_have_a_cover_looked_at_all_the_time() {
        let (mut watch, mut now) = watch(true);
        watch.handle_doubt(now);
        assert!(watch.poll(now));
        watch.handle_looked(now, &found(8), DRAW);
        for _ in 0..limits::COVER_DOUBT_INTERVAL.as_secs() {
            watch.handle_doubt(now);
            assert!(!watch.poll(now));
            now += Duration::from_secs(1);
        }
        watch.handle_doubt(now);
        assert!(watch.poll(now));
    }

    #[test]
    fn a_cover_that_was_silent_at_the_start_is_looked_at_soon() {
        let (mut watch, mut now) = watch(false);
        assert!(watch.is_silent());
        wait_for_look(&mut watch, &mut now, limits::COVER_SILENCE_RETRY);
        assert_eq!(watch.handle_looked(now, &found(8), DRAW), [News::Back]);
    }

    /// QR1-27.
    #[test]
    fn what_the_server_cannot_follow_is_told_once_and_stays_known() {
        let (mut watch, now) = watch(true);
        assert_eq!(watch.handle_looked(now, &found(12), DRAW), [News::OtherIds(12)]);
        assert_eq!(watch.handle_looked(now, &found(12), DRAW), []);
        assert_eq!(watch.other_id_bytes(), Some(12));
        let unfit = Found::Unfit("it has no HTTP/3".to_owned());
        let News::Unfit(reason) = &watch.handle_looked(now, &unfit, DRAW)[0] else {
            panic!("it is told");
        };
        assert_eq!(watch.unfit(), Some(reason.as_str()));
        assert_eq!(watch.handle_looked(now, &unfit, DRAW), []);
        assert_eq!(watch.handle_looked(now, &found(8), DRAW), []);
        assert_eq!((watch.unfit(), watch.other_id_bytes()), (None, None));
    }

    #[test]
    fn a_machine_that_could_not_look_does_so_later() {
        let (mut watch, mut now) = watch(true);
        watch.handle_doubt(now);
        assert!(watch.poll(now));
        watch.handle_failed(now);
        wait_for_look(&mut watch, &mut now, limits::COVER_SILENCE_RETRY_MAX);
        assert_eq!(watch.looks(), CoverLooks::default());
    }
}
