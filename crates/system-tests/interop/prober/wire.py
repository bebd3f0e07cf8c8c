"""Packets made by hand: QUIC headers, protected Initials, frames (RFC 9000, RFC 9001), and ClientHellos (RFC 8446)."""

import os
import struct
from dataclasses import dataclass, field

from aioquic.buffer import encode_uint_var
from aioquic.quic.crypto import CryptoPair
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

V1 = 0x00000001
V2 = 0x6B3343CF

# Types of long headers in version 1 (RFC 9000 section 17.2).
INITIAL, ZERO_RTT, HANDSHAKE, RETRY = range(4)

# A datagram that begins a connection has at least so many bytes (RFC 9000 section 14.1).
INITIAL_BYTES_MIN = 1200

# What Chrome sends.
INITIAL_BYTES = 1250

TAG_BYTES = 16

X25519 = 0x001D
X25519_MLKEM768 = 0x11EC
SECP256R1 = 0x0017

# Extensions (RFC 8446 section 4.2, RFC 9001 section 8.2).
SERVER_NAME, SUPPORTED_GROUPS, SIGNATURE_ALGORITHMS, ALPN = 0, 10, 13, 16
SUPPORTED_VERSIONS, KEY_EXCHANGE_MODES, KEY_SHARE, TRANSPORT_PARAMETERS = 43, 45, 51, 57

# Transport parameters of a browser (RFC 9000 section 18.2): idle time, sizes, flow control, streams.
PARAMETERS = {1: 30000, 3: 1472, 4: 15728640, 5: 6291456, 6: 6291456, 7: 6291456, 8: 100, 9: 103}
INITIAL_SOURCE_ID = 15


def long_header(kind, destination, source, version=V1, token=None, first=0xC0):
    """A long header up to, and without, its length and packet number."""
    header = bytes([first | kind << 4]) + struct.pack("!I", version)
    header += bytes([len(destination)]) + destination + bytes([len(source)]) + source
    return header if token is None else header + encode_uint_var(len(token)) + token


@dataclass
class Path:
    """The connection IDs that one probe uses; its Initial keys come from the first destination (RFC 9001 section 5.2)."""

    destination: bytes = field(default_factory=lambda: os.urandom(8))
    source: bytes = field(default_factory=lambda: os.urandom(8))
    version: int = V1

    def initial(self, payload, size=INITIAL_BYTES, number=0, token=b"", first=0xC3, to=None, lie=0):
        """A protected Initial, filled up to `size` bytes; `lie` is added to its length field."""
        kind = 1 if self.version == V2 else INITIAL
        to = self.destination if to is None else to
        header = long_header(kind, to, self.source, self.version, token, first)
        room = size - len(header) - 2 - 4 - TAG_BYTES
        payload += bytes(max(room - len(payload), 0))
        length = 4 + len(payload) + TAG_BYTES + lie
        plain = header + struct.pack("!HI", 0x4000 | length, number)
        keys = CryptoPair()
        keys.setup_initial(cid=self.destination, is_client=True, version=self.version)
        return keys.encrypt_packet(plain, payload, number)

    def hello(self, **choices):
        """A ClientHello for this path."""
        return client_hello(source=self.source, **choices)


def crypto(data, offset=0):
    return b"\x06" + encode_uint_var(offset) + encode_uint_var(len(data)) + data


def close(code=0, reason=b"", application=False):
    kind = b"\x1d" if application else b"\x1c"
    return kind + encode_uint_var(code) + (b"" if application else b"\0") + encode_uint_var(len(reason)) + reason


PING = b"\x01"


def extension(kind, data):
    return struct.pack("!HH", kind, len(data)) + data


def prefixed(data, bytes_of_length=2):
    return len(data).to_bytes(bytes_of_length, "big") + data


def parameters(source, extra=b""):
    """Transport parameters as a client sends them."""
    data = b""
    for kind, value in PARAMETERS.items():
        data += encode_uint_var(kind) + prefixed(encode_uint_var(value), 1)
    return data + encode_uint_var(INITIAL_SOURCE_ID) + prefixed(source, 1) + extra


def share_of(group):
    """A key share of this group; what comes back for it cannot be opened, which no probe needs."""
    classic = X25519PrivateKey.generate().public_key().public_bytes_raw()
    if group == X25519_MLKEM768:
        return MLKEM768PrivateKey.generate().public_key().public_bytes_raw() + classic
    return classic if group == X25519 else os.urandom(65)


def client_hello(
    source,
    name=b"localhost",
    protocols=(b"h3",),
    groups=(X25519,),
    shares=None,
    suites=(0x1301, 0x1302, 0x1303),
    versions=(0x0304,),
    transport=None,
    extra=b"",
):
    """A whole message. `shares` replaces the key shares, `transport` the transport parameters; None leaves ALPN, name
    or parameters out where they are None."""
    shares = [(group, share_of(group)) for group in groups] if shares is None else shares
    extensions = b"" if name is None else extension(SERVER_NAME, prefixed(b"\0" + prefixed(name)))
    extensions += extension(SUPPORTED_GROUPS, prefixed(b"".join(struct.pack("!H", group) for group in groups)))
    schemes = [0x0403, 0x0804, 0x0401, 0x0503, 0x0805, 0x0501, 0x0806, 0x0601, 0x0201]
    extensions += extension(SIGNATURE_ALGORITHMS, prefixed(struct.pack("!9H", *schemes)))
    if protocols:
        extensions += extension(ALPN, prefixed(b"".join(prefixed(protocol, 1) for protocol in protocols)))
    if versions:
        extensions += extension(SUPPORTED_VERSIONS, prefixed(struct.pack(f"!{len(versions)}H", *versions), 1))
    extensions += extension(KEY_EXCHANGE_MODES, b"\x01\x01")
    sent = b"".join(struct.pack("!H", group) + prefixed(key) for group, key in shares)
    extensions += extension(KEY_SHARE, prefixed(sent))
    transport = parameters(source) if transport is None else transport
    if transport:
        extensions += extension(TRANSPORT_PARAMETERS, transport)
    body = b"\x03\x03" + os.urandom(32) + b"\0"
    body += prefixed(struct.pack(f"!{len(suites)}H", *suites)) + b"\x01\0" + prefixed(extensions + extra)
    return b"\x01" + prefixed(body, 3)
