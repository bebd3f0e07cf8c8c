"""Whole connections by aioquic, in turns: what came is read once nothing more comes, then the client answers.

Only the server's first flight is compared datagram by datagram, since what follows depends on when acknowledgements
leave; the rest is compared by what it says.
"""

import asyncio
import hashlib
import os
import time

import wire
from aioquic.buffer import Buffer
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.events import ConnectionTerminated, HandshakeCompleted
from cryptography.hazmat.primitives.serialization import Encoding
from exchange import Link
from reading import Reader
from verdict import Run

# For the first datagram of a turn, and between two of one.
TURN_SECONDS = 1.0
QUIET_SECONDS = 0.15

TURNS_MAX = 12

# Values that are the same for every client of a server; of others only the length is told.
PLAIN_PARAMETERS = {1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 0x20}

# Fields of a response that change from one to the next.
CHANGING_FIELDS = {"date", "age", "expires", "etag", "last-modified", "set-cookie", "content-length"}


class Client(QuicConnection):
    """Keeps the server's transport parameters as they came."""

    parameters = ()

    def _parse_transport_parameters(self, data, from_session_ticket=False):
        buffer, found = Buffer(data=data), []
        while not buffer.eof():
            kind, value = buffer.pull_uint_var(), None
            value = buffer.pull_bytes(buffer.pull_uint_var())
            greased = kind % 31 == 27
            name = "greased" if greased else f"{kind:#x}"
            found.append(f"{name}={value.hex()}" if kind in PLAIN_PARAMETERS else f"{name} of {len(value)} B")
        # Many servers shuffle them.
        self.parameters = sorted(one for one in found if not one.startswith("greased"))
        super()._parse_transport_parameters(data, from_session_ticket)


class Session:
    """One connection of a client that trusts every certificate."""

    def __init__(self, target, name):
        self.target = target
        settings = QuicConfiguration(is_client=True, alpn_protocols=H3_ALPN, server_name=name, verify_mode=0)
        self.tickets = []
        self.quic = Client(configuration=settings, session_ticket_handler=self.tickets.append)
        self.http = None
        self.facts, self.flight = {}, []
        self.status, self.is_complete, self.closed = None, False, None
        self.link = Link(target)

    async def connect(self):
        """Goes on until the handshake is complete, or over."""
        self.quic.connect(self.target, now=time.monotonic())
        self.send()
        path = wire.Path(self.quic._original_destination_connection_id, self.quic.host_cid)
        reader = Reader(path)
        for turn in range(TURNS_MAX):
            came = await self.turn(self.link)
            if turn == 0:
                self.flight = [(seconds, reader.datagram(data)) for seconds, data in self.link.heard if data is not None]
            if self.is_complete or self.closed or not came:
                break
        self.facts["handshake"] = "complete" if self.is_complete else "not complete"
        if self.is_complete:
            self.describe_handshake()

    def describe_handshake(self):
        tls = self.quic.tls
        self.facts["protocol"] = tls.alpn_negotiated
        self.facts["suite"] = tls.key_schedule.cipher_suite.name
        certificate = tls._peer_certificate.public_bytes(Encoding.DER)
        self.facts["certificate"] = hashlib.sha256(certificate).hexdigest()[:16]
        self.facts["parameters"] = self.quic.parameters

    async def get(self, link=None):
        """Asks for the page, and gives the status of the answer."""
        self.status = None
        self.http = self.http or H3Connection(self.quic)
        stream = self.quic.get_next_available_stream_id()
        authority = (self.quic.configuration.server_name or "localhost").encode()
        headers = [(b":method", b"GET"), (b":scheme", b"https"), (b":authority", authority), (b":path", b"/")]
        self.http.send_headers(stream, headers, end_stream=True)
        self.send(link)
        for _ in range(TURNS_MAX):
            if not await self.turn(link or self.link) or self.status or self.closed:
                break
        return self.status

    async def turn(self, link):
        """Reads what comes next, and answers it; gives the number of datagrams."""
        # The connection's own timers go on: a lost datagram is sent again.
        came = await link.next_turn(TURN_SECONDS, QUIET_SECONDS)
        now = time.monotonic()
        for data in came:
            self.quic.receive_datagram(data, self.target, now=now)
        timer = self.quic.get_timer()
        if timer is not None and timer <= now:
            self.quic.handle_timer(now=now)
        while (event := self.quic.next_event()) is not None:
            self.handle(event)
        self.send(link)
        return len(came)

    def handle(self, event):
        if isinstance(event, HandshakeCompleted):
            self.is_complete = True
        elif isinstance(event, ConnectionTerminated):
            self.closed = event
            self.facts["closed"] = f"{event.error_code:#x} {event.reason_phrase!r}"
        for found in self.http.handle_event(event) if self.http else []:
            if isinstance(found, HeadersReceived):
                fields = [(name.decode(), value.decode()) for name, value in found.headers]
                self.status = dict(fields).get(":status")
                # Some servers send them in another order each time.
                self.facts["response"] = sorted(
                    name if name in CHANGING_FIELDS else f"{name}: {value}" for name, value in fields
                )

    def send(self, link=None):
        for data, _ in self.quic.datagrams_to_send(now=time.monotonic()):
            (link or self.link).send(data)

    def describe_connection(self):
        self.facts["tickets"] = len(self.tickets)
        self.facts["further IDs"] = [len(one.cid) for one in self.quic._peer_cid_available]
        self.facts["settings"] = self.http and self.http.received_settings

    def close(self):
        self.quic.close(error_code=0x100)
        self.send()
        self.link.close()

    def run(self):
        return Run(self.flight, self.facts, seconds=TURN_SECONDS)


async def with_session(target, name, work):
    session = Session(target, name)
    try:
        await session.connect()
        if session.is_complete:
            await work(session)
        return session.run()
    finally:
        session.close()


async def get_page(target, name):
    async def work(session):
        session.facts["status"] = await session.get()
        session.describe_connection()

    return await with_session(target, name, work)


async def migrate(target, name):
    """In the middle of a connection the client is at another port (RFC 9000 section 9)."""

    async def work(session):
        session.facts["status before"] = await session.get()
        with Link(target) as elsewhere:
            session.facts["status after"] = await session.get(elsewhere)
            sizes = [len(data) for _, data in elsewhere.heard if data is not None]
            session.facts["challenged in a large datagram"] = any(size >= wire.INITIAL_BYTES_MIN for size in sizes)

    return await with_session(target, name, work)


async def forge_close(target, name):
    """A forged CONNECTION_CLOSE of Initial keys, after the handshake: nobody should listen to it."""

    async def work(session):
        path = wire.Path(session.quic._original_destination_connection_id, session.quic.host_cid)
        session.link.send(path.initial(wire.close(0x0A, b"bye"), number=9, to=session.quic._peer_cid.cid))
        session.facts["status"] = await session.get()

    return await with_session(target, name, work)


async def send_garbage(target, name):
    """Garbage with the connection's own ID, from its own and from another port."""

    async def work(session):
        garbage = b"\x5a" + session.quic._peer_cid.cid + os.urandom(80)
        session.link.send(garbage)
        with Link(target) as elsewhere:
            elsewhere.send(garbage)
            session.facts["status"] = await session.get()
            session.facts["answers elsewhere"] = len(elsewhere.heard)

    return await with_session(target, name, work)


async def send_after_close(target, name):
    """A packet of a connection that the client has closed."""

    async def work(session):
        session.facts["status"] = await session.get()
        session.quic.close(error_code=0x100)
        session.send()
        await session.link.next_turn(QUIET_SECONDS, QUIET_SECONDS)
        heard = len(session.link.heard)
        session.link.send(b"\x5a" + session.quic._peer_cid.cid + os.urandom(80))
        await session.link.next_turn(TURN_SECONDS, QUIET_SECONDS)
        session.facts["answers after the close"] = len(session.link.heard) - heard

    return await with_session(target, name, work)


# In a row from one address, and what each must get.
MANY = 24


async def many_ports(target, name):
    return await many(target, lambda links: links)


async def one_port(target, name):
    return await many(target, lambda links: links[:1] * MANY)


async def many(target, ports):
    links = [Link(target) for _ in range(MANY)]
    try:
        paths = [wire.Path() for _ in links]
        for path, link in zip(paths, ports(links)):
            link.send(path.initial(wire.crypto(path.hello())))
        await asyncio.sleep(TURN_SECONDS)
        heard = [data for link in links for _, data in link.heard if data]
        answered = sum(any(data[6 : 6 + data[5]] == path.source for data in heard if data[0] & 0x80) for path in paths)
        return Run([], {"hellos answered": answered}, seconds=TURN_SECONDS)
    finally:
        for link in links:
            link.close()


SESSIONS = [
    ("handshake and GET", get_page),
    ("migration to another port", migrate),
    ("forged close after the handshake", forge_close),
    ("garbage within a connection", send_garbage),
    ("packet after the client's close", send_after_close),
    (f"{MANY} hellos in a row from one port", one_port),
    (f"{MANY} hellos in a row from as many ports", many_ports),
]
