"""What an answer says: its packets by their headers, and what the keys of an Initial open, which everybody has.

What is random in every server, as connection IDs, is told by its length alone.
"""

import re
import struct
from dataclasses import dataclass

from aioquic._crypto import CryptoError
from aioquic.buffer import Buffer, BufferReadError
from aioquic.quic.crypto import CryptoPair

KINDS = {0: "Initial", 1: "0-RTT", 2: "Handshake", 3: "Retry"}
KINDS_V2 = {1: "Initial", 2: "0-RTT", 3: "Handshake", 0: "Retry"}

RETRY_TAG_BYTES = 16

# Some servers name connection IDs where they give a reason.
LONG_HEX = re.compile(rb"(?i)[0-9a-f]{8,}")


@dataclass(frozen=True)
class Packet:
    """One packet: what must be equal, and its size."""

    says: str
    size: int
    # Whether its size depends on a signature, whose length varies with ECDSA.
    varies: bool = False
    # Whether it is more than a part of the handshake again.
    is_news: bool = True

    def __str__(self):
        return f"{self.says} {self.size} B"


class Reader:
    """Reads the answers to one probe."""

    def __init__(self, path):
        self.path = path
        # The connection ID that the other side chose last.
        self.peer_id = None
        self.has_connection = False
        # Whether timers of the server may have sent something again: when and how often they do is chance.
        self.has_timers = False

    def datagram(self, data):
        """The packets of a datagram, as a tuple; None where it only repeats others."""
        packets, start = [], 0
        while start < len(data):
            packet, length = self._packet(data[start:])
            packets.append(packet)
            start += max(length, 1)
        if self.has_timers and not any(packet.is_news for packet in packets):
            return None
        return tuple(packets) or (Packet("nothing", 0),)

    def _packet(self, data):
        if data[0] & 0x80:
            try:
                return self._long(data)
            except (BufferReadError, ValueError, struct.error):
                return Packet("unreadable long header", len(data)), len(data)
        fixed = "" if data[0] & 0x40 else " without fixed bit"
        return Packet(f"short{fixed}", len(data), self.has_connection, not self.has_connection), len(data)

    def _long(self, data):
        buffer = Buffer(data=data)
        first, version = buffer.pull_uint8(), buffer.pull_uint32()
        to = buffer.pull_bytes(buffer.pull_uint8())
        of = buffer.pull_bytes(buffer.pull_uint8())
        echo = "" if to == self.path.source else " to another ID"
        if version == 0:
            same = "" if of == self.path.destination else " of another ID"
            return Packet(f"Version Negotiation{echo}{same} {versions(data[buffer.tell():])}", len(data)), len(data)
        fixed = "" if first & 0x40 else " without fixed bit"
        says = KINDS_V2.get(first >> 4 & 3) if version == 0x6B3343CF else KINDS.get(first >> 4 & 3)
        says += f"{fixed}{echo} v{version:x} from {len(of)} B"
        self.peer_id = of
        if says.startswith("Retry"):
            return Packet(f"{says} token {len(data) - buffer.tell() - RETRY_TAG_BYTES} B", len(data)), len(data)
        if says.startswith("Initial"):
            says += f" token {len(buffer.pull_bytes(buffer.pull_uint_var()))} B"
        length = buffer.pull_uint_var()
        end = buffer.tell() + length
        is_handshake = says.startswith("Handshake")
        is_news = not is_handshake
        if says.startswith("Initial"):
            number, found = self._opened(data[:end], buffer.tell(), version)
            is_news = any(not frame.startswith(("CRYPTO", "PING")) for frame in found)
            says += f": {', '.join(found)}" if self.has_timers else f" number {number}: {', '.join(found)}"
        self.has_connection |= is_handshake
        return Packet(says, min(end, len(data)), is_handshake, is_news), end

    def _opened(self, packet, at, version):
        keys = CryptoPair()
        keys.setup_initial(cid=self.path.destination, is_client=True, version=version)
        try:
            _, payload, number = keys.decrypt_packet(packet, at, 0)
        except CryptoError:
            return None, ["other keys"]
        return number, frames(payload)


def versions(data):
    """The list of a Version Negotiation, greased ones by their number (RFC 9000 section 15)."""
    found = [value for (value,) in struct.iter_unpack("!I", data[: len(data) // 4 * 4])]
    known = [f"{value:x}" for value in found if value & 0x0F0F0F0F != 0x0A0A0A0A]
    return " ".join(known) + f" and {len(found) - len(known)} greased"


def frames(payload):
    """The frames of an Initial but PADDING, without what depends on time."""
    buffer, found = Buffer(data=payload), []
    try:
        while not buffer.eof():
            kind = buffer.pull_uint_var()
            if kind == 0:
                continue
            found.append(frame(kind, buffer))
    except (BufferReadError, struct.error):
        found.append("unreadable frame")
    return found


def frame(kind, buffer):
    pull = buffer.pull_uint_var
    if kind == 1:
        return "PING"
    if kind in (2, 3):
        largest, _, ranges, length = pull(), pull(), pull(), pull()
        rest = [(pull(), pull()) for _ in range(ranges)]
        if kind == 3:
            pull(), pull(), pull()
        return f"ACK {largest} back {length}{' ' + str(rest) if rest else ''}{' with ECN' if kind == 3 else ''}"
    if kind == 6:
        offset = pull()
        data = buffer.pull_bytes(pull())
        return f"CRYPTO {offset}+{len(data)}{server_hello(data) if offset == 0 else ''}"
    if kind in (0x1C, 0x1D):
        code, about = pull(), pull() if kind == 0x1C else None
        reason = LONG_HEX.sub(b"ID", buffer.pull_bytes(pull()))
        return f"CLOSE {kind:#x} code {code:#x} about {about} reason {reason!r}"
    buffer.seek(buffer.capacity)
    return f"frame {kind:#x}"


# What the random of a HelloRetryRequest begins with (RFC 8446 section 4.1.3).
RETRY_RANDOM = bytes.fromhex("cf21ad74e59a6111")


def server_hello(data):
    """Suite, group and order of the extensions, which each tell a library from others."""
    if len(data) < 44 or data[0] != 2:
        return f" message {data[0] if data else 'none'}"
    at = 39 + data[38]
    (suite,) = struct.unpack_from("!H", data, at)
    at, found = at + 5, []
    while at + 4 <= len(data):
        kind, length = struct.unpack_from("!HH", data, at)
        at += 4
        group = f" group {int.from_bytes(data[at : at + 2], 'big'):#x}" if kind == 51 else ""
        found.append(f"{kind}{group}")
        at += length
    name = "HelloRetryRequest" if data[6:14] == RETRY_RANDOM else "ServerHello"
    return f" {name} {suite:#x} [{', '.join(found)}]"
