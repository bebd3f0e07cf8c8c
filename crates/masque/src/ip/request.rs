//! The CONNECT-IP request and its acceptance (RFC 9484 section 4).

use super::{ClientId, Prefix, Scope, ScopeError};
use crate::HeaderList;
use crate::context_field::{SPLIT_FIELD, context_field, split_context};
use crate::limits::POOLS_MAX;
use crate::repair::RepairOffer;
use crate::request::{Credential, PathKind, credential, is_capsule_protocol, split_path};
use crate::response::response;

/// Request field by which a Gramway client names itself, and response field by which a server says that it goes by the
/// name (specs/ip-session.md, SESSION-1 and SESSION-12).
pub const CLIENT_FIELD: &str = "gramway-client";

/// Request and response field that offers and accepts packets with unfinished checksums (specs/checksum.md, CSUM-1).
pub const CHECKSUM_FIELD: &str = "gramway-checksum";

/// Response field that names the networks that a server leases from (specs/ip-session.md, SESSION-13).
pub const POOL_FIELD: &str = "gramway-pool";

/// Response field by which a server says that another client asks by the same name (specs/ip-session.md, SESSION-15).
pub const SHARED_NAME_FIELD: &str = "gramway-client-shared";

/// Path prefix of the default template (RFC 9484 section 3).
const WELL_KNOWN: &str = "/.well-known/masque/ip/";

/// A CONNECT-IP request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectIp {
    /// What it is limited to, from the path. An error is reported here, so that the caller looks at the credential
    /// first.
    pub scope: Result<Scope, ScopeError>,
    /// Who asks, from `Authorization`; it counts with [`PathKind::WellKnown`].
    pub credential: Credential,
    /// Which template the path follows.
    pub path: PathKind,
    /// What a Gramway client adds.
    pub extensions: Extensions,
    /// `capsule-protocol: ?1` was there (RFC 9297 section 3.4). CONNECT-IP implies the protocol either way.
    pub capsule_protocol: bool,
}

/// What Gramway peers add to a request; a foreign client has none of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Extensions {
    /// The client's own name: the same lease for all requests that carry it (SESSION-1).
    pub client: Option<ClientId>,
    /// Which run of that client: requests with another number are dead (SESSION-6). Nothing without `client`.
    pub run: Option<u32>,
    /// The context ID offered for packets in pieces (SPLIT-1).
    pub split: Option<u64>,
    /// The context ID offered for packets with unfinished checksums (CSUM-1).
    pub checksum: Option<u64>,
    /// The repair offered for packets (REPAIR-1).
    pub repair: Option<RepairOffer>,
}

/// A CONNECT-IP request to the proxy at `authority` on the default template (RFC 9484 section 4.4).
#[must_use]
pub fn connect_ip(authority: &str, scope: &Scope, bearer: &str, extensions: &Extensions) -> HeaderList {
    let mut list = HeaderList::new()
        .with(":method", "CONNECT")
        .with(":protocol", "connect-ip")
        .with(":scheme", "https")
        .with(":path", format!("{WELL_KNOWN}{}/", scope.path()))
        .with(":authority", authority)
        .with("capsule-protocol", "?1")
        .with("authorization", format!("Bearer {bearer}"));
    push_extensions(&mut list, extensions);
    list
}

/// The acceptance of CONNECT-IP (RFC 9484 section 4.5), with what is agreed to of the extensions that were offered
/// (SESSION-12, SPLIT-2, CSUM-2, REPAIR-2).
#[must_use]
pub fn accepted(agreed: &Extensions) -> HeaderList {
    let mut list = response(200).with("capsule-protocol", "?1");
    push_extensions(&mut list, agreed);
    list
}

/// The name in [`CLIENT_FIELD`] of a request or response; whatever else stands there counts as absent (SESSION-1).
#[must_use]
pub fn client_name(list: &HeaderList) -> Option<ClientId> {
    client_field(list).0
}

/// Tells a Gramway client which networks the server leases from; none beyond [`POOLS_MAX`] (SESSION-13).
pub fn push_pools(list: &mut HeaderList, pools: &[Prefix]) {
    let texts: Vec<String> = pools.iter().take(POOLS_MAX).map(Prefix::to_string).collect();
    if !texts.is_empty() {
        list.push(POOL_FIELD, texts.join(", "));
    }
}

/// The networks in [`POOL_FIELD`]; whatever else stands there, or more than [`POOLS_MAX`], counts as absent
/// (SESSION-13).
#[must_use]
pub fn pools(list: &HeaderList) -> Vec<Prefix> {
    let text = list
        .only(POOL_FIELD)
        .and_then(|value| std::str::from_utf8(value).ok())
        .unwrap_or_default();
    let parsed = text.split(',').map(|one| one.trim().parse());
    let pools: Result<Vec<Prefix>, _> = parsed.take(POOLS_MAX + 1).collect();
    pools
        .ok()
        .filter(|pools| pools.len() <= POOLS_MAX)
        .unwrap_or_default()
}

/// Tells a Gramway client that another one asks by its name (SESSION-15).
pub fn push_shared_name(list: &mut HeaderList) {
    list.push(SHARED_NAME_FIELD, "?1");
}

/// Whether [`SHARED_NAME_FIELD`] is the boolean true; whatever else stands there counts as absent (SESSION-15).
#[must_use]
pub fn shares_name(list: &HeaderList) -> bool {
    list.only(SHARED_NAME_FIELD) == Some(b"?1")
}

fn client_field(list: &HeaderList) -> (Option<ClientId>, Option<u32>) {
    let (client, run) = list.only(CLIENT_FIELD).and_then(ClientId::parse_field).unzip();
    (client, run.flatten())
}

/// The context ID in [`CHECKSUM_FIELD`]: non-zero, even, and not that of the split context. Whatever else stands there
/// counts as absent (CSUM-1).
#[must_use]
pub fn checksum_context(list: &HeaderList) -> Option<u64> {
    context_field(list, CHECKSUM_FIELD).filter(|id| split_context(list) != Some(*id))
}

/// An extended CONNECT for `connect-ip` with this path; `None` where the path follows none of our templates.
pub(crate) fn judge(list: &HeaderList, path: &str) -> Option<ConnectIp> {
    let (path, target, protocol) = split_path(path, WELL_KNOWN)?;
    let (client, run) = client_field(list);
    Some(ConnectIp {
        scope: Scope::from_path(target, protocol),
        credential: credential(list, "authorization"),
        path,
        extensions: Extensions {
            client,
            run,
            split: split_context(list),
            checksum: checksum_context(list),
            repair: RepairOffer::of(list),
        },
        capsule_protocol: is_capsule_protocol(list),
    })
}

fn push_extensions(list: &mut HeaderList, extensions: &Extensions) {
    if let Some(client) = extensions.client {
        let run = extensions
            .run
            .map(|run| format!(";run={run}"))
            .unwrap_or_default();
        list.push(CLIENT_FIELD, format!("{client}{run}"));
    }
    for (name, context_id) in [
        (SPLIT_FIELD, extensions.split),
        (CHECKSUM_FIELD, extensions.checksum),
    ] {
        if let Some(context_id) = context_id {
            list.push(name, context_id.to_string());
        }
    }
    if let Some(repair) = extensions.repair {
        repair.push_to(list);
    }
}
