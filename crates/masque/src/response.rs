//! Responses: building them, reading their status, and the `Proxy-Status` that tells a client why a forward failed
//! (RFC 9209).

use crate::{HeaderList, MessageError, context_field::SPLIT_FIELD, request::check_fields};

/// A response with `status` (100 to 599) and nothing else.
#[must_use]
pub fn response(status: u16) -> HeaderList {
    HeaderList::new().with(":status", status.to_string())
}

/// The acceptance of CONNECT-UDP (RFC 9298 section 3.5); `split` echoes the context ID that was offered (SPLIT-2).
#[must_use]
pub fn connect_udp_accepted(split: Option<u64>) -> HeaderList {
    let mut list = response(200).with("capsule-protocol", "?1");
    if let Some(context_id) = split {
        list.push(SPLIT_FIELD, context_id.to_string());
    }
    list
}

/// 401: no valid token with CONNECT-UDP (RFC 9110 section 15.5.2).
#[must_use]
pub fn unauthorized() -> HeaderList {
    response(401).with("www-authenticate", "Bearer")
}

/// 407: no valid token with CONNECT (RFC 9110 section 15.5.8).
#[must_use]
pub fn proxy_authentication_required() -> HeaderList {
    response(407).with("proxy-authenticate", "Bearer")
}

/// A failed forward: the status that RFC 9209 recommends, and `proxy-status`.
#[must_use]
pub fn failure(error: ProxyError) -> HeaderList {
    failure_with(error.status(), error)
}

/// A failure with a status of its own, and `proxy-status`.
#[must_use]
pub fn failure_with(status: u16, error: ProxyError) -> HeaderList {
    response(status).with("proxy-status", format!("gramway; error={}", error.token()))
}

/// The status of a response, 100 to 599.
///
/// # Errors
/// H3_MESSAGE_ERROR for the stream where the list breaks RFC 9114 sections 4.2, 4.3.2 and 4.5.
pub fn status_of(list: &HeaderList) -> Result<u16, MessageError> {
    check_fields(list)?;
    let mut pseudo = list.iter().take_while(|field| field.name().starts_with(':'));
    let (Some(field), None) = (pseudo.next(), pseudo.next()) else {
        return Err(MessageError::malformed(
            "response needs :status as its only pseudo-header field",
        ));
    };
    let status = match field.value() {
        [hundreds @ b'1'..=b'5', tens @ b'0'..=b'9', ones @ b'0'..=b'9'] if field.name() == ":status" => {
            [*hundreds, *tens, *ones]
                .iter()
                .fold(0, |value, digit| value * 10 + u16::from(digit - b'0'))
        }
        _ => {
            return Err(MessageError::malformed(
                "response without a :status of three digits",
            ));
        }
    };
    if status == 101 {
        return Err(MessageError::malformed("status 101 does not exist in HTTP/3"));
    }
    Ok(status)
}

/// What `proxy-status` names as the cause, where it is one that we know.
#[must_use]
pub fn proxy_error_of(list: &HeaderList) -> Option<ProxyError> {
    // The proxy nearest to the client comes last in the list (RFC 9209 section 2).
    let value = std::str::from_utf8(list.only("proxy-status")?).ok()?;
    let token = value
        .rsplit(',')
        .next()?
        .split(';')
        .find_map(|parameter| parameter.trim().strip_prefix("error="))?;
    ProxyError::ALL.into_iter().find(|error| error.token() == token)
}

/// Why a forward failed (RFC 9209 section 2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyError {
    /// The resolver took too long.
    DnsTimeout,
    /// The resolver gave an error or no address.
    DnsError,
    /// The proxy cannot use the target for now.
    DestinationUnavailable,
    /// Target rules forbid the address.
    DestinationIpProhibited,
    /// No route to the address.
    DestinationIpUnroutable,
    /// The target refused the connection.
    ConnectionRefused,
    /// The connection broke off.
    ConnectionTerminated,
    /// The target did not answer.
    ConnectionTimeout,
    /// The proxy has too many connections to it.
    ConnectionLimitReached,
    /// The proxy itself failed.
    ProxyInternalError,
}

impl ProxyError {
    const ALL: [Self; 10] = [
        Self::DnsTimeout,
        Self::DnsError,
        Self::DestinationUnavailable,
        Self::DestinationIpProhibited,
        Self::DestinationIpUnroutable,
        Self::ConnectionRefused,
        Self::ConnectionTerminated,
        Self::ConnectionTimeout,
        Self::ConnectionLimitReached,
        Self::ProxyInternalError,
    ];

    /// The name in `error=`.
    #[must_use]
    pub const fn token(self) -> &'static str {
        match self {
            Self::DnsTimeout => "dns_timeout",
            Self::DnsError => "dns_error",
            Self::DestinationUnavailable => "destination_unavailable",
            Self::DestinationIpProhibited => "destination_ip_prohibited",
            Self::DestinationIpUnroutable => "destination_ip_unroutable",
            Self::ConnectionRefused => "connection_refused",
            Self::ConnectionTerminated => "connection_terminated",
            Self::ConnectionTimeout => "connection_timeout",
            Self::ConnectionLimitReached => "connection_limit_reached",
            Self::ProxyInternalError => "proxy_internal_error",
        }
    }

    /// The status recommended for it.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::DnsTimeout | Self::ConnectionTimeout => 504,
            Self::DestinationUnavailable | Self::ConnectionLimitReached => 503,
            Self::ProxyInternalError => 500,
            Self::DnsError
            | Self::DestinationIpProhibited
            | Self::DestinationIpUnroutable
            | Self::ConnectionRefused
            | Self::ConnectionTerminated => 502,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_tells_its_cause() {
        for error in ProxyError::ALL {
            let list = failure(error);
            assert_eq!(status_of(&list), Ok(error.status()));
            assert_eq!(proxy_error_of(&list), Some(error));
        }
        assert_eq!(proxy_error_of(&response(200)), None);
        let list = response(502).with("proxy-status", "origin.example; error=dns_error, near; error=odd");
        assert_eq!(proxy_error_of(&list), None);
    }

    #[test]
    fn malformed_responses_are_refused() {
        for list in [
            HeaderList::new(),
            HeaderList::new().with("server", "x"),
            HeaderList::new().with(":method", "200"),
            HeaderList::new().with(":status", "20"),
            HeaderList::new().with(":status", "600"),
            HeaderList::new().with(":status", "101"),
            response(200).with(":status", "200"),
            response(200).with("server", "x").with(":status", "200"),
            response(200).with("connection", "close"),
        ] {
            let error = status_of(&list).unwrap_err();
            assert_eq!(error.code(), crate::Code::MessageError, "{list:?}");
        }
    }
}
