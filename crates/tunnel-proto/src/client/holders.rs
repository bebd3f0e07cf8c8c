//! Which of a client's stripes hold an IP session, or ask for one.
//!
//! One asks first. A server that leases by our name gives the others the same addresses (specs/ip-session.md, SESSION-12), so
//! they ask then. Any other server would take each stripe for a machine of its own, so only one holds a session there, and
//! another asks when that one is lost.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holders {
    /// This one, or whichever comes first.
    One(Option<usize>),
    /// Every one.
    All,
}

impl Holders {
    /// Whether a stripe may ask; where it is the first, it is the one.
    pub(super) fn may_ask(&mut self, stripe: usize) -> bool {
        match self {
            Self::All => true,
            Self::One(holder) => *holder.get_or_insert(stripe) == stripe,
        }
    }

    /// A stripe has no session any more, or none came about; `is_last` where no other has one.
    pub(super) fn lost(&mut self, stripe: usize, is_last: bool) {
        if *self == Self::One(Some(stripe)) || (*self == Self::All && is_last) {
            *self = Self::One(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_stripe_asks_and_another_when_it_is_lost() {
        let mut holders = Holders::One(None);
        assert!(holders.may_ask(1) && holders.may_ask(1));
        assert!(!holders.may_ask(0));
        holders.lost(0, false);
        assert!(!holders.may_ask(0));
        holders.lost(1, true);
        assert!(holders.may_ask(0) && !holders.may_ask(1));
    }

    #[test]
    fn where_all_may_ask_the_loss_of_the_last_begins_anew() {
        let mut holders = Holders::All;
        assert!(holders.may_ask(0) && holders.may_ask(1));
        holders.lost(0, false);
        assert!(holders.may_ask(0) && holders.may_ask(1));
        holders.lost(0, true);
        assert!(holders.may_ask(0) && !holders.may_ask(1));
    }
}
