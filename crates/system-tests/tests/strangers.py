"""Attacks a server as a stranger until its time is over: ADDRESS PORT KIND SECONDS RATE SOURCE…

KIND is what it does, RATE times a second, from the sources in turn:
stalls     first flights of handshakes that nobody goes on with
gaps       single bytes behind gaps, in streams and in handshakes
completes  whole handshakes without a token
tokens     whole handshakes and requests with wrong tokens
garbage    datagrams of random bytes
resets     datagrams that look like packets of connections that are not there
Prints the number of times.
"""

import os
import select
import socket
import sys
import time

from aioquic.h3.connection import H3Connection

from gaps import attempt, complete, connection_to, send_all

KEPT = 256
DATAGRAMS_AT_ONCE = 20


def stalls(number, outside, target):
    send_all(connection_to(target), outside, target)


def gaps(number, outside, target):
    attempt(number, outside, target)


def completes(number, outside, target):
    connection = connection_to(target)
    send_all(connection, outside, target)
    complete(connection, outside, target)


def tokens(number, outside, target):
    connection = connection_to(target)
    send_all(connection, outside, target)
    if not complete(connection, outside, target):
        return
    http = H3Connection(connection)
    for _ in range(3):
        stream = connection.get_next_available_stream_id()
        token = b"Bearer " + os.urandom(16).hex().encode()
        headers = [(b":method", b"CONNECT"), (b":authority", b"127.0.0.1:7"), (b"proxy-authorization", token)]
        http.send_headers(stream, headers)
        send_all(connection, outside, target)
    if select.select([outside], [], [], 0.05)[0]:
        connection.receive_datagram(outside.recv(65536), target, now=time.monotonic())
        send_all(connection, outside, target)


def garbage(number, outside, target):
    for _ in range(DATAGRAMS_AT_ONCE):
        outside.sendto(os.urandom(1 + number * 7919 % 1400), target)


def resets(number, outside, target):
    for _ in range(DATAGRAMS_AT_ONCE):
        outside.sendto(b"\x40" + os.urandom(60), target)


target, attack = (sys.argv[1], int(sys.argv[2])), globals()[sys.argv[3]]
seconds, rate, sources = float(sys.argv[4]), float(sys.argv[5]), sys.argv[6:]
kept, number, start = [], 0, time.monotonic()
while time.monotonic() - start < seconds:
    # A socket for each, so that connections live on; the oldest are forgotten.
    outside = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    outside.bind((sources[number % len(sources)], 0))
    kept.append(outside)
    if len(kept) > KEPT:
        kept.pop(0).close()
    attack(number, outside, target)
    number += 1
    time.sleep(max(0, start + number / rate - time.monotonic()))
print(number, flush=True)
