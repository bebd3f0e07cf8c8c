//! Addresses of names, for programs that wait for them: without the C library, as shards have them.

use std::net::SocketAddr;

use crate::driver::resolve_once;

/// The addresses of `host`, which is a name or an address itself, in the order in which they are worth a try.
///
/// # Errors
/// Why there is none, for people.
pub fn addresses(host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    match host.parse() {
        Ok(address) => Ok(vec![SocketAddr::new(address, port)]),
        Err(_) => resolve_once(host, port)
            .map_err(|_| "its name has no address, or no name server answers".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_its_own_and_the_hosts_file_is_read() {
        for address in ["192.0.2.1:443", "[2001:db8::1]:443"] {
            let wanted: SocketAddr = address.parse().unwrap();
            assert_eq!(addresses(&wanted.ip().to_string(), 443), Ok(vec![wanted]));
        }
        let local = addresses("localhost", 80).unwrap();
        assert!(
            local.iter().all(|address| address.ip().is_loopback()),
            "{local:?}"
        );
        assert!(addresses("a name", 80).is_err());
    }
}
