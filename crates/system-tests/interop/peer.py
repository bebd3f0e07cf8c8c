"""What all roles share: a QUIC peer that records what comes, capsules, targets to reach, and the result line.

aioquic checks the other side by the RFCs, too: where Gramway breaks a rule that it knows, it closes the connection,
and the check that waits fails with that reason.
"""

import asyncio
import contextlib
import json
import socket
import sys
import traceback
from dataclasses import dataclass, field

from aioquic.asyncio import QuicConnectionProtocol, connect
from aioquic.buffer import Buffer, BufferReadError, encode_uint_var
from aioquic.h3.connection import H3_ALPN, H3Connection, Setting
from aioquic.h3.events import DatagramReceived, DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated, StopSendingReceived, StreamReset

# Seconds for one thing to happen, generous because machines may be busy.
WAIT_LIMIT = 20

# Seconds for all that one check does.
CHECK_LIMIT = 60

# What RFC 9221 recommends: take whatever fits a packet.
DATAGRAM_FRAME_BYTES_MAX = 65536

UDP_PAYLOAD_BYTES_MAX = 65507


class Failure(Exception):
    """A check did not hold."""


def expect(what, actual, wanted):
    """Fails the check unless both are equal."""
    if actual != wanted:
        raise Failure(f"{what}: {actual!r}, and not {wanted!r}")


@dataclass
class Stream:
    """What came for one request stream."""

    headers: list = field(default_factory=list)
    content: bytes = b""
    ended: bool = False
    # HTTP Datagrams, context ID included.
    datagrams: list = field(default_factory=list)
    reset_code: int | None = None
    stop_code: int | None = None

    def __str__(self):
        codes = f"reset {self.reset_code}, stop {self.stop_code}"
        counts = f"{len(self.content)} bytes, {len(self.datagrams)} datagrams"
        return f"headers {self.headers}, {counts}, ended {self.ended}, {codes}"


class Http3(H3Connection):
    """HTTP/3 that says in its SETTINGS whether it takes HTTP Datagrams (RFC 9297 section 2.1.1)."""

    def __init__(self, quic, takes_datagrams):
        self._takes_datagrams = takes_datagrams
        super().__init__(quic)

    def _get_local_settings(self):
        settings = super()._get_local_settings()
        if self._takes_datagrams:
            settings[Setting.H3_DATAGRAM] = 1
        return settings


class Peer(QuicConnectionProtocol):
    """One connection. Without `speaks_http3` nothing is sent that the check does not send."""

    def __init__(self, *arguments, speaks_http3=True, **options):
        super().__init__(*arguments, **options)
        takes_datagrams = self._quic.configuration.max_datagram_frame_size is not None
        self.quic = self._quic
        self.http = Http3(self._quic, takes_datagrams) if speaks_http3 else None
        self.streams = {}
        # The error code that ended the connection.
        self.closed = None
        self._news = asyncio.Event()

    def stream(self, stream_id):
        """What came for a stream."""
        return self.streams.setdefault(stream_id, Stream())

    def quic_event_received(self, event):
        if isinstance(event, ConnectionTerminated):
            self.closed = event
        elif isinstance(event, StreamReset):
            self.stream(event.stream_id).reset_code = event.error_code
        elif isinstance(event, StopSendingReceived):
            self.stream(event.stream_id).stop_code = event.error_code
        for http_event in self.http.handle_event(event) if self.http else []:
            stream = self.stream(http_event.stream_id)
            if isinstance(http_event, HeadersReceived):
                stream.headers.append([(name.decode(), value.decode()) for name, value in http_event.headers])
                stream.ended |= http_event.stream_ended
            elif isinstance(http_event, DataReceived):
                stream.content += http_event.data
                stream.ended |= http_event.stream_ended
            elif isinstance(http_event, DatagramReceived):
                stream.datagrams.append(http_event.data)
            self.http_event_received(http_event)
        self._news.set()

    def http_event_received(self, event):
        """For a server to act on."""

    async def until(self, what, condition, stream_id=None):
        """Waits until the condition gives something true, and gives that. A lost connection ends the wait."""
        try:
            async with asyncio.timeout(WAIT_LIMIT):
                while not (value := condition()):
                    if self.closed:
                        raise Failure(f"the connection ended before {what}: {self.closed}")
                    self._news.clear()
                    await self._news.wait()
                return value
        except TimeoutError:
            seen = self.streams.get(stream_id)
            raise Failure(f"waited {WAIT_LIMIT} s for {what}, in vain; of the stream came {seen}") from None

    async def until_closed(self):
        """Waits for the end of the connection, and gives the code that the other side named."""
        try:
            async with asyncio.timeout(WAIT_LIMIT):
                while not self.closed:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise Failure(f"the connection still stands after {WAIT_LIMIT} s") from None
        return self.closed.error_code

    def send_raw(self, stream_id, data, end=False):
        """Sends bytes on a stream, whatever they are."""
        self.quic.send_stream_data(stream_id, data, end_stream=end)
        self.transmit()

    def send_content(self, stream_id, data, end=False):
        """Sends one DATA frame."""
        self.http.send_data(stream_id, data, end_stream=end)
        self.transmit()

    def send_payload(self, stream_id, payload, context_id=0):
        """Sends one HTTP Datagram (RFC 9298 section 5)."""
        self.http.send_datagram(stream_id, encode_uint_var(context_id) + payload)
        self.transmit()

    def request(self, headers, end=False):
        """Sends a request, and gives its stream ID."""
        stream_id = self.quic.get_next_available_stream_id()
        self.http.send_headers(stream_id, [(n.encode(), v.encode()) for n, v in headers], end_stream=end)
        self.transmit()
        return stream_id

    async def response(self, stream_id):
        """The header list of the response."""
        stream = self.stream(stream_id)
        await self.until("a response", lambda: stream.headers or stream.reset_code is not None, stream_id)
        if not stream.headers:
            raise Failure(f"the request was reset with code {stream.reset_code:#x}")
        return stream.headers[0]

    async def expect_only(self, stream_id, headers):
        """The response is exactly this header list, with no content, and it has ended."""
        expect("the response", await self.response(stream_id), headers)
        stream = self.stream(stream_id)
        await self.until("the end of the response", lambda: stream.ended, stream_id)
        expect("the content", stream.content, b"")
        expect("the number of header sections", len(stream.headers), 1)


def configuration(is_client):
    """QUIC settings of both roles."""
    return QuicConfiguration(
        is_client=is_client,
        alpn_protocols=H3_ALPN,
        max_datagram_frame_size=DATAGRAM_FRAME_BYTES_MAX,
    )


@contextlib.asynccontextmanager
async def client(address, certificate, **options):
    """A connection to the server, whose certificate has to be this one."""
    settings = configuration(is_client=True)
    settings.load_verify_locations(cadata=certificate)
    host, port = address
    create = lambda *arguments, **more: Peer(*arguments, **options, **more)
    async with asyncio.timeout(CHECK_LIMIT):
        async with connect(host, port, configuration=settings, create_protocol=create) as peer:
            yield peer


def capsule(kind, value):
    """One capsule (RFC 9297 section 3.2)."""
    return encode_uint_var(kind) + encode_uint_var(len(value)) + value


def take_capsules(data):
    """The whole capsules at the start of the data, and what is left."""
    capsules = []
    buffer = Buffer(data=data)
    end = 0
    with contextlib.suppress(BufferReadError):
        while not buffer.eof():
            kind, length = buffer.pull_uint_var(), buffer.pull_uint_var()
            capsules.append((kind, buffer.pull_bytes(length)))
            end = buffer.tell()
    return capsules, data[end:]


def split_context(datagram):
    """Context ID and payload of an HTTP Datagram (RFC 9298 section 5)."""
    buffer = Buffer(data=datagram)
    context_id = buffer.pull_uint_var()
    return context_id, datagram[buffer.tell() :]


@contextlib.asynccontextmanager
async def udp_target(host):
    """Runs a UDP socket that sends everything back, and gives its port; `larger N` is answered with so many bytes."""
    loop = asyncio.get_running_loop()
    # asyncio's own transport sends no empty datagrams.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as target:
        target.setblocking(False)
        target.bind((host, 0))

        def answer():
            data, source = target.recvfrom(UDP_PAYLOAD_BYTES_MAX)
            if data.startswith(b"larger "):
                data = bytes(int(data.split()[1]))
            target.sendto(data, source)

        loop.add_reader(target, answer)
        try:
            yield target.getsockname()[1]
        finally:
            loop.remove_reader(target)


@contextlib.asynccontextmanager
async def tcp_target(host, serve):
    """Runs a TCP target that serves each connection by `serve(reader, writer)`, and gives its port."""
    server = await asyncio.start_server(serve, host, 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def run_checks(checks):
    """Runs named checks one after the other, prints one line of JSON, and exits with 1 where one failed."""

    async def run():
        passed, failed = [], []
        for name, check in checks:
            try:
                await check()
                passed.append(name)
            except Exception as error:
                if not isinstance(error, Failure):
                    traceback.print_exc()
                failed.append(f"{name}: {type(error).__name__}: {error}")
        print(json.dumps({"passed": passed, "failed": failed}), flush=True)
        return not failed

    sys.exit(0 if asyncio.run(run()) else 1)


def checks_of(module_globals):
    """The checks of a program: its functions whose names start with `check_`, in order."""
    return [
        (name.removeprefix("check_"), function)
        for name, function in module_globals.items()
        if name.startswith("check_")
    ]
