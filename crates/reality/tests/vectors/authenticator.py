"""Computes authenticator.txt by the formulas of specs/qr1.md, with Python's `cryptography` and `hashlib` alone.

    python3 authenticator.py > authenticator.txt
"""

import hashlib
import hmac as python_hmac
import struct

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat


def hmac(key, data):
    return python_hmac.new(key, data, hashlib.sha256).digest()


def expand(prk, info, length):
    output, block, number = b"", b"", 1
    while len(output) < length:
        block = hmac(prk, block + info + bytes([number]))
        output += block
        number += 1
    return output[:length]


def u8(data):
    return bytes([len(data)]) + data


def u16(data):
    return struct.pack(">H", len(data)) + data


def extension(kind, data):
    return struct.pack(">H", kind) + u16(data)


def filler(label, length):
    return hashlib.shake_128(label).digest(length)


def public(private):
    return private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


def hello(shares, random):
    extensions = [
        extension(57, filler(b"transport parameters", 60)),
        extension(0, u16(b"\0" + u16(b"cover.example"))),
        extension(43, b"\x02\x03\x04"),
        extension(13, u16(bytes.fromhex("040308040401"))),
        extension(16, u16(u8(b"h3"))),
        extension(51, u16(b"".join(struct.pack(">H", group) + u16(key) for group, key in shares))),
        extension(10, u16(b"".join(struct.pack(">H", group) for group, _ in shares))),
    ]
    body = b"\x03\x03" + random + u8(b"") + u16(bytes.fromhex("130113021303")) + u8(b"\0")
    body += u16(b"".join(extensions))
    return b"\x01" + struct.pack(">I", len(body))[1:] + body


def case(shares, private, time, dcid):
    server = X25519PrivateKey.from_private_bytes(filler(b"server", 32))
    token = filler(b"token", 32)
    ephemeral, known = public(private), public(server)
    credentials = expand(hmac(b"qr1 user", token), b"qr1 credentials", 40)
    sid, psk = credentials[:8], credentials[8:]
    ch0 = hello(shares, bytes(32))
    th = hashlib.sha256(b"qr1 ch" + struct.pack(">I", 1) + u8(dcid) + ch0).digest()
    dh = private.exchange(X25519PublicKey.from_public_bytes(known))
    prk = hmac(th, dh + ephemeral + known)
    hdr = b"\x10\0\0\0" + struct.pack(">I", time) + sid
    cipher = Cipher(algorithms.AES(expand(prk, b"qr1 hdr", 32)), modes.ECB()).encryptor()
    c = cipher.update(hdr) + cipher.finalize()
    prk2 = hmac(expand(prk, b"qr1 salt", 32), psk)
    t = hmac(expand(prk2, b"qr1 client", 32), c + th)[:16]
    spki, exporter = filler(b"spki", 91), filler(b"exporter", 32)
    return {
        "server_private": filler(b"server", 32),
        "server_public": known,
        "token": token,
        "sid": sid,
        "dcid": dcid,
        "time": struct.pack(">I", time),
        "shared": dh,
        "hello": hello(shares, c + t),
        "transcript": th,
        "spki": spki,
        "certificate_proof": hmac(expand(prk2, b"qr1 server", 32), b"qr1 cert" + spki + t),
        "exporter": exporter,
        "channel_binding": hmac(expand(prk2, b"qr1 channel", 32), exporter),
    }


first = X25519PrivateKey.from_private_bytes(filler(b"first", 32))
second = X25519PrivateKey.from_private_bytes(filler(b"second", 32))
hybrid = (0x11EC, filler(b"ML-KEM-768", 1184) + public(first))
cases = [
    case([(0x0A0A, b"\0"), hybrid, (0x1D, public(second))], first, 1_900_000_000, filler(b"dcid", 8)),
    case([(0x1D, public(second))], second, 0xFFFFFFFF, filler(b"dcid", 20)),
    case([(0x1D, public(second)), hybrid], first, 0, b""),
]
for values in cases:
    for name, value in values.items():
        print(name, value.hex())
    print()
