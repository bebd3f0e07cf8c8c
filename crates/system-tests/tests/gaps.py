"""Sends pieces of streams and handshakes behind gaps that are never filled: ADDRESS PORT COUNT SOURCE…

Makes COUNT connections, from the sources in turn. Every second one completes its handshake, and then sends single bytes on
all streams that it may open, never the first; the others send single bytes of their first CRYPTO stream behind a gap.
Prints the number of handshakes that were completed.
"""

import select
import socket
import ssl
import sys
import time

from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.packet import QuicFrameType, QuicPacketType
from aioquic.quic.packet_builder import QuicPacketBuilder
from aioquic.tls import Epoch

PACKETS = 60
FRAMES = 24
STREAMS = [0, 4, 8, 12] + list(range(2, 34, 4))
STREAM_WITH_OFFSET_AND_LENGTH = QuicFrameType.STREAM_BASE | 4 | 2


def connection_to(target):
    configuration = QuicConfiguration(is_client=True, alpn_protocols=["h3"], verify_mode=ssl.CERT_NONE)
    connection = QuicConnection(configuration=configuration)
    connection.connect(target, now=time.monotonic())
    return connection


def send_all(connection, outside, target):
    for datagram, _ in connection.datagrams_to_send(now=time.monotonic()):
        outside.sendto(datagram, target)


def complete(connection, outside, target):
    """Whether the handshake was completed within a second."""
    deadline = time.monotonic() + 1
    while not connection._handshake_complete and time.monotonic() < deadline:
        if select.select([outside], [], [], 0.05)[0]:
            connection.receive_datagram(outside.recv(65536), target, now=time.monotonic())
            send_all(connection, outside, target)
    return connection._handshake_complete


def push_stream(builder, number):
    stream, offset = STREAMS[number % len(STREAMS)], 1 + 2 * (number // len(STREAMS))
    frame = builder.start_frame(STREAM_WITH_OFFSET_AND_LENGTH, capacity=16)
    frame.push_uint_var(stream)
    frame.push_uint_var(offset)
    frame.push_uint_var(1)
    frame.push_bytes(b"x")


def push_crypto(builder, number):
    frame = builder.start_frame(QuicFrameType.CRYPTO, capacity=16)
    frame.push_uint_var(8000 + 2 * number)
    frame.push_uint_var(1)
    frame.push_bytes(b"x")


def send_pieces(connection, outside, target, epoch, kind, push):
    for packet in range(PACKETS):
        builder = QuicPacketBuilder(
            host_cid=connection.host_cid,
            peer_cid=connection._peer_cid.cid,
            version=connection._version,
            is_client=True,
            max_datagram_size=1280,
            packet_number=connection._packet_number,
        )
        builder.start_packet(kind, connection._cryptos[epoch])
        for frame in range(FRAMES):
            push(builder, packet * FRAMES + frame)
        datagrams, _ = builder.flush()
        connection._packet_number = builder.packet_number
        for datagram in datagrams:
            outside.sendto(datagram, target)


def attempt(number, outside, target):
    """One connection. Whether its handshake was completed."""
    connection = connection_to(target)
    send_all(connection, outside, target)
    if number % 2 == 0:
        send_pieces(connection, outside, target, Epoch.INITIAL, QuicPacketType.INITIAL, push_crypto)
        return False
    is_complete = complete(connection, outside, target)
    if is_complete:
        send_pieces(connection, outside, target, Epoch.ONE_RTT, QuicPacketType.ONE_RTT, push_stream)
    return is_complete


def main():
    target, count, sources = (sys.argv[1], int(sys.argv[2])), int(sys.argv[3]), sys.argv[4:]
    kept, completed = [], 0
    for number in range(count):
        outside = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        outside.bind((sources[number % len(sources)], 0))
        kept.append(outside)
        completed += attempt(number, outside, target)
    print(completed, flush=True)


if __name__ == "__main__":
    main()
