//! The thread that asks the local network for peers while some are looked for.

use std::sync::Arc;
use std::task::Waker;
use std::thread;
use std::time::Instant;

use mdns_sd::{Receiver, RecvTimeoutError, ServiceDaemon, ServiceEvent};
use peer_proto::AddressSource;

use super::names::{SERVICE, addresses_of, numbers_of, peer_of};
use super::{daemon, is_flooded};
use crate::interfaces::networks;
use crate::limits::{LAN_ANSWERS_MAX, LAN_SEARCH_TURN};
use crate::shared::Shared;

/// Begins it.
pub(crate) fn begin(shared: &Arc<Shared>) {
    let of_thread = Arc::clone(shared);
    let begun = thread::Builder::new()
        .name("peer-search".to_owned())
        .spawn(move || ask(&of_thread));
    if begun.is_err() {
        end(shared);
    }
}

fn ask(shared: &Shared) {
    if let Ok(daemon) = daemon() {
        if let Ok(events) = daemon.browse(SERVICE) {
            let is_over = take(shared, &daemon, &events);
            let _ = daemon.shutdown();
            if is_over {
                return;
            }
        } else {
            let _ = daemon.shutdown();
        }
    }
    end(shared);
}

/// Hands answers on while somebody waits for one and the network keeps within its bounds (LAN-4). Whether it ended
/// because nobody does: the next search, which another thread may have begun by now, is not this one's to end.
fn take(shared: &Shared, daemon: &ServiceDaemon, events: &Receiver<ServiceEvent>) -> bool {
    let (networks, has_ipv6) = (networks(), shared.local.is_ipv6());
    let mut looked_at = Instant::now();
    for _ in 0..LAN_ANSWERS_MAX {
        match events.recv_timeout(LAN_SEARCH_TURN) {
            Ok(ServiceEvent::ServiceResolved(answer)) => {
                let addresses = addresses_of(&answer, &networks, has_ipv6);
                let numbers = numbers_of(&answer);
                if let Some(id) = peer_of(answer.get_fullname()).filter(|_| !addresses.is_empty()) {
                    shared.change(|state, now| {
                        let (lan, peers) = (&mut state.lan, &mut state.peers);
                        lan.take_answer(now, peers, id, &addresses, &numbers);
                    });
                    wake(shared);
                }
            }
            Ok(_) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return false,
        }
        if looked_at.elapsed() >= LAN_SEARCH_TURN {
            looked_at = Instant::now();
            let mut state = shared.lock();
            let goes_on = !state.is_closed && state.lan.searches.goes_on(looked_at);
            drop(state);
            wake(shared);
            if !goes_on {
                return true;
            }
            if is_flooded(daemon) {
                return false;
            }
        }
    }
    false
}

/// Whoever waits for the peer of a number looks whether it is known, or looked for no more.
fn wake(shared: &Shared) {
    let mut woken = Vec::new();
    shared.lock().lan.waiting.take(&mut woken);
    woken.into_iter().for_each(Waker::wake);
}

/// Nobody is found here any more.
fn end(shared: &Shared) {
    shared.change(|state, now| {
        for peer in state.lan.searches.end() {
            let peers = &mut state.peers;
            peers.expect_no_more_addresses(now, peer, AddressSource::Lan);
        }
    });
    wake(shared);
}
