//! What people call TLS's numbers.

/// Of a cipher suite (RFC 8446 appendix B.4).
pub(crate) fn suite_name(suite: u16) -> String {
    match suite {
        0x1301 => "AES-128-GCM".to_owned(),
        0x1302 => "AES-256-GCM".to_owned(),
        0x1303 => "ChaCha20-Poly1305".to_owned(),
        other => format!("suite {other:#06x}"),
    }
}

/// Of a key-exchange group (RFC 8446 section 4.2.7).
pub(crate) fn group_name(group: u16) -> String {
    match group {
        0x11ec => "X25519MLKEM768".to_owned(),
        0x001d => "X25519".to_owned(),
        0x0017 => "P-256".to_owned(),
        0x0018 => "P-384".to_owned(),
        other => format!("group {other:#06x}"),
    }
}
