//! A client's stripes together: which are up, which shards of the server they are on, and what people are told.
//!
//! Each shard reports what happens to its own connection; the answers are the lines to tell. No stripe's packets pass
//! here: it is asked when a connection comes or goes, and by shards whose own stripe is down.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use masque::{Code, ServerShard};
use packet::CarrierKind;
use quic::CloseReason;

use super::reconnection::{AttemptId, Reconnection};
use super::refusals::Refusals;
use crate::engine::SHUTDOWN_REASON;
use crate::limits;

/// What happened to the stripes, where people should hear of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StripeNews {
    /// The first stripe is up, and with it the tunnel; or the first one at another server, whose predecessor is ending.
    Connected {
        /// The server's address.
        server: SocketAddr,
        /// Smoothed round-trip time.
        rtt: Duration,
    },
    /// A stripe that was lost, or came late, is up while others are.
    Joined {
        /// Stripes that are up.
        up: usize,
        /// Stripes that are wanted.
        of: usize,
    },
    /// A stripe is lost while others live.
    Lost {
        /// Stripes that are up.
        up: usize,
        /// Stripes that are wanted.
        of: usize,
        /// What happened, for people.
        reason: String,
    },
    /// No stripe is up.
    Down {
        /// What happened, for people.
        reason: String,
    },
    /// No server can be reached, for the first time since a stripe was up, or for another reason than told last.
    Unreachable {
        /// Server and what happened, for people.
        reason: String,
    },
    /// Somebody with another key answers at an address of the server.
    Stranger {
        /// The address.
        server: SocketAddr,
    },
    /// Connections go on over another carrier.
    Carrier {
        /// Which.
        carrier: CarrierKind,
        /// Why, for people.
        reason: &'static str,
    },
    /// The path MTU of all stripes that are up has settled, at another value or with more stripes than told last.
    Path {
        /// The least of all, in bytes of UDP payload.
        mtu: u16,
        /// Stripes that are up.
        up: usize,
        /// Stripes that are wanted.
        of: usize,
    },
}

#[derive(Clone, Copy, Debug, Default)]
struct Stripe {
    is_up: bool,
    server_shard: Option<ServerShard>,
    /// Path MTU, where it has settled.
    path_mtu: Option<u16>,
    /// Connections given up for [`Stripes::may_keep`], one after the other.
    spread_tries: u32,
}

/// The state of all stripes.
pub struct Stripes {
    stripes: Vec<Stripe>,
    has_been_up: bool,
    /// All have been told to be up, and since then which are is news.
    was_complete: bool,
    /// The server, as told last.
    server_told: Option<SocketAddr>,
    /// Why no server can be reached, as told last.
    unreachable_told: Option<String>,
    /// The path MTU and the number of stripes, as told last.
    path_told: Option<(u16, usize)>,
    /// The carrier that a connection moved to, as told last.
    carrier_told: Option<CarrierKind>,
    /// The program knows that somebody else answers, until the server does.
    announced_stranger: bool,
    refusals: Refusals,
}

/// A stripe that came up.
pub struct Arrival {
    /// What to tell.
    pub news: Option<StripeNews>,
    /// The whole tunnel had been down and is back by it.
    pub is_tunnel_again: bool,
}

/// What becomes of a stripe whose token the server has taken.
pub enum Welcome {
    /// It stays, and may carry traffic.
    Stays {
        /// What it means for the tunnel.
        arrival: Arrival,
        /// The stripe had been up before.
        is_again: bool,
    },
    /// The server's shard is a sibling's while others have none: the driver disconnects, and [`Reconnection`] tries the same
    /// address again, from another port.
    Leaves,
}

impl Stripes {
    /// `count` stripes that are down.
    #[must_use]
    pub fn new(count: usize) -> Self {
        Self {
            stripes: vec![Stripe::default(); count],
            has_been_up: false,
            was_complete: false,
            server_told: None,
            unreachable_told: None,
            path_told: None,
            carrier_told: None,
            announced_stranger: false,
            refusals: Refusals::default(),
        }
    }

    fn up_count(&self) -> usize {
        self.stripes.iter().filter(|stripe| stripe.is_up).count()
    }

    /// The server has taken the token of a stripe on its shard `shard`. `rtt` is the smoothed round-trip time.
    pub fn welcome(
        &mut self,
        index: usize,
        reconnection: &mut Reconnection,
        shard: Option<ServerShard>,
        rtt: Duration,
    ) -> Welcome {
        let Some(server) = reconnection.address().filter(|_| self.may_keep(index, shard)) else {
            reconnection.retry_address();
            return Welcome::Leaves;
        };
        let arrival = self.arrived(index, shard, server, rtt);
        let is_again = reconnection.handle_up();
        Welcome::Stays { arrival, is_again }
    }

    /// The connection of a stripe, or an attempt, is over. What to tell where it was up.
    pub fn part(
        &mut self,
        index: usize,
        reconnection: &mut Reconnection,
        now: Instant,
        attempt: AttemptId,
        reason: &CloseReason,
    ) -> Option<StripeNews> {
        let was_up = reconnection.is_connection(attempt);
        // What we ended ourselves has a better reason already.
        let told = (*reason != CloseReason::LocallyClosed).then(|| sentence(reason));
        reconnection.handle_lost(now, attempt, told);
        was_up.then(|| self.lost(index, reconnection.last_reason()))
    }

    /// Whether a stripe may stay on the server's shard that it came to: not where a sibling is there and others of
    /// the server's shards have none. Each refusal counts, and the stripe stays after [`limits::SPREAD_TRIES`] of them.
    fn may_keep(&mut self, index: usize, shard: Option<ServerShard>) -> bool {
        let may = self.stripes[index].spread_tries >= limits::SPREAD_TRIES || !self.crowds(index, shard);
        self.stripes[index].spread_tries += u32::from(!may);
        may
    }

    /// Whether a sibling is on this shard of the server while others have none.
    fn crowds(&self, index: usize, shard: Option<ServerShard>) -> bool {
        let Some(shard) = shard else { return false };
        let siblings = self.stripes.iter().enumerate();
        let mut held: Vec<u8> = siblings
            .filter(|(other, stripe)| *other != index && stripe.is_up)
            .filter_map(|(_, stripe)| stripe.server_shard.map(|shard| shard.index))
            .collect();
        held.sort_unstable();
        held.dedup();
        held.contains(&shard.index) && held.len() < usize::from(shard.count)
    }

    /// A stripe is up, and stays.
    fn arrived(
        &mut self,
        index: usize,
        shard: Option<ServerShard>,
        server: SocketAddr,
        rtt: Duration,
    ) -> Arrival {
        let is_first = self.up_count() == 0;
        let is_replaced = self.stripes[index].is_up;
        let is_elsewhere = self.server_told.replace(server) != Some(server);
        self.stripes[index] = Stripe {
            is_up: true,
            server_shard: shard,
            path_mtu: None,
            spread_tries: 0,
        };
        if is_first {
            self.unreachable_told = None;
            self.path_told = None;
            self.carrier_told = None;
            self.announced_stranger = false;
            self.was_complete = self.stripes.len() == 1;
            return Arrival {
                news: Some(StripeNews::Connected { server, rtt }),
                is_tunnel_again: std::mem::replace(&mut self.has_been_up, true),
            };
        }
        if is_replaced {
            return Arrival {
                news: is_elsewhere.then_some(StripeNews::Connected { server, rtt }),
                is_tunnel_again: false,
            };
        }
        let (up, of) = (self.up_count(), self.stripes.len());
        let is_news = self.was_complete;
        self.was_complete |= up == of;
        Arrival {
            news: is_news.then_some(StripeNews::Joined { up, of }),
            is_tunnel_again: false,
        }
    }

    /// A stripe that was up is lost.
    fn lost(&mut self, index: usize, reason: &str) -> StripeNews {
        self.stripes[index] = Stripe::default();
        let (up, of) = (self.up_count(), self.stripes.len());
        if up > 0 {
            // It is news when it comes back, even where not all had come.
            self.was_complete = true;
            return StripeNews::Lost {
                up,
                of,
                reason: reason.to_owned(),
            };
        }
        StripeNews::Down {
            reason: format!("the connection is lost ({reason})"),
        }
    }

    /// A stripe tried all addresses of all servers in vain. Silence is news only while nothing was told: ICMP comes now
    /// and then, so that it takes turns with what ICMP says.
    pub fn unreachable(&mut self, reason: String, is_silence: bool) -> Option<StripeNews> {
        let told = self.unreachable_told.as_ref();
        if self.up_count() > 0 || told.is_some_and(|told| is_silence || *told == reason) {
            return None;
        }
        self.unreachable_told = Some(reason.clone());
        Some(StripeNews::Unreachable { reason })
    }

    /// Whether the server was ever met, by any stripe.
    #[must_use]
    pub fn has_been_up(&self) -> bool {
        self.has_been_up
    }

    /// Somebody with another key answers at `server`; told once until the server itself answers.
    pub fn stranger(&mut self, server: SocketAddr) -> Option<StripeNews> {
        let is_news = !std::mem::replace(&mut self.announced_stranger, true);
        is_news.then_some(StripeNews::Stranger { server })
    }

    /// A stripe's path MTU has settled; what is told is the least of all, once each stripe that is up has one.
    pub fn path_settled(&mut self, index: usize, mtu: u16) -> Option<StripeNews> {
        self.stripes[index].path_mtu = Some(mtu);
        let up = self.stripes.iter().filter(|stripe| stripe.is_up);
        let settled: Option<Vec<u16>> = up.map(|stripe| stripe.path_mtu).collect();
        let settled = settled?;
        let (mtu, up, of) = (settled.iter().copied().min()?, settled.len(), self.stripes.len());
        let is_told = |(told, count)| told == mtu && count >= up;
        if self.path_told.is_some_and(is_told) {
            return None;
        }
        self.path_told = Some((mtu, up));
        Some(StripeNews::Path { mtu, up, of })
    }

    /// A stripe's connection moved to another carrier and stays there: told once for all stripes.
    pub fn moved(&mut self, carrier: CarrierKind, reason: &'static str) -> Option<StripeNews> {
        let is_told = self.carrier_told.replace(carrier) == Some(carrier);
        (!is_told).then_some(StripeNews::Carrier { carrier, reason })
    }

    /// Has a refusal told that was not yet. `tell` says whether it could be: not many are at a time.
    pub fn refused(&mut self, sentence: &str, tell: impl FnOnce() -> bool) {
        self.refusals.tell_once(sentence, tell);
    }

    /// Who takes the local traffic of a stripe that is down: the next one that is up.
    #[must_use]
    pub fn stand_in(&self, index: usize) -> Option<usize> {
        let count = self.stripes.len();
        (1..count)
            .map(|step| (index + step) % count)
            .find(|other| self.stripes[*other].is_up)
    }
}

/// Why a connection to a server is over, for people.
fn sentence(reason: &CloseReason) -> String {
    match reason {
        CloseReason::Reset => "the server no longer knows it".to_owned(),
        CloseReason::ApplicationClosed { code, reason } if *code == Code::NoError as u64 => {
            match reason.as_str() {
                "" => "the server closed it".to_owned(),
                SHUTDOWN_REASON => "the server is shutting down".to_owned(),
                reason => format!("the server closed it: {reason}"),
            }
        }
        reason => reason.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_that_are_no_errors_are_told_without_codes() {
        let closed = |reason: &str| {
            sentence(&CloseReason::ApplicationClosed {
                code: 0x100,
                reason: reason.to_owned(),
            })
        };
        assert_eq!(closed(SHUTDOWN_REASON), "the server is shutting down");
        assert_eq!(closed(""), "the server closed it");
        assert_eq!(
            closed("the user's bytes are used up"),
            "the server closed it: the user's bytes are used up"
        );
        assert_eq!(sentence(&CloseReason::Reset), "the server no longer knows it");
        assert_eq!(sentence(&CloseReason::TimedOut), "no answer");
    }

    #[test]
    fn a_stranger_is_told_once_until_the_server_answers() {
        let mut stripes = Stripes::new(2);
        let server = SocketAddr::from(([192, 0, 2, 1], 443));
        assert!(!stripes.has_been_up());
        arrive(&mut stripes, 0, None);
        assert!(stripes.has_been_up());
        stripes.lost(0, "no answer");
        assert_eq!(stripes.stranger(server), Some(StripeNews::Stranger { server }));
        assert_eq!(stripes.stranger(server), None);
        arrive(&mut stripes, 1, None);
        assert!(stripes.stranger(server).is_some());
    }

    fn arrive(stripes: &mut Stripes, index: usize, shard: Option<u8>) -> Arrival {
        let shard = shard.map(|index| ServerShard { index, count: 2 });
        let server = SocketAddr::from(([192, 0, 2, 1], 443));
        stripes.arrived(index, shard, server, Duration::from_millis(1))
    }

    #[test]
    fn one_stripe_is_told_like_one_connection() {
        let mut stripes = Stripes::new(1);
        let arrival = arrive(&mut stripes, 0, None);
        assert!(matches!(arrival.news, Some(StripeNews::Connected { .. })) && !arrival.is_tunnel_again);
        assert_eq!(
            stripes.lost(0, "timed out"),
            StripeNews::Down {
                reason: "the connection is lost (timed out)".to_owned()
            }
        );
        let told = |reason: &str| {
            Some(StripeNews::Unreachable {
                reason: reason.to_owned(),
            })
        };
        assert_eq!(
            stripes.unreachable("no answer".to_owned(), true),
            told("no answer")
        );
        assert_eq!(stripes.unreachable("no answer".to_owned(), true), None);
        assert_eq!(
            stripes.unreachable("no route".to_owned(), false),
            told("no route")
        );
        assert!(arrive(&mut stripes, 0, None).is_tunnel_again);
        assert_eq!(stripes.unreachable("no route".to_owned(), false), None);
        stripes.lost(0, "timed out");
        assert_eq!(
            stripes.unreachable("no route".to_owned(), false),
            told("no route")
        );
    }

    #[test]
    fn silence_takes_no_turns_with_what_was_said() {
        let mut stripes = Stripes::new(1);
        for (reason, is_silence, is_news) in [
            ("no answer", true, true),
            ("nothing listens", false, true),
            ("no answer", true, false),
            ("nothing listens", false, false),
            ("no route", false, true),
        ] {
            let news = stripes.unreachable(reason.to_owned(), is_silence);
            assert_eq!(news.is_some(), is_news, "{reason}");
        }
    }

    #[test]
    fn the_first_stripe_connects_and_a_lost_one_is_told_while_others_live() {
        let mut stripes = Stripes::new(3);
        assert!(stripes.unreachable("x".to_owned(), false).is_some());
        assert!(stripes.unreachable("x".to_owned(), false).is_none());
        assert!(matches!(
            arrive(&mut stripes, 1, None).news,
            Some(StripeNews::Connected { .. })
        ));
        assert_eq!(arrive(&mut stripes, 0, None).news, None);
        assert_eq!(arrive(&mut stripes, 2, None).news, None);
        assert!(matches!(
            stripes.lost(1, "x"),
            StripeNews::Lost { up: 2, of: 3, .. }
        ));
        assert!(matches!(
            stripes.lost(0, "x"),
            StripeNews::Lost { up: 1, of: 3, .. }
        ));
        assert_eq!(stripes.unreachable("x".to_owned(), false), None);
        let back = arrive(&mut stripes, 0, None);
        assert_eq!(back.news, Some(StripeNews::Joined { up: 2, of: 3 }));
        assert!(!back.is_tunnel_again);
        stripes.lost(0, "x");
        assert!(matches!(stripes.lost(2, "x"), StripeNews::Down { .. }));
    }

    /// SESSION-11.
    #[test]
    fn a_stripe_leaves_a_taken_shard_of_the_server_only_while_another_is_free() {
        let at = |index| Some(ServerShard { index, count: 2 });
        let mut stripes = Stripes::new(3);
        assert!(stripes.may_keep(0, at(1)));
        arrive(&mut stripes, 0, Some(1));
        assert!(!stripes.may_keep(1, at(1)));
        assert!(stripes.may_keep(1, at(0)));
        assert!(stripes.may_keep(1, None));
        assert!(stripes.may_keep(0, at(1)));
        arrive(&mut stripes, 1, Some(0));
        assert!(stripes.may_keep(2, at(0)));
        stripes.lost(1, "x");
        assert!(!stripes.may_keep(2, at(1)));
    }

    /// SESSION-11: attempts are bounded.
    #[test]
    fn a_stripe_that_never_finds_a_free_shard_stays_after_its_tries() {
        let taken = Some(ServerShard { index: 1, count: 2 });
        let mut stripes = Stripes::new(2);
        arrive(&mut stripes, 0, Some(1));
        for _ in 0..limits::SPREAD_TRIES {
            assert!(!stripes.may_keep(1, taken));
        }
        assert!(stripes.may_keep(1, taken));
        arrive(&mut stripes, 1, Some(1));
        stripes.lost(1, "x");
        assert!(!stripes.may_keep(1, taken));
    }

    #[test]
    fn the_next_stripe_that_is_up_stands_in() {
        let mut stripes = Stripes::new(3);
        assert_eq!(stripes.stand_in(0), None);
        arrive(&mut stripes, 0, None);
        assert_eq!(stripes.stand_in(0), None);
        assert_eq!(stripes.stand_in(1), Some(0));
        arrive(&mut stripes, 2, None);
        assert_eq!(stripes.stand_in(1), Some(2));
    }

    #[test]
    fn one_line_tells_the_least_path_mtu_once_all_stripes_have_settled() {
        let mut stripes = Stripes::new(2);
        arrive(&mut stripes, 0, None);
        let told = |mtu, up| Some(StripeNews::Path { mtu, up, of: 2 });
        assert_eq!(stripes.path_settled(0, 1_452), told(1_452, 1));
        arrive(&mut stripes, 1, None);
        assert_eq!(stripes.path_settled(0, 1_400), None);
        assert_eq!(stripes.path_settled(1, 1_452), told(1_400, 2));
        assert_eq!(stripes.path_settled(1, 1_420), None);
        assert_eq!(stripes.path_settled(0, 1_300), told(1_300, 2));
        stripes.lost(1, "x");
        assert_eq!(stripes.path_settled(0, 1_300), None);
        stripes.lost(0, "x");
        arrive(&mut stripes, 0, None);
        assert_eq!(stripes.path_settled(0, 1_300), told(1_300, 1));
    }
}
