//! Whether this process may change the network.

use rustix::thread::{CapabilitySet, capabilities};

/// CAP_NET_ADMIN is missing. Its text is the sentence with the way out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "changing the network needs the capability CAP_NET_ADMIN: run it with sudo, or as a systemd service with \
     AmbientCapabilities=CAP_NET_ADMIN (containers: --cap-add NET_ADMIN)"
)]
pub struct NotPrivileged;

/// Asks the system.
///
/// # Errors
/// The capability is not in effect.
pub fn can_administer() -> Result<(), NotPrivileged> {
    match capabilities(None) {
        Ok(sets) if sets.effective.contains(CapabilitySet::NET_ADMIN) => Ok(()),
        _ => Err(NotPrivileged),
    }
}

#[cfg(test)]
mod tests {
    use rustix::thread::set_capabilities;

    use super::*;

    #[test]
    fn a_thread_without_the_capability_is_told_the_way_out() {
        // Capabilities are the thread's; giving one up is always allowed.
        let ask = || {
            let mut sets = capabilities(None).unwrap();
            sets.effective.remove(CapabilitySet::NET_ADMIN);
            set_capabilities(None, sets).unwrap();
            can_administer()
        };
        let error = std::thread::scope(|scope| scope.spawn(ask).join().unwrap()).unwrap_err();
        assert!(
            error.to_string().contains("AmbientCapabilities=CAP_NET_ADMIN"),
            "{error}"
        );
    }
}
