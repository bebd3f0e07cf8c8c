"""What machines between two ends do to segments, without ethtool.

switch gro|tso on|off INTERFACE…   receive offload, or segmentation by the card
bridge ONE OTHER                   carries frames between two interfaces as the kernel hands them out, joined, and forgets
                                   the sizes of their segments; says "ready" first
"""

import array
import ctypes
import fcntl
import select
import socket
import struct
import sys

SIOCETHTOOL = 0x8946
SETTERS = {"gro": 0x2C, "tso": 0x1F}
FRAMES = 0x0003
OUTGOING = 4
IPV4 = b"\x08\x00"
TCP = 6


def switch(feature, on, interfaces):
    for interface in interfaces:
        value = ctypes.create_string_buffer(struct.pack("II", SETTERS[feature], on))
        request = struct.pack("16sP", interface.encode(), ctypes.addressof(value))
        fcntl.ioctl(socket.socket(), SIOCETHTOOL, request)


def with_checksum(frame):
    """The checksum of what was joined is left to a card that is not there."""
    if frame[12:14] != IPV4 or frame[23] != TCP:
        return frame
    start = 14 + (frame[14] & 0x0F) * 4
    segment = bytearray(frame[start : 14 + struct.unpack("!H", frame[16:18])[0]])
    segment[16:18] = b"\0\0"
    summed = frame[26:34] + struct.pack("!HH", TCP, len(segment)) + segment + b"\0" * (len(segment) % 2)
    total = sum(array.array("H", bytes(summed)))
    while total >> 16:
        total = (total >> 16) + (total & 0xFFFF)
    segment[16:18] = struct.pack("=H", total ^ 0xFFFF)
    return frame[:start] + bytes(segment)


def bridge(one, other):
    ends = {}
    for interface in (one, other):
        end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(FRAMES))
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        end.bind((interface, FRAMES))
        ends[interface] = end
    ways = {ends[one]: ends[other], ends[other]: ends[one]}
    print("ready", file=sys.stderr, flush=True)
    while True:
        for end in select.select(list(ways), [], [])[0]:
            frame, address = end.recvfrom(1 << 17)
            if address[2] != OUTGOING:
                ways[end].send(with_checksum(frame))


if sys.argv[1] == "bridge":
    bridge(*sys.argv[2:4])
else:
    switch(sys.argv[2], int(sys.argv[3] == "on"), sys.argv[4:])
