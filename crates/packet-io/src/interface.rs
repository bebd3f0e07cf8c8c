//! Names of network interfaces, checked once so that they can be copied and handed to the kernel.

use std::fmt;
use std::io;
use std::str::FromStr;

use crate::limits::INTERFACE_NAME_BYTES_MAX;

/// The name of a network interface: 1 to 15 bytes without `/`, `:`, `%` and white space.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct InterfaceName {
    bytes: [u8; INTERFACE_NAME_BYTES_MAX],
    len: u8,
}

impl InterfaceName {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(self.as_bytes()).expect("it was made from a whole string")
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl FromStr for InterfaceName {
    type Err = io::Error;

    fn from_str(name: &str) -> io::Result<Self> {
        let strange =
            |byte: u8| byte.is_ascii_whitespace() || byte.is_ascii_control() || b"/:%".contains(&byte);
        let bad = name.len() > INTERFACE_NAME_BYTES_MAX
            || matches!(name, "" | "." | "..")
            || name.bytes().any(strange);
        if bad {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "{name:?} cannot name a network interface: it takes 1 to {INTERFACE_NAME_BYTES_MAX} bytes \
                     without '/', ':', '%' and spaces"
                ),
            ));
        }
        let mut bytes = [0; INTERFACE_NAME_BYTES_MAX];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        Ok(Self {
            bytes,
            len: name.len() as u8,
        })
    }
}

impl fmt::Display for InterfaceName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl fmt::Debug for InterfaceName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_the_kernel_takes_are_names() {
        for good in ["eth0", "gw-1.2@x", "abcdefghijklmno"] {
            assert_eq!(good.parse::<InterfaceName>().unwrap().as_str(), good);
        }
        for bad in [
            "",
            ".",
            "..",
            "a b",
            "a/b",
            "tun%d",
            "eth0:1",
            "abcdefghijklmnop",
            "a\0",
        ] {
            let error = bad.parse::<InterfaceName>().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{bad:?}");
        }
    }
}
