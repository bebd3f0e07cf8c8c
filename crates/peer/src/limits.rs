//! Every bound of an endpoint's driver, with its unit and its reason.

use std::time::Duration;

/// Slots of the socket's receive batch: one system call brings at most so many coalesced messages of 64 KiB.
pub const RECEIVE_SLOTS: usize = 16;

/// Bytes of received messages after which the lock is given back, and those are woken whom they are for: one message
/// that is coalesced in full, or all of a batch of short ones, one of each peer.
pub const LOCKED_BYTES: usize = 32 << 10;

/// Bytes of received messages after which the endpoint sends what it has, acknowledgements above all: a peer that has
/// all under way that it may would wait until the whole batch is taken, and both ends would take turns.
pub const UNANSWERED_BYTES: usize = 128 << 10;

/// The same where little that comes takes long, as handshakes do: peers that wait for one another's answers would take
/// turns.
pub const UNANSWERED_TIME: Duration = Duration::from_micros(100);

/// Batches that are received before the endpoint sends what it has: acknowledgements do not wait for a full socket.
pub const RECEIVES_PER_TURN: usize = 4;

/// Outboxes that are sent before the endpoint looks at its socket again.
pub const FLUSHES_PER_TURN: usize = 4;

/// Connections that wait for [`crate::Endpoint::accept`]; one more is closed (PEER-23).
pub const ACCEPT_QUEUE_MAX: usize = 1_024;

/// Buffer of the socket in each direction, in bytes, as far as the system grants it.
pub const SOCKET_BUFFER_BYTES: usize = 4 << 20;

/// Largest UDP payload, in bytes, unless configured otherwise, where the interface towards a peer carries it, as those
/// with jumbo frames and the loopback device do: four fit a train, and a lost packet does not take too much with it.
pub const UDP_PAYLOAD_MAX: u16 = 16_376;

/// How long an endpoint that closes waits for its peers to answer that; they do so at once.
pub const CLOSE_TIME_MAX: Duration = Duration::from_secs(1);

/// Bytes of a key file: a key in hexadecimal, with room for white space.
pub const KEY_FILE_BYTES_MAX: u64 = 256;

/// A call of the program that comes so soon after one that sent in the sleeping thread's place wakes that: what is sent
/// so fast goes better in trains.
pub const CALLER_PAUSE: Duration = Duration::from_micros(25);

/// How long room is kept for a message whose turn to be sent has come while another one would fit there: its program is
/// busy with something else, which may be that one. A busy runtime looks at it sooner.
pub const TURN_TIME_MAX: Duration = Duration::from_millis(100);

/// Addresses of one name that are tried.
pub const NAME_ADDRESSES_MAX: usize = 8;

/// Largest UDP payload to and from a rendezvous, in bytes: what IPv6 over Ethernet carries.
pub const RENDEZVOUS_PAYLOAD_MAX: u16 = 1_452;

/// Longest short header of QUIC, in bytes (RFC 9000 section 17.3.1): flags, connection ID, packet number.
const SHORT_HEADER_BYTES_MAX: u16 = 1 + quic::limits::CONNECTION_ID_BYTES_MAX as u16 + 4;

/// Tag at the end of a packet, in bytes (RFC 9001 section 5.3).
const PACKET_TAG_BYTES: u16 = 16;

/// Longest head of a DATAGRAM frame, in bytes (RFC 9221 section 4): type, and a length of any form.
const DATAGRAM_HEAD_BYTES_MAX: u16 = 1 + 8;

/// Head of an HTTP Datagram, in bytes (RFC 9297 section 2.1, RFC 9298 section 5): Quarter Stream ID and Context ID,
/// both below 16,384 in a connection of peers.
const HTTP_DATAGRAM_HEAD_BYTES: u16 = 2 + 2;

/// Largest relayed packet, in bytes: what one packet to and from the rendezvous holds beside header, tag and heads. A
/// longer one would become two; a packet of another path that comes here is lost, so that QUIC finds the size.
pub const RELAYED_PAYLOAD_MAX: u16 = RENDEZVOUS_PAYLOAD_MAX
    - SHORT_HEADER_BYTES_MAX
    - PACKET_TAG_BYTES
    - DATAGRAM_HEAD_BYTES_MAX
    - HTTP_DATAGRAM_HEAD_BYTES;

/// Relayed packets of one batch: as many as one whose messages are full carries.
pub const RELAYED_WAITING_MAX: usize = 1_024;

/// Calls that the rendezvous has not answered; peers beyond it are connected at the addresses that are given.
pub const CALLS_MAX: usize = 256;

/// Addresses of a rendezvous that are remembered: more than a link names and its names have, and enough for packets
/// that still come from former ones.
pub const RENDEZVOUS_SERVERS_MAX: usize = 64;

/// How long a peer's addresses are waited for: the rendezvous may have to be connected first.
pub const MEETING_TIME_MAX: Duration = Duration::from_secs(10);

/// Before a registration that ended or was refused is asked for again.
pub const REGISTRATION_PAUSE: Duration = Duration::from_secs(5);

/// Before a relay that ended or was refused is asked for again; it doubles with each refusal.
pub const RELAY_PAUSE_FIRST: Duration = Duration::from_secs(5);

/// Longest pause of these: of a server without room, each user's endpoint asks.
pub const RELAY_PAUSE_MAX: Duration = Duration::from_secs(5 * 60);

/// How long threads that keep something up outside of an endpoint that closes are given to take it back.
pub const TAKE_BACK_TIME_MAX: Duration = Duration::from_millis(500);

/// Addresses of this machine that are looked at: networks of containers come by the dozen.
pub const INTERFACE_ADDRESSES_MAX: usize = 64;

/// How long the local network is asked for a peer: multicast DNS asks at once and after one second, and is answered
/// within 120 ms (RFC 6762 section 6).
pub const LAN_SEARCH_TIME: Duration = Duration::from_secs(3);

/// Peers that the local network is asked for at a time; those beyond it are connected without it.
pub const LAN_SEARCHES_MAX: usize = 256;

/// Addresses that the local network names for a peer that is being connected (LAN-3): a third of those that are tried.
pub const LAN_ADDRESSES_MAX: usize = 8;

/// Peers of the local network whose addresses are remembered: 90 KiB.
pub const LAN_PEERS_MAX: usize = 256;

/// Answers that one thread reads before it gives up (LAN-4).
pub const LAN_ANSWERS_MAX: usize = 10_000;

/// Records of multicast DNS that are kept, about 300 bytes each; who is sent more leaves the network alone (LAN-4).
pub const LAN_RECORDS_MAX: i64 = 4_096;

/// How often an announcement looks how many there are.
pub const LAN_TURN: Duration = Duration::from_secs(1);

/// The same of a search.
pub const LAN_SEARCH_TURN: Duration = Duration::from_millis(100);

/// How long the count is waited for; later, the network is flooded.
pub const LAN_METRICS_TIME_MAX: Duration = Duration::from_secs(2);

/// How long an announcement may take before it is called a problem, and its taking back at most.
pub const LAN_PATIENCE: Duration = Duration::from_secs(2);

/// Before an announcement that failed, or that a flood ended, is begun again.
pub const LAN_FLOOD_PAUSE: Duration = Duration::from_secs(60);

/// Numbers that one endpoint announces on the local network (LAN-5): what fits a string of a TXT record by far.
pub const LAN_NUMBERS_MAX: usize = 32;

/// Numbers of the local network that are remembered, and that are looked for at a time: 10 KiB.
pub const LAN_NUMBERS_KNOWN_MAX: usize = 256;

/// How long a number of the local network is remembered that was not heard of again: as long as records with addresses
/// live there (RFC 6762 section 10). Its peer may have closed without a word.
pub const LAN_NUMBER_AGE_MAX: Duration = Duration::from_secs(120);

/// Numbers for guests that the rendezvous was asked for and has not given: as many as it gives.
pub const INVITES_MAX: usize = tunnel_proto::limits::GUESTS_PER_USER_MAX;

/// Questions whose a number is that the rendezvous has not answered.
pub const FINDS_MAX: usize = 16;

/// Futures that wait for one thing and for which a list keeps memory while none does.
pub const PLACES_KEPT: usize = 32;

/// How long a router is asked to keep a mapping: one that nobody takes back is gone soon.
pub const MAPPING_LIFETIME: Duration = Duration::from_secs(20 * 60);

/// The same where it refuses to end a hole in its firewall: the shortest that can be asked for.
pub const PINHOLE_LIFETIME_LAST: Duration = Duration::from_secs(1);

/// Least time from a mapping to its renewal, whatever the router grants.
pub const MAPPING_RENEWAL_MIN: Duration = Duration::from_secs(30);

/// Most time to it, after which a mapping is back that a router forgot when it was started again.
pub const MAPPING_RENEWAL_MAX: Duration = Duration::from_secs(10 * 60);

/// Pause after the first failure to map a port; it doubles with each.
pub const MAPPING_RETRY_FIRST: Duration = Duration::from_secs(30);

/// Longest pause after failures: most routers that refuse once always do.
pub const MAPPING_RETRY_MAX: Duration = Duration::from_secs(30 * 60);

/// How often it is looked whether the machine is behind another router.
pub const ROUTER_LOOK: Duration = Duration::from_secs(30);

/// How long a router's first answer is waited for, by PCP and NAT-PMP: the first timeout of RFC 6886 section 3.1.
pub const ROUTER_ANSWER_FIRST: Duration = Duration::from_millis(250);

/// The same of later ones.
pub const ROUTER_ANSWER_MAX: Duration = Duration::from_secs(1);

/// How often a question is repeated.
pub const ROUTER_ATTEMPTS: usize = 2;

/// How long a router is looked for by UPnP.
pub const ROUTER_SEARCH_TIME: Duration = Duration::from_secs(3);
