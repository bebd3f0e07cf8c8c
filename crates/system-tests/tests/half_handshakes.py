"""Sends first flights of QUIC handshakes that nobody will go on with: ADDRESS PORT COUNT SOURCE…

Each is a valid Initial with a connection ID of its own, from the sources in turn. Prints the number sent.
"""

import socket
import ssl
import sys

from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection

address, port, count, sources = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
sockets = []
for source in sources:
    outside = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    outside.setblocking(False)
    outside.bind((source, 0))
    sockets.append(outside)
sent = 0
for number in range(count):
    configuration = QuicConfiguration(is_client=True, alpn_protocols=["h3"], verify_mode=ssl.CERT_NONE)
    connection = QuicConnection(configuration=configuration)
    connection.connect((address, port), now=0.0)
    for datagram, _ in connection.datagrams_to_send(now=0.0):
        sockets[number % len(sockets)].sendto(datagram, (address, port))
    sent += 1
print(sent, flush=True)
