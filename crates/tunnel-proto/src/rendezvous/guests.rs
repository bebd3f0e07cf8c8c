//! Guests (RDV-14 to RDV-16): machines without a link, each let in by a number that a user's peer has asked for, for a
//! bounded time, with one registration and a small budget. All shards share the table.
//!
//! A number is short, because people type it: it keeps nobody out who guesses long enough, so guesses are bounded, and a
//! guest can do nothing but meet a peer, which then has to prove more than the number.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use aws_lc_rs::hmac;

use super::PeerKeyBytes;
use crate::access::{
    Credentials, Decision, Exclusion, Grant, ListenRights, Reach, Rights, User, UserId, UserLimits,
};
use crate::engine::WrongTokens;
use crate::limits;

/// What comes before the number in a guest's token (RDV-15).
const PREFIX: &str = "guest-";

/// What the IDs of guests begin with, so that one whose invitation is over is still known as a guest.
const GUEST_ID: [u8; 8] = *b"guest\0\0\0";

/// Whether a user is a guest, or was one.
fn is_guest(user: UserId) -> bool {
    user.0.starts_with(&GUEST_ID)
}

/// A guest's token.
#[must_use]
pub(crate) fn guest_token(number: u32) -> String {
    format!("{PREFIX}{number}")
}

/// The guests of a server, and those who are invited; a clone is the same table.
#[derive(Clone)]
pub struct Guests(Arc<Mutex<Table>>);

struct Table {
    /// By number.
    invitations: BTreeMap<u32, Invitation>,
    /// Who has shown wrong numbers.
    guesses: WrongTokens,
    seed: hmac::Key,
    /// Numbers that were drawn.
    drawn: u64,
}

struct Invitation {
    inviter: UserId,
    /// The peer that asked for the number.
    inviting_peer: PeerKeyBytes,
    /// Up to when the number lets a guest in that was not registered.
    open_until: Instant,
    /// Up to when the number is known: once it was used, up to when the guest may stay, or users' peers that were told
    /// whose it is may ask again.
    until: Instant,
    user: User,
    /// The guest's peer, once it was registered.
    peer: Option<PeerKeyBytes>,
}

impl Invitation {
    /// Whether its guest may be here: a number that was not used is open for its own time, whoever asks for it.
    fn is_open(&self, now: Instant) -> bool {
        self.peer.is_some() || now < self.open_until
    }
}

impl Guests {
    /// Of a server that nobody was invited to. `seed` is secret and random: numbers are drawn from it.
    #[must_use]
    pub fn new(seed: [u8; 32]) -> Self {
        Self(Arc::new(Mutex::new(Table {
            invitations: BTreeMap::new(),
            guesses: WrongTokens::new(1),
            seed: hmac::Key::new(hmac::HMAC_SHA256, &seed),
            drawn: 0,
        })))
    }

    /// Whose a credential from `remote` is; `None` where it is not a guest's.
    #[must_use]
    pub fn authorize(
        &self,
        now: Instant,
        credentials: &Credentials<'_>,
        remote: SocketAddr,
    ) -> Option<Decision> {
        let Credentials::Token(text) = credentials else {
            return None;
        };
        // A user's token may begin like this as well, and go on otherwise.
        let is_number = |rest: &&str| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.strip_prefix(PREFIX).filter(is_number)?;
        let mut table = self.table();
        table.sweep(now);
        // Who has guessed too often is refused also where the number is right (RDV-16).
        if table.guesses.is_used_up(now, remote.ip()) {
            return Some(Decision::Refused);
        }
        let invitation = number
            .parse()
            .ok()
            .and_then(|number: u32| table.invitations.get(&number))
            .filter(|invitation| invitation.is_open(now));
        let Some(invitation) = invitation else {
            table.guesses.count(now, remote.ip());
            return Some(Decision::Refused);
        };
        Some(Decision::Granted(Grant {
            user: invitation.user.clone(),
            rights: Rights {
                udp: false,
                tcp: false,
                ip: false,
                services: true,
            },
            reach: Reach::only(Vec::new()),
            listen: ListenRights::default(),
            limits: UserLimits {
                connections: limits::GUEST_CONNECTIONS_MAX,
                sessions: limits::GUEST_SESSIONS_MAX,
                leases: 0,
                bytes: limits::GUEST_BYTES_MAX,
            },
        }))
    }

    /// A user's peer asks for a number; `None` where there are too many, and for guests. Invitations by peers that are
    /// not there make room, those of all users where the server has too many (RDV-14).
    pub(super) fn invite(
        &self,
        now: Instant,
        inviter: UserId,
        peer: PeerKeyBytes,
        is_there: impl Fn(&PeerKeyBytes) -> bool,
    ) -> Option<u32> {
        if is_guest(inviter) {
            return None;
        }
        let mut table = self.table();
        table.sweep(now);
        if table.of_inviter(inviter) >= limits::GUESTS_PER_USER_MAX {
            table.end(|invitation| invitation.inviter == inviter && !is_there(&invitation.inviting_peer));
        }
        if table.invitations.len() >= limits::GUESTS_MAX {
            table.end(|invitation| !is_there(&invitation.inviting_peer));
        }
        if table.of_inviter(inviter) >= limits::GUESTS_PER_USER_MAX
            || table.invitations.len() >= limits::GUESTS_MAX
        {
            return None;
        }
        let (number, id) = loop {
            let (number, id) = table.draw();
            if !table.invitations.contains_key(&number) {
                break (number, id);
            }
        };
        let user = User::new(id);
        user.set_rate(Some(limits::GUEST_BITS_PER_SECOND));
        let open_until = now + limits::INVITATION_TIME_MAX;
        let invitation = Invitation {
            inviter,
            inviting_peer: peer,
            open_until,
            until: open_until,
            user,
            peer: None,
        };
        table.invitations.insert(number, invitation);
        Some(number)
    }

    /// Whether a user may register a peer. A guest may register one, and uses its number up by that (RDV-15).
    pub(super) fn may_register(&self, now: Instant, user: UserId, peer: PeerKeyBytes) -> bool {
        if !is_guest(user) {
            return true;
        }
        let mut table = self.table();
        table.sweep(now);
        let Some(invitation) = table.of(user).filter(|invitation| invitation.is_open(now)) else {
            return false;
        };
        let is_first = invitation.peer.is_none();
        if is_first {
            invitation.peer = Some(peer);
            invitation.until = now + limits::GUEST_TIME_MAX;
        }
        invitation.peer == Some(peer)
    }

    /// Who asked for a guest's number; `None` for users.
    pub(super) fn inviting_peer(&self, user: UserId) -> Option<PeerKeyBytes> {
        if !is_guest(user) {
            return None;
        }
        self.table().of(user).map(|invitation| invitation.inviting_peer)
    }

    /// Who asked for this number and is there, for a peer of a user that came by it (RDV-18); nobody is told to guests.
    /// Whoever is told may come again for as long as a guest may stay.
    pub(super) fn find(
        &self,
        now: Instant,
        user: UserId,
        number: u32,
        is_there: impl Fn(&PeerKeyBytes) -> bool,
    ) -> Option<PeerKeyBytes> {
        if is_guest(user) {
            return None;
        }
        let mut table = self.table();
        table.sweep(now);
        let invitation = table.invitations.get_mut(&number)?;
        if !is_there(&invitation.inviting_peer) {
            return None;
        }
        // A guest stays no longer by what others ask, and none comes later.
        if invitation.peer.is_none() {
            invitation.until = now + limits::GUEST_TIME_MAX;
        }
        Some(invitation.inviting_peer)
    }

    /// Ends what is over.
    pub(super) fn sweep(&self, now: Instant) {
        self.table().sweep(now);
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn of(&mut self, guest: UserId) -> Option<&mut Invitation> {
        let mut invitations = self.invitations.values_mut();
        invitations.find(|invitation| invitation.user.id() == guest)
    }

    /// A number, and a name for its guest, which nobody can foresee.
    fn draw(&mut self) -> (u32, UserId) {
        self.drawn += 1;
        let tag = hmac::sign(&self.seed, &self.drawn.to_be_bytes());
        let (number, rest) = tag.as_ref().split_at(8);
        let number = number
            .iter()
            .fold(0, |number, byte| number << 8 | u64::from(*byte));
        let numbers = limits::INVITATION_NUMBERS;
        let number = u64::from(numbers.start) + number % u64::from(numbers.end - numbers.start);
        let mut id = [0; 16];
        id[..8].copy_from_slice(&GUEST_ID);
        id[8..].copy_from_slice(&rest[..8]);
        (number as u32, UserId(id))
    }

    fn of_inviter(&self, inviter: UserId) -> usize {
        let all = self.invitations.values();
        all.filter(|invitation| invitation.inviter == inviter).count()
    }

    /// Ends what is over, and excludes guests that have not registered in time of numbers that users' peers may still
    /// ask for.
    fn sweep(&mut self, now: Instant) {
        self.end(|invitation| invitation.until <= now);
        let late = self.invitations.values().filter(|kept| !kept.is_open(now));
        late.for_each(|kept| kept.user.exclude(Some(Exclusion::Expired)));
    }

    /// Ends those invitations, and excludes their guests.
    fn end(&mut self, is_over: impl Fn(&Invitation) -> bool) {
        self.invitations.retain(|_, invitation| {
            let is_over = is_over(invitation);
            if is_over {
                invitation.user.exclude(Some(Exclusion::Expired));
            }
            !is_over
        });
    }
}

impl fmt::Debug for Guests {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Guests").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const INVITER: UserId = UserId([1; 16]);
    const INVITING: PeerKeyBytes = [9; 32];

    fn remote(host: u8) -> SocketAddr {
        SocketAddr::from(([192, 0, host, 1], 4_000))
    }

    fn shown(guests: &Guests, now: Instant, text: &str, host: u8) -> Option<UserId> {
        match guests.authorize(now, &Credentials::Token(text), remote(host)) {
            Some(Decision::Granted(grant)) => {
                let rights = grant.rights;
                assert!(rights.services && !(rights.udp || rights.tcp || rights.ip));
                Some(grant.user.id())
            }
            Some(Decision::Refused) => None,
            None => panic!("{text} is a guest's"),
        }
    }

    fn invited(now: Instant) -> (Guests, u32) {
        let guests = Guests::new([7; 32]);
        let number = invite(&guests, now, INVITER).expect("there is room");
        (guests, number)
    }

    /// By a peer that is there.
    fn invite(guests: &Guests, now: Instant, inviter: UserId) -> Option<u32> {
        guests.invite(now, inviter, INVITING, |_| true)
    }

    /// By another user, while who asked for the number is there.
    fn find(guests: &Guests, now: Instant, number: u32) -> Option<PeerKeyBytes> {
        guests.find(now, UserId([2; 16]), number, |_| true)
    }

    /// RDV-14, RDV-15.
    #[test]
    fn a_number_lets_one_peer_in_for_a_bounded_time() {
        // tidy-allow(pure): first instant of virtual time
        let now = Instant::now();
        let (guests, number) = invited(now);
        assert!(limits::INVITATION_NUMBERS.contains(&number));
        let guest = shown(&guests, now, &guest_token(number), 1).expect("it is invited");
        assert_eq!(invite(&guests, now, guest), None);
        assert!(guests.may_register(now, INVITER, [1; 32]));
        assert!(guests.may_register(now, guest, [2; 32]));
        assert!(!guests.may_register(now, guest, [3; 32]));
        assert!(guests.may_register(now, guest, [2; 32]));
        // It stays longer than the number was valid, and no longer than guests may.
        let later = now + limits::INVITATION_TIME_MAX;
        assert_eq!(shown(&guests, later, &guest_token(number), 1), Some(guest));
        let end = now + limits::GUEST_TIME_MAX;
        assert_eq!(shown(&guests, end, &guest_token(number), 1), None);
        // Nor does it become a user by that.
        assert!(!guests.may_register(end, guest, [2; 32]));
        assert_eq!(invite(&guests, end, guest), None);
        // Unused ones are over sooner.
        let other = invite(&guests, end, INVITER).expect("there is room");
        let later = end + limits::INVITATION_TIME_MAX;
        assert_eq!(shown(&guests, later, &guest_token(other), 1), None);
    }

    /// RDV-18.
    #[test]
    fn users_learn_whose_a_number_is_and_guests_do_not() {
        // tidy-allow(pure): first instant of virtual time
        let now = Instant::now();
        let (guests, number) = invited(now);
        assert_eq!(find(&guests, now, number), Some(INVITING));
        assert_eq!(find(&guests, now, number + 1), None);
        let guest = shown(&guests, now, &guest_token(number), 1).expect("users use no number up");
        assert_eq!(guests.find(now, guest, number, |_| true), None);
    }

    /// RDV-18: a transfer that began in the number's time may be interrupted behind it.
    #[test]
    fn a_user_who_was_told_whose_a_number_is_asks_again_for_as_long_as_a_guest_may_stay() {
        // tidy-allow(pure): first instant of virtual time
        let now = Instant::now();
        let (guests, number) = invited(now);
        let last = now + limits::INVITATION_TIME_MAX - Duration::from_secs(1);
        assert_eq!(find(&guests, last, number), Some(INVITING));
        let again = last + limits::GUEST_TIME_MAX - Duration::from_secs(1);
        assert_eq!(find(&guests, again, number), Some(INVITING));
        let over = again + limits::GUEST_TIME_MAX;
        assert_eq!(find(&guests, over, number), None);
    }

    /// RDV-14, RDV-18: who guesses has no longer for a number that users ask for again and again.
    #[test]
    fn a_number_that_users_ask_for_lets_guests_in_for_no_longer_and_keeps_none_that_has_not_registered() {
        // tidy-allow(pure): first instant of virtual time
        let now = Instant::now();
        let (guests, number) = invited(now);
        let other = invite(&guests, now, INVITER).expect("there is room");
        let last = now + limits::INVITATION_TIME_MAX - Duration::from_secs(1);
        let is_excluded = |number: u32| {
            let table = guests.table();
            table.invitations[&number].user.exclusion().is_some()
        };
        // One has come and not registered, the other one has.
        let guest = shown(&guests, last, &guest_token(number), 1).expect("it is invited");
        let registered = shown(&guests, last, &guest_token(other), 1).expect("it is invited");
        for number in [number, other] {
            assert_eq!(find(&guests, last, number), Some(INVITING));
        }
        assert!(guests.may_register(last, registered, [2; 32]));
        guests.sweep(last);
        assert!(!is_excluded(number));
        let over = now + limits::INVITATION_TIME_MAX;
        guests.sweep(over);
        assert!(is_excluded(number) && !is_excluded(other));
        assert_eq!(shown(&guests, over, &guest_token(number), 2), None);
        assert!(!guests.may_register(over, guest, [3; 32]));
        assert_eq!(shown(&guests, over, &guest_token(other), 2), Some(registered));
        assert_eq!(find(&guests, over, number), Some(INVITING));
        // Nor does it by another question.
        assert_eq!(shown(&guests, over, &guest_token(number), 2), None);
    }

    /// RDV-18.
    #[test]
    fn neither_a_number_of_nobody_who_is_there_nor_a_guests_time_is_lengthened_by_users() {
        // tidy-allow(pure): first instant of virtual time
        let now = Instant::now();
        let (guests, number) = invited(now);
        assert_eq!(guests.find(now, UserId([2; 16]), number, |_| false), None);
        let over = now + limits::INVITATION_TIME_MAX;
        assert_eq!(find(&guests, over, number), None);
        let number = invite(&guests, over, INVITER).expect("there is room");
        let guest = shown(&guests, over, &guest_token(number), 1).expect("it is invited");
        assert!(guests.may_register(over, guest, [2; 32]));
        let last = over + limits::GUEST_TIME_MAX - Duration::from_secs(1);
        assert_eq!(find(&guests, last, number), Some(INVITING));
        assert!(guests.may_register(last, guest, [2; 32]));
        let over = over + limits::GUEST_TIME_MAX;
        assert!(!guests.may_register(over, guest, [2; 32]));
        assert_eq!(find(&guests, over, number), None);
    }

    /// RDV-16.
    #[test]
    fn who_guesses_too_often_is_refused_with_the_right_number_too() {
        // tidy-allow(pure): first instant of virtual time
        let now = Instant::now();
        let (guests, number) = invited(now);
        for guess in ["0", "99999999999"] {
            assert_eq!(shown(&guests, now, &format!("guest-{guess}"), 1), None);
        }
        for _ in 0..limits::WRONG_TOKENS_PER_PREFIX {
            assert_eq!(shown(&guests, now, "guest-1", 1), None);
        }
        assert_eq!(shown(&guests, now, &guest_token(number), 1), None);
        assert!(shown(&guests, now, &guest_token(number), 2).is_some());
        let later = now + limits::WRONG_TOKENS_WINDOW;
        assert!(shown(&guests, later, &guest_token(number), 1).is_some());
    }

    /// RDV-15.
    #[test]
    fn a_token_without_a_number_is_not_a_guests() {
        // tidy-allow(pure): first instant of virtual time
        let now = Instant::now();
        let (guests, number) = invited(now);
        let signed = format!("guest-+{number}");
        for text in ["AAAA", "guest-", "guest--1", "guest-x", "guest-alice", &signed] {
            let credentials = Credentials::Token(text);
            assert!(guests.authorize(now, &credentials, remote(1)).is_none(), "{text}");
        }
    }

    /// RDV-14.
    #[test]
    fn invitations_are_bounded_for_each_user_and_for_all() {
        // tidy-allow(pure): first instant of virtual time
        let now = Instant::now();
        let guests = Guests::new([7; 32]);
        let mut given = 0;
        for user in 0..=255 {
            for _ in 0..=limits::GUESTS_PER_USER_MAX {
                given += usize::from(invite(&guests, now, UserId([user; 16])).is_some());
            }
            assert!(given <= (usize::from(user) + 1) * limits::GUESTS_PER_USER_MAX);
        }
        assert_eq!(given, limits::GUESTS_MAX);
        // Nobody is ended for another one but who has left.
        let other = UserId([255; 16]);
        assert_eq!(guests.invite(now, other, INVITING, |_| true), None);
        assert!(guests.invite(now, other, INVITING, |_| false).is_some());
        let later = now + limits::INVITATION_TIME_MAX;
        assert!(invite(&guests, later, INVITER).is_some());
    }

    /// RDV-14: who sends one file after the other is not kept waiting by guests of the former ones.
    #[test]
    fn invitations_of_peers_that_have_left_make_room() {
        // tidy-allow(pure): first instant of virtual time
        let now = Instant::now();
        let guests = Guests::new([7; 32]);
        let ask =
            |peer: u8, there: u8| guests.invite(now, INVITER, [peer; 32], |other| *other == [there; 32]);
        let numbers: Vec<u32> = (0..limits::GUESTS_PER_USER_MAX)
            .map(|_| ask(1, 1).expect("there is room"))
            .collect();
        let guest = shown(&guests, now, &guest_token(numbers[0]), 1).expect("it is invited");
        assert_eq!(guests.inviting_peer(guest), Some([1; 32]));
        assert_eq!(guests.inviting_peer(INVITER), None);
        assert_eq!(ask(1, 1), None);
        assert!(ask(2, 2).is_some());
        assert_eq!(guests.inviting_peer(guest), None);
        assert_eq!(shown(&guests, now, &guest_token(numbers[0]), 1), None);
    }
}
