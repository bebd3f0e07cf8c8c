"""What strangers send: each probe is a name and a function that makes its datagrams anew for every run.

A probe begins on a path with connection IDs of its own. What is random is drawn alike for both addresses, never the
same: a server may know a connection by its ID alone.
"""

import os
import struct
from dataclasses import dataclass

import wire
from wire import INITIAL_BYTES, INITIAL_BYTES_MIN, Path, close, crypto

GREASED_VERSION = 0x1A2A3A4A
DRAFT_VERSION = 0xFF00001D

# Reserved for nobody (RFC 9000 section 19, and registries since).
UNKNOWN_FRAME = b"\x40\x5f"


@dataclass
class Pause:
    """A wait between two datagrams, shorter than any server's timer for probes."""

    seconds: float = 0.05


@dataclass
class ToPeer:
    """A datagram that follows the first answer, made of the connection ID that the other side has chosen; without one
    it is not sent."""

    make: object


# Name and function, from a path to its steps.
PROBES = []


def probe(name):
    def add(function):
        PROBES.append((name, function))
        return function

    return add


def each(name, values):
    """A probe for each value."""

    def add(function):
        for value in values:
            PROBES.append((name.format(value), lambda path, value=value: function(path, value)))
        return function

    return add


# Versions.


def of_version(path, version, size=INITIAL_BYTES_MIN, first=0xC0):
    header = wire.long_header(wire.INITIAL, path.destination, path.source, version, first=first)
    return header + os.urandom(size - len(header))


@each("greased version in {} B", [40, 600, 1199, 1200, 1452])
def greased(path, size):
    return [of_version(path, GREASED_VERSION, size)]


@each("version {:x}", [0, DRAFT_VERSION, 0xDEADBEEF, 0x00000002])
def other_version(path, version):
    return [of_version(path, version)]


@probe("greased version without fixed bit")
def greased_without_fixed_bit(path):
    return [of_version(path, GREASED_VERSION, first=0x80)]


@each("greased version to an ID of {} B", [0, 1, 20, 21, 64, 255])
def greased_to_id(path, length):
    path.destination = os.urandom(length)
    return [of_version(path, GREASED_VERSION)]


@probe("hello of version 2")
def hello_of_version_2(path):
    path.version = wire.V2
    return [path.initial(crypto(path.hello()))]


# Sizes, IDs and tokens of Initials.


@each("Initial with a hello in {} B", [100, 1199, 1200, 1250, 1452])
def initial_size(path, size):
    hello = path.hello()
    return [path.initial(crypto(hello), size) if size > len(hello) else path.initial(wire.PING, size)]


@probe("Initial of a header alone")
def header_alone(path):
    return [wire.long_header(wire.INITIAL, path.destination, path.source, token=b"") + b"\0\0"]


@each("hello to an ID of {} B", [0, 1, 4, 7, 8, 12, 16, 18, 20, 21, 64])
def hello_to_id(path, length):
    path.destination = os.urandom(length)
    return [path.initial(crypto(path.hello()))]


@each("hello from an ID of {} B", [0, 4, 20, 21])
def hello_from_id(path, length):
    path.source = os.urandom(length)
    return [path.initial(crypto(path.hello()))]


@each("token of {} B", [1, 16, 60])
def token(path, length):
    return [path.initial(crypto(path.hello()), token=os.urandom(length))]


@probe("token longer than the packet")
def token_too_long(path):
    header = wire.long_header(wire.INITIAL, path.destination, path.source) + b"\x7f\xff"
    return [header + os.urandom(INITIAL_BYTES_MIN - len(header))]


@each("length field wrong by {}", [-200, 1, 4000])
def length_wrong(path, lie):
    return [path.initial(crypto(path.hello()), lie=lie)]


@probe("Initial without fixed bit")
def without_fixed_bit(path):
    return [path.initial(crypto(path.hello()), first=0x83)]


@probe("Initial with reserved bits")
def reserved_bits(path):
    return [path.initial(crypto(path.hello()), first=0xCF)]


@probe("Initial with a broken tag")
def broken_tag(path):
    whole = path.initial(crypto(path.hello()))
    return [whole[:-1] + bytes([whole[-1] ^ 1])]


@probe("Initial of random bytes")
def random_initial(path):
    header = wire.long_header(wire.INITIAL, path.destination, path.source, token=b"", first=0xC3)
    rest = INITIAL_BYTES_MIN - len(header) - 2
    return [header + struct.pack("!H", 0x4000 | rest) + os.urandom(rest)]


# Hellos in pieces.


@probe("half a hello")
def half_hello(path):
    hello = path.hello()
    return [path.initial(crypto(hello[: len(hello) // 2]))]


@probe("hello in two datagrams")
def hello_in_two(path):
    hello = path.hello()
    half = len(hello) // 2
    return [path.initial(crypto(hello[:half])), path.initial(crypto(hello[half:], half), number=1)]


@probe("hello in two datagrams, the second one first")
def hello_in_two_reversed(path):
    return hello_in_two(path)[::-1]


@probe("hello in two datagrams with a pause")
def hello_in_two_with_pause(path):
    first, second = hello_in_two(path)
    return [first, Pause(), second]


@probe("hello in two frames, the second one first")
def hello_in_frames_reversed(path):
    hello = path.hello()
    half = len(hello) // 2
    return [path.initial(crypto(hello[half:], half) + wire.PING + crypto(hello[:half]))]


@probe("hello with a gap")
def hello_with_gap(path):
    hello = path.hello()
    return [path.initial(crypto(hello[:50]) + crypto(hello[60:], 60))]


@probe("hello with parts that overlap and differ")
def hello_with_overlap(path):
    hello = path.hello()
    return [path.initial(crypto(hello[:100]) + crypto(bytes(50), 60) + crypto(hello[100:], 100))]


@probe("hello twice")
def hello_twice(path):
    datagram = path.initial(crypto(path.hello()))
    return [datagram, datagram]


@each("CRYPTO at offset {}", [5000, 1 << 20, (1 << 62) - 1])
def crypto_far_away(path, offset):
    return [path.initial(crypto(b"x" * 20, offset))]


def post_quantum(path):
    """As current browsers send it; its hello needs two datagrams."""
    hello = path.hello(groups=(wire.X25519_MLKEM768, wire.X25519))
    return [path.initial(crypto(hello[:1100])), path.initial(crypto(hello[1100:], 1100), number=1)]


PROBES.append(("post-quantum hello", post_quantum))


@probe("post-quantum hello, the second datagram first")
def post_quantum_reversed(path):
    return post_quantum(path)[::-1]


@each("datagram {} of a post-quantum hello alone", [1, 2])
def post_quantum_part(path, number):
    return [post_quantum(path)[number - 1]]


# Hellos that a server refuses, or answers in its own way.

HELLOS = {
    "no ALPN": {"protocols": ()},
    "an unknown ALPN": {"protocols": (b"hq-99",)},
    "HTTP/1.1 as ALPN": {"protocols": (b"http/1.1",)},
    "another name": {"name": b"nobody.example"},
    "no name": {"name": None},
    "an empty name": {"name": b""},
    "unknown suites": {"suites": (0x13AA,)},
    "AES-256 alone": {"suites": (0x1302,)},
    "ChaCha20 alone": {"suites": (0x1303,)},
    "an unknown group": {"groups": (0x7A7A,)},
    "a share of P-256": {"groups": (wire.SECP256R1,)},
    "no key share": {"shares": ()},
    "a key share of zeros": {"shares": ((wire.X25519, bytes(32)),)},
    "a key share cut short": {"shares": ((wire.X25519, bytes(31)),)},
    "TLS 1.2 alone": {"versions": (0x0303,)},
    "no versions": {"versions": ()},
    "no transport parameters": {"transport": b""},
    "an extension longer than the hello": {"extra": b"\xaa\xaa\xff\xffx"},
    "an unknown extension": {"extra": wire.extension(0xAAAA, b"x" * 9)},
    "an extension twice": {"extra": wire.extension(wire.KEY_EXCHANGE_MODES, b"\x01\x01")},
}


@each("hello with {}", HELLOS)
def odd_hello(path, name):
    return [path.initial(crypto(path.hello(**HELLOS[name])))]


ODD_PARAMETERS = {
    "of another source ID": lambda path: wire.parameters(os.urandom(8)),
    "twice": lambda path: wire.parameters(path.source, b"\x01\x02\x40\x64"),
    "of a server": lambda path: wire.parameters(path.source, b"\x02\x10" + bytes(16)),
    "with an unknown one": lambda path: wire.parameters(path.source, b"\x40\x7f\x03abc"),
    "cut short": lambda path: wire.parameters(path.source)[:-1],
}


@each("transport parameters {}", ODD_PARAMETERS)
def odd_parameters(path, name):
    return [path.initial(crypto(path.hello(transport=ODD_PARAMETERS[name](path))))]


@probe("Finished instead of a hello")
def finished_first(path):
    return [path.initial(crypto(b"\x14" + wire.prefixed(os.urandom(32), 3)))]


# Frames that everybody can forge, since everybody has the keys of Initials.

FORBIDDEN = {
    "none": b"",
    "PING": wire.PING,
    "STREAM": b"\x0a\0\x04abcd",
    "MAX_DATA": b"\x10\x44\0",
    "NEW_CONNECTION_ID": b"\x18\x01\0\x08" + bytes(24),
    "HANDSHAKE_DONE": b"\x1e",
    "DATAGRAM": b"\x31\x02ab",
    "an unknown one": UNKNOWN_FRAME,
    "ACK of what was not sent": b"\x02\x05\0\0\0",
    "CRYPTO cut short": b"\x06\0\x7f\xff",
    "CONNECTION_CLOSE": close(0x0A, b"bye"),
    "CONNECTION_CLOSE of an application": close(0x100, application=True),
}


@each("first frame {}", FORBIDDEN)
def first_frame(path, name):
    # Behind the frame there is PADDING.
    return [path.initial(FORBIDDEN[name])]


@each("frame {} behind a hello", list(FORBIDDEN)[2:])
def frame_behind_hello(path, name):
    return [path.initial(crypto(path.hello()) + FORBIDDEN[name])]


@each("frame {} within a handshake", list(FORBIDDEN)[1:])
def frame_within_handshake(path, name):
    forged = ToPeer(lambda peer: path.initial(FORBIDDEN[name], number=7, to=peer))
    return [path.initial(crypto(path.hello())), forged]


@probe("other CRYPTO within a handshake")
def other_crypto_within_handshake(path):
    forged = ToPeer(lambda peer: path.initial(crypto(os.urandom(80), 2000), number=7, to=peer))
    return [path.initial(crypto(path.hello())), forged]


@probe("the same hello from the first ID again, within a handshake")
def hello_again(path):
    datagram = path.initial(crypto(path.hello()))
    return [datagram, ToPeer(lambda peer: datagram)]


# Packets of connections that are not there.


@each("short header in {} B", [1, 20, 21, 22, 30, 39, 40, 41, 43, 60, 100, 1200])
def short_header(path, size):
    return [b"\x5a" + os.urandom(size - 1)]


@probe("short header without fixed bit")
def short_without_fixed_bit(path):
    return [b"\x1a" + os.urandom(59)]


def unknown_connection(path, kind, size):
    header = wire.long_header(kind, path.destination, path.source, first=0xC3)
    rest = size - len(header) - 2
    return [header + struct.pack("!H", 0x4000 | rest) + os.urandom(rest)]


@each("0-RTT of an unknown connection in {} B", [100, 1200])
def zero_rtt(path, size):
    return unknown_connection(path, wire.ZERO_RTT, size)


@each("Handshake of an unknown connection in {} B", [100, 1200])
def handshake(path, size):
    return unknown_connection(path, wire.HANDSHAKE, size)


@probe("Retry to a server")
def retry(path):
    return [wire.long_header(wire.RETRY, path.destination, path.source) + os.urandom(80)]


# What is not QUIC.

FOREIGN = {
    "nothing": lambda: b"",
    "one byte": lambda: b"\x80",
    "random bytes": lambda: os.urandom(700),
    "zeros": lambda: bytes(1200),
    "ones": lambda: b"\xff" * 1200,
    "a DNS query": lambda: os.urandom(2) + bytes.fromhex("01000001000000000000076578616d706c6503636f6d0000010001"),
    "a STUN request": lambda: bytes.fromhex("000100002112a442") + os.urandom(12),
    "an NTP request": lambda: b"\x23" + bytes(47),
    "a DTLS hello": lambda: bytes.fromhex("16fefd00000000000000000040") + os.urandom(64),
    "an HTTP request": lambda: b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


@each("not QUIC: {}", FOREIGN)
def foreign(path, name):
    return [FOREIGN[name]()]
