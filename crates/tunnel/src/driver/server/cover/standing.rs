//! How the cover stands, for all shards: what of it is imitated, and whether it answers. One shard has it looked at, by
//! a thread that ends with the look, because that takes seconds.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Instant;

use reality::examination::verdict::Profile;

use super::watch::{Found, News, Watch};
use crate::config::{Cover, KeepProfile};
use crate::driver::start::seed;
use crate::examination::{Findings, Roots, Site, examine_among};
use crate::handle::Notice;
use crate::snapshot::CoverSnapshot;

pub(super) struct Standing {
    host: String,
    name: String,
    keep_profile: KeepProfile,
    /// What the server imitates.
    profile: Mutex<Profile>,
    watch: Mutex<Watch>,
    /// As the watch has it, for shards that get answers.
    is_silent: AtomicBool,
}

/// A look that is over.
pub(super) struct Look {
    found: Found,
    /// Where the cover answered.
    address: Option<SocketAddr>,
    /// Why its profile is not kept.
    not_kept: Option<String>,
}

impl Standing {
    pub(super) fn new(config: &Cover, now: Instant) -> Self {
        let answers = config.met.is_some();
        Self {
            host: config.host.clone(),
            name: config.name.clone(),
            keep_profile: config.keep_profile.clone(),
            profile: Mutex::new(config.profile.clone()),
            watch: Mutex::new(Watch::new(now, config.profile.id_bytes, answers, draw())),
            is_silent: AtomicBool::new(!answers),
        }
    }

    pub(super) fn profile(&self) -> Profile {
        lock(&self.profile).clone()
    }

    /// The cover left a stranger without an answer.
    pub(super) fn doubt(&self, now: Instant) {
        lock(&self.watch).handle_doubt(now);
    }

    /// The cover answered a stranger.
    pub(super) fn hear(&self, now: Instant) {
        if self.is_silent.load(Ordering::Relaxed) {
            lock(&self.watch).handle_heard(now);
        }
    }

    /// Looks at the cover at these addresses if it is time, on a thread of its own.
    pub(super) fn poll_look(&self, now: Instant, addresses: Vec<SocketAddr>) -> Option<mpsc::Receiver<Look>> {
        let mut watch = lock(&self.watch);
        if !watch.poll(now) {
            return None;
        }
        // Where it cannot be found there is nothing to look at, and that has been told.
        let begun = match addresses.is_empty() {
            true => Err(io::ErrorKind::AddrNotAvailable.into()),
            false => self.begin_look(addresses),
        };
        if begun.is_err() {
            watch.handle_failed(now);
        }
        begun.ok()
    }

    fn begin_look(&self, addresses: Vec<SocketAddr>) -> io::Result<mpsc::Receiver<Look>> {
        let (sender, receiver) = mpsc::channel();
        let (host, name) = (self.host.clone(), self.name.clone());
        let keep_profile = self.keep_profile.clone();
        thread::Builder::new().name("look".to_owned()).spawn(move || {
            let findings = Roots::with(Vec::new()).and_then(|roots| {
                let site = Site {
                    host,
                    port: addresses.first().map_or(0, SocketAddr::port),
                    name,
                    roots,
                };
                examine_among(&addresses, &site)
            });
            // A server that has ended wants to know nothing.
            let _ = sender.send(Look::new(findings, &keep_profile));
        })?;
        Ok(receiver)
    }

    /// A look has ended; `None` where its thread gave nothing. Where the cover answered, and what to tell.
    pub(super) fn looked(&self, now: Instant, look: Option<Look>) -> (Option<SocketAddr>, Vec<Notice>) {
        let mut watch = lock(&self.watch);
        let Some(look) = look else {
            watch.handle_failed(now);
            return (None, Vec::new());
        };
        if let Found::Profile(found) = &look.found {
            let mut profile = lock(&self.profile);
            // The IDs of living connections keep their length.
            let id_bytes = profile.id_bytes;
            *profile = Profile {
                id_bytes,
                ..found.clone()
            };
        }
        let news = watch.handle_looked(now, &look.found, draw());
        self.is_silent.store(watch.is_silent(), Ordering::Relaxed);
        let told = news.into_iter().map(|news| self.notice(news));
        let not_kept = look.not_kept.map(|text| Notice::Warning { text });
        (look.address, told.chain(not_kept).collect())
    }

    fn notice(&self, news: News) -> Notice {
        let host = &self.host;
        let text = match news {
            News::Back => {
                return Notice::CoverBack { host: host.clone() };
            }
            News::Silent => format!(
                "the cover {host} does not answer: strangers get no answer until it does; clients are served as before"
            ),
            News::Unfit(reason) => format!(
                "the cover {host} can no longer be imitated: {reason}; the server looks as it did before, which can be told \
                 apart: name another cover (gramway check --cover examines one)"
            ),
            News::OtherIds(bytes) => {
                format!(
                    "the cover {host} has connection IDs of {bytes} bytes now: start the server again to follow it"
                )
            }
        };
        Notice::Warning { text }
    }

    /// What `status` shows of it.
    pub(super) fn count(&self, now: Instant, snapshot: &mut CoverSnapshot) {
        snapshot.profile = (&*lock(&self.profile)).into();
        let watch = lock(&self.watch);
        snapshot.silent_seconds = watch.silence(now).map(|silence| silence.as_secs_f64());
        snapshot.unfit = watch.unfit().map(str::to_owned);
        snapshot.id_bytes_after_restart = watch.other_id_bytes();
        snapshot.looks = watch.looks();
    }
}

impl Look {
    fn new(findings: Result<Findings, String>, keep_profile: &KeepProfile) -> Self {
        let Ok(findings) = findings else {
            return Self {
                found: Found::Silence,
                address: None,
                not_kept: None,
            };
        };
        let verdict = &findings.verdict;
        let found = match &verdict.profile {
            Some(profile) => Found::Profile(profile.clone()),
            None if verdict.is_out_of_reach() => Found::Silence,
            None => Found::Unfit(verdict.reasons()),
        };
        Self {
            address: (found != Found::Silence).then_some(findings.address),
            not_kept: verdict
                .profile
                .as_ref()
                .and_then(|profile| keep_profile(profile).err()),
            found,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each use leaves it whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Without random numbers all looks are equally far apart.
fn draw() -> u64 {
    seed().unwrap_or(0)
}
