//! A port of the router that leads to the endpoint's: asked for by PCP (RFC 6887), NAT-PMP (RFC 6886) or UPnP IGD,
//! renewed while the endpoint is open, and taken back when it closes.
//!
//! A thread of its own does that, because routers are slow ([`keep`]); [`schedule`] says when it asks again, [`router`]
//! which router is asked and which of its answers counts, [`protocols`] speaks to it, and [`problem`] says why there is
//! no mapping.

mod problem;
mod protocols;
mod router;
mod schedule;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use crate::companion::{self, Companion, Leash};
use crate::limits::ROUTER_LOOK;
use crate::shared::{Shared, State};
pub use problem::MappingProblem;
use protocols::Mapping;
use router::{Router, is_reachable};
use schedule::{renewal_after, retry_after};

/// Begins the thread.
pub(crate) fn begin(shared: &Arc<Shared>) -> io::Result<()> {
    companion::spawn(shared, "peer-mapping", of, keep)
}

fn of(state: &mut State) -> &mut Companion<SocketAddr, MappingProblem> {
    &mut state.mapping
}

/// Keeps a mapping until the endpoint closes. Where the machine moves to another network, it begins anew: the former
/// router is out of reach.
fn keep(shared: &Shared, leash: &Leash) {
    let port = shared.local.port();
    let mut router = None;
    let mut mapping = None;
    let (mut due, mut failures) = (Instant::now(), 0);
    loop {
        let present = Router::find(shared.local);
        if router.as_ref() != Some(&present) {
            (mapping, failures, due) = (None, 0, Instant::now());
            router = Some(present.clone());
        }
        if Instant::now() >= due {
            let mapped = present.and_then(|router| mapped(&router, port, mapping.take()));
            let pause = match &mapped {
                Ok(mapping) => {
                    failures = 0;
                    renewal_after(mapping.lifetime())
                }
                Err(_) => {
                    failures += 1;
                    retry_after(failures)
                }
            };
            due = Instant::now() + pause;
            tell(
                shared,
                mapped
                    .as_ref()
                    .map(Mapping::external)
                    .map_err(MappingProblem::clone),
            );
            mapping = mapped.ok();
        }
        let pause = due.saturating_duration_since(Instant::now()).min(ROUTER_LOOK);
        if leash.has_ended_within(pause) {
            break;
        }
    }
    if let Some(mapping) = mapping {
        mapping.take_back();
    }
}

/// A mapping by which others reach us, renewed where there is one already.
fn mapped(router: &Router, port: u16, former: Option<Mapping>) -> Result<Mapping, MappingProblem> {
    let mapping = match former.and_then(|former| former.renewed(router, port)) {
        Some(renewed) => renewed,
        None => Mapping::ask(router, port)?,
    };
    let external = mapping.external();
    if is_reachable(external.ip()) {
        return Ok(mapping);
    }
    mapping.take_back();
    Err(MappingProblem::BehindAnother {
        router: router.gateway,
        outer: external.ip(),
    })
}

/// The program and the rendezvous learn of it.
fn tell(shared: &Shared, mapped: Result<SocketAddr, MappingProblem>) {
    let woken = shared.change(|state, _| {
        if let Some(meetings) = &mut state.meetings {
            meetings.set_mapped(mapped.as_ref().ok().copied());
        }
        state.mapping.tell(mapped)
    });
    woken.into_iter().for_each(Waker::wake);
}
