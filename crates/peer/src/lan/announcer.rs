//! The thread that announces an endpoint on the local network until it closes, and then takes the announcement back.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use mdns_sd::{DaemonEvent, IfKind, Receiver, ServiceDaemon, ServiceInfo};
use peer_proto::PeerId;

use super::names::{SERVICE, announced, host, properties};
use super::{daemon, is_flooded};
use crate::companion::{self, Companion, Leash};
use crate::limits::{LAN_FLOOD_PAUSE, LAN_PATIENCE, LAN_TURN};
use crate::shared::{Shared, State};

/// Begins it.
pub(crate) fn announce(shared: &Arc<Shared>, numbers: Vec<u32>) -> io::Result<()> {
    companion::spawn(shared, "peer-lan", of, move |shared, leash| {
        run(shared, leash, &numbers)
    })
}

fn of(state: &mut State) -> &mut Companion<()> {
    &mut state.lan.announcement
}

fn run(shared: &Shared, leash: &Leash, numbers: &[u32]) {
    loop {
        let pause = match announce_until(shared, leash, numbers) {
            Ok(Ended::Closed) => return,
            Ok(Ended::Flooded) => "the local network floods this machine with multicast DNS".to_owned(),
            Err(problem) => problem,
        };
        companion::tell(shared, of, Err(pause));
        if leash.has_ended_within(LAN_FLOOD_PAUSE) {
            return;
        }
    }
}

/// Why an announcement ended.
enum Ended {
    Closed,
    Flooded,
}

fn announce_until(shared: &Shared, leash: &Leash, numbers: &[u32]) -> Result<Ended, String> {
    let info = service(shared.id, shared.local, numbers)?;
    let told = |error: mdns_sd::Error| error.to_string();
    let daemon = daemon().map_err(told)?;
    let events = daemon.monitor().map_err(told)?;
    daemon.register(info).map_err(told)?;
    let ended = watch(shared, leash, &daemon, &events);
    // It says goodbye to those who have heard of us (RFC 6762 section 10.1).
    if let Ok(done) = daemon.shutdown() {
        let _ = done.recv_timeout(LAN_PATIENCE);
    }
    Ok(ended)
}

/// Tells what becomes of the announcement.
fn watch(shared: &Shared, leash: &Leash, daemon: &ServiceDaemon, events: &Receiver<DaemonEvent>) -> Ended {
    let begun = Instant::now();
    let (mut is_announced, mut has_complained) = (false, false);
    loop {
        // What follows the call of the program follows soon; then one look a second is enough.
        let turn = if is_announced || has_complained {
            LAN_TURN
        } else {
            LAN_TURN / 20
        };
        if leash.has_ended_within(turn) {
            return Ended::Closed;
        }
        for event in events.try_iter() {
            if matches!(event, DaemonEvent::Announce(..) | DaemonEvent::IpAdd(_)) && !is_announced {
                is_announced = true;
                companion::tell(shared, of, Ok(()));
            }
        }
        if !is_announced && !has_complained && begun.elapsed() >= LAN_PATIENCE {
            has_complained = true;
            let problem = "no network takes the announcement: is one up, and can UDP port 5353 be shared?";
            companion::tell(shared, of, Err(problem.to_owned()));
        }
        if turn >= LAN_TURN && is_flooded(daemon) {
            return Ended::Flooded;
        }
    }
}

/// What is announced (LAN-1, LAN-5).
fn service(id: PeerId, local: SocketAddr, numbers: &[u32]) -> Result<ServiceInfo, String> {
    let Some(only) = announced(local) else {
        return Err(format!("{local} is an address that no other machine reaches"));
    };
    let addresses: &[IpAddr] = only.as_slice();
    let properties = properties(numbers);
    let port = local.port();
    let info = ServiceInfo::new(
        SERVICE,
        &id.to_string(),
        &host(id),
        addresses,
        port,
        &properties[..],
    );
    let mut info = info.map_err(|error| error.to_string())?;
    // The name is a public key: nobody else has it, and whoever claims it must not make us take another one.
    info.set_requires_probe(false);
    if only.is_none() {
        info = info.enable_addr_auto();
        if local.is_ipv4() {
            info.set_interfaces(vec![IfKind::IPv4]);
        }
    }
    Ok(info)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// LAN-1.
    #[test]
    fn the_port_and_the_bound_address_are_announced_or_all_of_the_machine() {
        let id = PeerId::from([7; 32]);
        let one = service(id, "192.0.2.1:9".parse().unwrap(), &[]).unwrap();
        assert_eq!((one.get_port(), one.is_addr_auto()), (9, false));
        assert_eq!(one.get_addresses().len(), 1);
        assert_eq!(one.get_hostname(), host(id));
        let all = service(id, "[::]:9".parse().unwrap(), &[]).unwrap();
        assert!(all.is_addr_auto() && !all.requires_probe());
        assert!(all.get_properties().is_empty());
        assert!(service(id, "127.0.0.1:9".parse().unwrap(), &[]).is_err());
    }
}
