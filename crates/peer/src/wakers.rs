//! Who waits for one thing. Each wait has a place of its own, which its future gives back when it is dropped: many may
//! begin to wait for what comes late or never, the end of a connection above all, and give that up.
//!
//! All who wait are woken together, and look again.

use std::future::poll_fn;
use std::mem;
use std::ops::Deref;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use peer_proto::PeerKey;

use crate::face::Face;
use crate::limits::PLACES_KEPT;
use crate::shared::{Shared, State};

/// Who waits for one thing.
#[derive(Debug, Default)]
pub(crate) struct Wakers {
    places: Vec<Place>,
    /// The first free place, if one is.
    free: Option<usize>,
    /// How many are taken.
    taken: usize,
    /// How many were taken until now: the number of the last wait.
    count: u64,
}

#[derive(Debug)]
enum Place {
    Taken { number: u64, waker: Waker },
    Free { next: Option<usize> },
}

/// One wait, by which its place is found.
#[derive(Debug, Default)]
pub(crate) struct Wait {
    /// Index and number, until it has been woken, and until its next look after that.
    place: Option<(usize, u64)>,
    /// A waker in whose place there is another one. A waker may be the last that keeps a task, and with that a
    /// connection, so that it is dropped without the lock.
    replaced: Option<Waker>,
}

impl Wakers {
    /// The next event wakes `waker`.
    pub(crate) fn wait(&mut self, wait: &mut Wait, waker: &Waker) {
        if let Some(own) = self.waker_of(wait) {
            if !own.will_wake(waker) {
                wait.replaced = Some(mem::replace(own, waker.clone()));
            }
            return;
        }
        self.count += 1;
        self.taken += 1;
        let place = Place::Taken {
            number: self.count,
            waker: waker.clone(),
        };
        let index = self.free.unwrap_or(self.places.len());
        wait.place = Some((index, self.count));
        match self.places.get_mut(index) {
            Some(free) => {
                let Place::Free { next } = mem::replace(free, place) else {
                    unreachable!("only free places are in the list of those")
                };
                self.free = next;
            }
            None => self.places.push(place),
        }
    }

    fn waker_of(&mut self, wait: &Wait) -> Option<&mut Waker> {
        let (index, own) = wait.place?;
        match self.places.get_mut(index) {
            Some(Place::Taken { number, waker }) if *number == own => Some(waker),
            _ => None,
        }
    }

    /// Its future waits no longer; the waker, where it was not woken.
    pub(crate) fn give_up(&mut self, wait: &mut Wait) -> Option<Waker> {
        self.waker_of(wait)?;
        let (index, _) = wait.place.take()?;
        let free = Place::Free {
            next: self.free.replace(index),
        };
        let place = mem::replace(self.places.get_mut(index)?, free);
        self.taken -= 1;
        if self.taken == 0 {
            self.clear();
        }
        match place {
            Place::Taken { waker, .. } => Some(waker),
            Place::Free { .. } => None,
        }
    }

    /// Who waits is to be woken.
    pub(crate) fn take(&mut self, woken: &mut Vec<Waker>) {
        if self.taken == 0 {
            return;
        }
        woken.extend(self.places.drain(..).filter_map(|place| match place {
            Place::Taken { waker, .. } => Some(waker),
            Place::Free { .. } => None,
        }));
        self.clear();
    }

    fn clear(&mut self) {
        self.places.clear();
        self.places.shrink_to(PLACES_KEPT);
        (self.free, self.taken) = (None, 0);
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.taken == 0
    }
}

/// Waits until `look` at the state is ready; between the looks in the list that `list` finds, which must be there where
/// a look is pending.
pub(crate) async fn until<T>(
    shared: impl Deref<Target = Shared>,
    list: impl Fn(&mut State) -> Option<&mut Wakers>,
    mut look: impl FnMut(&mut State) -> Poll<T>,
) -> T {
    let mut waiting = Waiting::new(shared, list);
    poll_fn(|context| waiting.look(context, &mut look)).await
}

/// The same where a look may give the endpoint's thread something to do.
pub(crate) async fn until_changed<T>(
    shared: impl Deref<Target = Shared>,
    list: impl Fn(&mut State) -> Option<&mut Wakers>,
    mut look: impl FnMut(&mut State, Instant) -> Poll<T>,
) -> T {
    let mut waiting = Waiting::new(shared, list);
    poll_fn(|context| waiting.change(context, &mut look)).await
}

/// Finds those who wait for something of a connection.
pub(crate) fn wakers_of(
    peer: PeerKey,
    of: impl Fn(&mut Face) -> &mut Wakers,
) -> impl Fn(&mut State) -> Option<&mut Wakers> {
    move |state| state.faces.get_mut(&peer).map(|face| of(face))
}

/// The wait of one future.
struct Waiting<S, L>
where
    S: Deref<Target = Shared>,
    L: Fn(&mut State) -> Option<&mut Wakers>,
{
    shared: S,
    list: L,
    wait: Wait,
}

impl<S, L> Waiting<S, L>
where
    S: Deref<Target = Shared>,
    L: Fn(&mut State) -> Option<&mut Wakers>,
{
    fn new(shared: S, list: L) -> Self {
        Self {
            shared,
            list,
            wait: Wait::default(),
        }
    }

    fn look<T>(&mut self, context: &Context<'_>, look: impl FnOnce(&mut State) -> Poll<T>) -> Poll<T> {
        let mut state = self.shared.lock();
        let looked = look(&mut state);
        let given_up = self.wait.settle(&self.list, &mut state, context, &looked);
        drop(state);
        drop((given_up, self.wait.replaced.take()));
        looked
    }

    fn change<T>(
        &mut self,
        context: &Context<'_>,
        look: impl FnOnce(&mut State, Instant) -> Poll<T>,
    ) -> Poll<T> {
        change(&self.shared, &self.list, &mut self.wait, context, look)
    }
}

/// One look of a wait that is kept elsewhere: that of a stream's `AsyncRead` or `AsyncWrite` is the stream's own.
pub(crate) fn change<T>(
    shared: &Shared,
    list: impl Fn(&mut State) -> Option<&mut Wakers>,
    wait: &mut Wait,
    context: &Context<'_>,
    look: impl FnOnce(&mut State, Instant) -> Poll<T>,
) -> Poll<T> {
    let (looked, given_up) = shared.change(|state, now| {
        let looked = look(state, now);
        let given_up = wait.settle(&list, state, context, &looked);
        (looked, given_up)
    });
    drop((given_up, wait.replaced.take()));
    looked
}

impl Wait {
    /// After a look: it waits, or gives its place back. What is to be dropped without the lock.
    fn settle<T>(
        &mut self,
        list: &impl Fn(&mut State) -> Option<&mut Wakers>,
        state: &mut State,
        context: &Context<'_>,
        looked: &Poll<T>,
    ) -> Option<Waker> {
        if looked.is_pending() {
            if let Some(wakers) = list(state) {
                wakers.wait(self, context.waker());
            }
            return None;
        }
        self.place?;
        list(state).and_then(|wakers| wakers.give_up(self))
    }
}

impl<S, L> Drop for Waiting<S, L>
where
    S: Deref<Target = Shared>,
    L: Fn(&mut State) -> Option<&mut Wakers>,
{
    fn drop(&mut self) {
        if self.wait.place.is_some() {
            let mut state = self.shared.lock();
            let given_up = (self.list)(&mut state).and_then(|wakers| wakers.give_up(&mut self.wait));
            drop(state);
            drop(given_up);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::Wake;

    use super::*;

    struct Task;

    impl Wake for Task {
        fn wake(self: Arc<Self>) {}
    }

    /// A list with waits of these many tasks.
    fn waiting(count: usize) -> (Wakers, Vec<(Arc<Task>, Wait)>) {
        let mut wakers = Wakers::default();
        let mut wait = || {
            let (task, mut wait) = (Arc::new(Task), Wait::default());
            wakers.wait(&mut wait, &Waker::from(Arc::clone(&task)));
            (task, wait)
        };
        let waits = (0..count).map(|_| wait()).collect();
        (wakers, waits)
    }

    #[test]
    fn who_gives_up_leaves_nothing_and_the_place_is_used_again() {
        let (mut wakers, mut waits) = waiting(100);
        for (task, wait) in waits.iter_mut().step_by(2) {
            assert!(wakers.give_up(wait).is_some());
            assert_eq!(Arc::strong_count(task), 1);
            assert!(wakers.give_up(wait).is_none());
        }
        let mut later: Vec<Wait> = (0..50).map(|_| Wait::default()).collect();
        for wait in &mut later {
            wakers.wait(wait, Waker::noop());
        }
        assert_eq!(wakers.places.len(), 100);
        let mut woken = Vec::new();
        wakers.take(&mut woken);
        assert_eq!(woken.len(), 100);
        assert!(wakers.is_empty() && wakers.places.capacity() <= PLACES_KEPT);
    }

    #[test]
    fn a_wait_has_one_place_and_its_latest_waker_is_woken() {
        let (mut wakers, mut waits) = waiting(1);
        let (first, wait) = &mut waits[0];
        wakers.wait(wait, &Waker::from(Arc::clone(first)));
        assert!(wait.replaced.is_none());
        let second = Arc::new(Task);
        wakers.wait(wait, &Waker::from(Arc::clone(&second)));
        assert!(wait.replaced.take().is_some());
        let mut woken = Vec::new();
        wakers.take(&mut woken);
        assert_eq!((Arc::strong_count(first), Arc::strong_count(&second)), (1, 2));
        assert_eq!(woken.len(), 1);
    }

    #[test]
    fn who_was_woken_does_not_give_up_the_place_of_another() {
        let (mut wakers, mut waits) = waiting(1);
        wakers.take(&mut Vec::new());
        let mut other = Wait::default();
        wakers.wait(&mut other, Waker::noop());
        assert!(wakers.give_up(&mut waits[0].1).is_none());
        assert!(!wakers.is_empty());
        assert!(wakers.give_up(&mut other).is_some());
        assert!(wakers.is_empty());
    }
}
