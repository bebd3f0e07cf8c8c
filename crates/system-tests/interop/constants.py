"""Looks for what the sessions of one link have in common and those of another link have not: FILE.

FILE is JSON with the first flights of clients of two servers before the same cover, each a list of datagrams in
hexadecimal: {"one": [[datagram, ...], ...], "other": [...]}. The keys of Initials are everybody's (RFC 9001 section
5.2), so this is what a watcher reads. Prints one line of JSON with what it found, and ends with 1 where that is not
nothing. Eight sessions of each link make chance findings less likely than one in a million.
"""

import json
import sys
from collections import Counter, defaultdict

from aioquic.buffer import Buffer
from aioquic.quic.crypto import CryptoPair
from aioquic.quic.packet import pull_quic_header

# Two sessions have so many bytes in a row in common by more than chance.
RUN_BYTES = 6

# What nobody else can predict, by the beginnings of labels.
SECRET = ("destination", "random", "key share")

PADDING, PING, CRYPTO = 0, 1, 6
KEY_SHARE, TRANSPORT_PARAMETERS = 51, 57
VERSION_INFORMATION = 17


def hello_of(flight):
    """The ClientHello of a flight, and by label what its headers say."""
    pieces, said = {}, {}
    for datagram in flight:
        buffer = Buffer(data=datagram)
        header = pull_quic_header(buffer)
        keys = CryptoPair()
        keys.setup_initial(cid=header.destination_cid, is_client=False, version=header.version)
        plain, payload, _ = keys.decrypt_packet(datagram[: header.packet_length], buffer.tell(), 0)
        said = {
            "destination ID": header.destination_cid,
            "source ID": header.source_cid,
            "header": plain[:5] + bytes([len(header.destination_cid), len(header.source_cid)]) + header.token,
            "size": len(datagram).to_bytes(2, "big"),
        }
        pieces.update(crypto_frames(payload))
    data = b""
    for offset in sorted(pieces):
        data = data[:offset] + pieces[offset]
    assert len(data) == 4 + int.from_bytes(data[1:4], "big"), "not a whole hello"
    return data, said


def crypto_frames(payload):
    """The CRYPTO frames of an Initial, by offset."""
    buffer, found = Buffer(data=payload), {}
    while not buffer.eof():
        kind = buffer.pull_uint_var()
        if kind == CRYPTO:
            offset = buffer.pull_uint_var()
            found[offset] = buffer.pull_bytes(buffer.pull_uint_var())
        else:
            assert kind in (PADDING, PING), f"frame {kind} in a first flight"
    return found


def items(data, bytes_of_kind, bytes_of_length):
    """Kinds and values of a list with prefixed lengths."""
    while data:
        kind, rest = int.from_bytes(data[:bytes_of_kind], "big"), data[bytes_of_kind:]
        length = int.from_bytes(rest[:bytes_of_length], "big")
        value, data = rest[bytes_of_length:][:length], rest[bytes_of_length + length :]
        yield kind, value


def parameters(data):
    """Transport parameters; greased ones have no number of their own (RFC 9000 section 18.1)."""
    buffer = Buffer(data=data)
    while not buffer.eof():
        kind = buffer.pull_uint_var()
        value = buffer.pull_bytes(buffer.pull_uint_var())
        if kind == VERSION_INFORMATION:
            value = b"".join(ungreased(value[at : at + 4]) for at in range(0, len(value), 4))
        yield "greased" if kind % 31 == 27 else kind, value


def ungreased(version):
    """A version whose number is chance (RFC 9000 section 15) as the same one always."""
    is_greased = all(byte & 0x0F == 0x0A for byte in version)
    return b"\x0a" * 4 if is_greased else version


def fields_of(flight):
    """By label what a watcher reads; the order of extensions and parameters is chance."""
    hello, found = hello_of(flight)
    body = hello[4:]
    found["random"] = body[2:34]
    at = 35 + body[34]
    at += 2 + int.from_bytes(body[at : at + 2], "big")
    at += 1 + body[at]
    found["beginning"] = body[:2] + body[34:at]
    for kind, value in items(body[at + 2 :], 2, 2):
        if kind == KEY_SHARE:
            found.update((f"key share {group}", key) for group, key in items(value[2:], 2, 2))
        elif kind == TRANSPORT_PARAMETERS:
            found.update((f"transport parameter {number}", value) for number, value in parameters(value))
        else:
            # Greased ones have no number of their own either (RFC 8701).
            found["extension greased" if kind & 0x0F0F == 0x0A0A else f"extension {kind}"] = value
    return found


def runs(value):
    """Its runs of bytes, or all of it where it is shorter."""
    return {value[at : at + RUN_BYTES] for at in range(max(len(value) - RUN_BYTES, 0) + 1)}


def occurrences(sessions):
    """By label and run, in how many sessions it is."""
    found = defaultdict(Counter)
    for session in sessions:
        for label, value in session.items():
            found[label].update(runs(value))
    return found


def common_secrets(sessions):
    """Labels of secrets of which two sessions share a run, or all a byte."""
    for label, counts in occurrences(sessions).items():
        if label.startswith(SECRET):
            values = [session[label] for session in sessions if label in session]
            if any(count > 1 for count in counts.values()):
                yield f"{label}: two sessions share {RUN_BYTES} bytes"
            if any(len(set(column)) == 1 for column in zip(*values)):
                yield f"{label}: all sessions share a byte"


def telling(own, others):
    """Labels of what sessions of one link share, and no session of the other has."""
    elsewhere = occurrences(others)
    for label, counts in occurrences(own).items():
        for run, count in counts.items():
            is_shared = count > 1 if len(run) == RUN_BYTES else count == len(own)
            if is_shared and not elsewhere[label][run] and not label.startswith(SECRET):
                yield f"{label}: {run.hex()} is of one link alone"


def main():
    with open(sys.argv[1], encoding="ascii") as file:
        recorded = json.load(file)
    one, other = (
        [fields_of([bytes.fromhex(datagram) for datagram in flight]) for flight in recorded[link]]
        for link in ("one", "other")
    )
    found = sorted({*common_secrets(one + other), *telling(one, other), *telling(other, one)})
    labels = sorted(set().union(*one, *other))
    print(json.dumps({"sessions": len(one) + len(other), "labels": labels, "found": found}))
    sys.exit(1 if found else 0)


main()
