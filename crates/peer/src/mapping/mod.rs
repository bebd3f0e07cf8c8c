//! What routers keep for an endpoint while it is open: a port of the router of IPv4 that leads to the endpoint's, asked
//! for by PCP (RFC 6887), NAT-PMP (RFC 6886) or UPnP IGD, and a hole in the firewall of the router of IPv6, a
//! *pinhole*, by PCP or UPnP. Both are renewed, and taken back when the endpoint closes.
//!
//! A thread each does that, because routers are slow ([`keep`]); [`schedule`] says when it asks again. [`router`] says
//! which router is asked for a port and which addresses others reach, [`protocols`] speaks to it, [`pinhole`] does both
//! for IPv6. [`answers`] and [`nonces`] are what they have in common, and [`problem`] says why there is nothing.

mod answers;
mod nonces;
mod pinhole;
mod problem;
mod protocols;
mod router;
mod schedule;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::companion::{self, Companion, Leash};
use crate::limits::ROUTER_LOOK;
use crate::rendezvous::Meetings;
use crate::shared::{Shared, State};
use nonces::Nonces;
use pinhole::Pinhole;
pub use problem::MappingProblem;
use protocols::Mapping;
use router::is_reachable;
use schedule::{renewal_after, retry_after};

/// Where devices are asked by UPnP (UPnP Device Architecture 2.0, section 1.3.2).
const SEARCH_PORT: u16 = 1_900;

/// What a router keeps for us.
trait Kept: Sized {
    /// Where it is asked for; with another one all begins anew.
    type Router: Clone + PartialEq;

    /// What the endpoint knows of it.
    fn companion(state: &mut State) -> &mut Companion<SocketAddr, MappingProblem>;

    /// The rendezvous learns where others reach us by it.
    fn tell(meetings: &mut Meetings, address: Option<SocketAddr>);

    /// The router that a socket bound to `local` is behind, or why there is none.
    fn router(local: SocketAddr) -> Result<Self::Router, MappingProblem>;

    /// Asks for it, for this port of ours.
    fn ask(router: &Self::Router, port: u16, nonces: &Nonces) -> Result<Self, MappingProblem>;

    /// The same for longer; nothing where the router does not go on with it.
    fn renewed(self, router: &Self::Router, port: u16) -> Option<Self>;

    /// Where others reach us by it.
    fn external(&self) -> SocketAddr;

    /// How long it lives without a renewal.
    fn lifetime(&self) -> Duration;

    /// Gives it back, as far as the router answers.
    fn take_back(self);

    /// Why an address that the router gives helps nobody.
    fn unreachable(router: &Self::Router, external: SocketAddr) -> MappingProblem;
}

/// Begins the threads.
pub(crate) fn begin(shared: &Arc<Shared>) -> io::Result<()> {
    begin_thread::<Mapping>(shared, "peer-mapping")?;
    if shared.local.is_ipv6() {
        begin_thread::<Pinhole>(shared, "peer-pinhole")?;
    }
    Ok(())
}

fn begin_thread<K: Kept>(shared: &Arc<Shared>, name: &str) -> io::Result<()> {
    let nonces = Nonces::new()?;
    companion::spawn(shared, name, K::companion, move |shared, leash| {
        keep::<K>(shared, leash, &nonces);
    })
}

/// Keeps it up until the endpoint closes. Where the machine moves to another network, it begins anew: the former router
/// is out of reach.
fn keep<K: Kept>(shared: &Shared, leash: &Leash, nonces: &Nonces) {
    let port = shared.local.port();
    let mut router = None;
    let mut kept = None;
    let (mut due, mut failures) = (Instant::now(), 0);
    loop {
        let present = K::router(shared.local);
        if router.as_ref() != Some(&present) {
            (kept, failures, due) = (None, 0, Instant::now());
            router = Some(present.clone());
        }
        if Instant::now() >= due {
            let asked = present.and_then(|router| ask(&router, port, nonces, kept.take()));
            let pause = match &asked {
                Ok(kept) => {
                    failures = 0;
                    renewal_after(K::lifetime(kept))
                }
                Err(_) => {
                    failures += 1;
                    retry_after(failures)
                }
            };
            due = Instant::now() + pause;
            tell::<K>(
                shared,
                asked.as_ref().map(K::external).map_err(MappingProblem::clone),
            );
            kept = asked.ok();
        }
        let pause = due.saturating_duration_since(Instant::now()).min(ROUTER_LOOK);
        if leash.has_ended_within(pause) {
            break;
        }
    }
    if let Some(kept) = kept {
        kept.take_back();
    }
}

/// That by which others reach us, renewed where there is something already.
fn ask<K: Kept>(
    router: &K::Router,
    port: u16,
    nonces: &Nonces,
    former: Option<K>,
) -> Result<K, MappingProblem> {
    let kept = match former.and_then(|former| former.renewed(router, port)) {
        Some(renewed) => renewed,
        None => K::ask(router, port, nonces)?,
    };
    let external = kept.external();
    if is_reachable(external.ip()) {
        return Ok(kept);
    }
    kept.take_back();
    Err(K::unreachable(router, external))
}

/// The program and the rendezvous learn of it.
fn tell<K: Kept>(shared: &Shared, asked: Result<SocketAddr, MappingProblem>) {
    let woken = shared.change(|state, _| {
        if let Some(meetings) = &mut state.meetings {
            K::tell(meetings, asked.as_ref().ok().copied());
        }
        K::companion(state).tell(asked)
    });
    woken.into_iter().for_each(Waker::wake);
}
