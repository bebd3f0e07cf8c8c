//! What a client may offer with a request and a server accept: an extension that works once both sides have agreed.

/// An extension of one request: `O` is what was offered, `A` what both sides have from then on.
#[derive(Debug)]
pub(crate) enum Offer<O, A = O> {
    /// Neither offered nor agreed on.
    None,
    /// Offered by the client, not answered.
    Offered(O),
    /// Agreed on by both sides.
    Agreed(A),
}

impl<O, A> Offer<O, A> {
    pub(crate) fn offered(offer: Option<O>) -> Self {
        offer.map_or(Self::None, Self::Offered)
    }
}

/// An offer of a context ID.
pub(crate) type ContextOffer = Offer<u64>;

impl ContextOffer {
    /// The context that was offered or agreed on.
    pub(crate) fn any(&self) -> Option<u64> {
        match self {
            Self::None => None,
            Self::Offered(context) | Self::Agreed(context) => Some(*context),
        }
    }

    /// The context that was agreed on.
    pub(crate) fn agreed(&self) -> Option<u64> {
        match self {
            Self::None | Self::Offered(_) => None,
            Self::Agreed(context) => Some(*context),
        }
    }

    /// Server: agrees to what was offered, and says to what.
    pub(crate) fn accept(&mut self) -> Option<u64> {
        let context = self.any();
        *self = context.map_or(Self::None, Self::Agreed);
        context
    }

    /// Client: the server has answered with this context, or none.
    pub(crate) fn answered(&mut self, echoed: Option<u64>) {
        let accepted = self.any().filter(|offered| echoed == Some(*offered));
        *self = accepted.map_or(Self::None, Self::Agreed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_offered_is_agreed_on() {
        for (echoed, expected) in [(Some(2), Some(2)), (Some(4), None), (None, None)] {
            let mut offer = ContextOffer::offered(Some(2));
            assert_eq!((offer.any(), offer.agreed()), (Some(2), None));
            offer.answered(echoed);
            assert_eq!((offer.any(), offer.agreed()), (expected, expected));
        }
        let mut none = ContextOffer::offered(None);
        assert_eq!(none.accept(), None);
        none.answered(Some(2));
        assert_eq!(none.any(), None);
    }
}
