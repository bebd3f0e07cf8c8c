//! What somebody should know of these counters, and what to do about it.

use serde_json::{Value, json};
use tunnel_proto::DropReason;

/// Each with `what` it is, and `advice` where something can be done.
pub(super) fn of(counters: &Value) -> Value {
    let mut list = Vec::new();
    let mut warn = |what: String, advice: &str| list.push(json!({ "what": what, "advice": advice }));
    let number = |pointer: &str| counters.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
    let text = |pointer: &str| {
        counters
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    match text("/state") {
        "connecting" | "reconnecting" => warn(
            "The tunnel is not up".to_owned(),
            "See the last events for the reason. Check that the server runs and that its UDP port is open.",
        ),
        "redirected" => warn(
            "Another server answers than the one that the link names".to_owned(),
            "The server's link may be old: ask for a new one. If it is not, this network redirects connections.",
        ),
        "draining" => warn(
            "It is stopping".to_owned(),
            "TCP connections may finish. A second signal stops at once.",
        ),
        _ => {}
    }
    for (socket, name) in [
        ("outer_io", "to the other end"),
        ("inner_io", "of local programs and targets"),
    ] {
        let wanted = number(&format!("/{socket}/receive_buffer_wanted"));
        let obtained = number(&format!("/{socket}/receive_buffer_obtained"));
        if obtained > 0 && obtained < wanted {
            warn(
                format!("The receive buffer {name} is {obtained} bytes instead of {wanted}"),
                &format!("Run: sysctl -w net.core.rmem_max={wanted}"),
            );
        }
        let dropped = number(&format!("/{socket}/kernel_drops"));
        if dropped > 0 {
            warn(
                format!("The kernel dropped {dropped} datagrams at the socket {name}"),
                "The machine does not keep up for moments. Give the process more processor time, or raise receive_buffer.",
            );
        }
    }
    let sandbox = &counters["sandbox"];
    if sandbox.is_object() && (sandbox["files"] != true || sandbox["system_calls"] != true) {
        warn(
            "The sandbox is not complete on this kernel".to_owned(),
            "Files are confined from Linux 5.13 on, with Landlock switched on.",
        );
    }
    for reason in DropReason::ALL {
        let name = reason.name();
        let dropped: u64 = ["ingress", "egress"]
            .into_iter()
            .map(|way| number(&format!("/{way}/drops/{name}")))
            .sum();
        if dropped > 0
            && let Some(advice) = advice(reason)
        {
            let shown = name.replace('_', " ");
            list.push(json!({
                "what": format!("{dropped} datagrams dropped: {shown}"), "advice": advice, "reason": name,
            }));
        }
    }
    Value::Array(list)
}

/// What to do about datagrams that are dropped for this reason; nothing where they are dropped as they should be.
fn advice(reason: DropReason) -> Option<&'static str> {
    use DropReason::{
        AlreadyRepaired, DuplicateFragment, FlowQuota, HopLimit, Malformed, NoRoute, NoTunnel, PacketTooBig,
        PathChanged, PolicyDenied, QueueExpired, QueueFull, RateLimit, ReassemblyExpired, SessionClosed,
        SocketError, SocketFull, SourceSpoofed, StandingDelay, TargetRefused, TargetTooLarge,
        TargetUnreachable, TooLarge, UnknownContext, UnknownSession,
    };
    Some(match reason {
        QueueFull | FlowQuota | QueueExpired => {
            "Programs send faster than the line carries. If the line is known to be faster, look at loss and round trip."
        }
        StandingDelay | AlreadyRepaired | DuplicateFragment | HopLimit | PacketTooBig | PathChanged => {
            return None;
        }
        RateLimit => "Users send faster than their rate lets them: see gramway user list.",
        NoTunnel => "They came while no connection was up. See the last events for the reason.",
        TooLarge => "The other end does not take split datagrams: let the program send shorter ones.",
        SessionClosed | UnknownSession => {
            "Their session had ended. If there are many, raise udp_idle_timeout_s at both ends."
        }
        UnknownContext | Malformed => {
            "The other end sends what this one does not read: run the same version at both."
        }
        ReassemblyExpired => {
            "Parts of split datagrams were lost on the way. Shorter datagrams of the program help."
        }
        TargetTooLarge => "The way to the target is narrower: let the program send shorter datagrams.",
        TargetRefused => "Nobody listens at the target: check its port, and that its program runs.",
        TargetUnreachable => {
            "There is no way to the target, or it is not permitted: check allow_target and its address."
        }
        SocketFull | SocketError => {
            "The local network does not take them: look at the interface's errors and load."
        }
        SourceSpoofed => {
            "A machine sends from addresses that it was not given: check its routes and its NAT."
        }
        NoRoute => {
            "No client and no route has these addresses: check the routes of the machine that sends them."
        }
        PolicyDenied => "The rules refuse them: see client_to_client and allow_target.",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_told_with_what_to_do() {
        assert_eq!(of(&json!({ "state": "listening" })), json!([]));
        let counters = json!({
            "state": "connecting",
            "outer_io": { "receive_buffer_wanted": 10, "receive_buffer_obtained": 5, "kernel_drops": 2 },
            "ingress": { "drops": { "no_tunnel": 3, "standing_delay": 1 } },
            "egress": { "drops": { "target_refused": 4 } },
            "sandbox": { "files": false, "system_calls": true },
        });
        let warnings = of(&counters);
        let warnings = warnings.as_array().unwrap();
        assert_eq!(warnings.len(), 6);
        assert!(warnings.iter().all(|warning| {
            warning["advice"]
                .as_str()
                .is_some_and(|advice| advice.ends_with(['.', '0']))
        }));
        assert_eq!(warnings[1]["advice"], "Run: sysctl -w net.core.rmem_max=10");
        assert_eq!(warnings[5]["reason"], "target_refused");
    }
}
