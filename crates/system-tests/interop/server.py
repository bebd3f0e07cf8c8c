"""A foreign MASQUE proxy for `gramway connect`: judges its requests by the RFCs, then carries UDP and TCP.

The first line of output has the link. At SIGTERM the second and last one has the result: what came, and what was wrong
with it.
"""

import argparse
import asyncio
import base64
import datetime
import hashlib
import json
import os
import signal
import sys
import traceback
import urllib.parse

import peer
from aioquic.asyncio import serve
from aioquic.buffer import encode_uint_var
from aioquic.h3.connection import Setting
from aioquic.h3.events import DatagramReceived, DataReceived, HeadersReceived
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from peer import Failure, capsule, expect, split_context, take_capsules

# A payload that begins so is answered in a capsule, or in a context that nobody asked for.
BY_CAPSULE = b"by capsule"
BY_UNKNOWN_CONTEXT = b"by unknown context"

# Hosts that the proxy answers for instead of connecting to them.
REFUSED_HOST = "refused.test"
INTERIM_HOST = "interim.test"


class Report:
    """What came, and what was wrong with it."""

    def __init__(self):
        self.counts = {}
        self.wrong = []

    def count(self, what):
        self.counts[what] = self.counts.get(what, 0) + 1


class Proxy(peer.Peer):
    """One client's connection."""

    def __init__(self, *arguments, settings, **options):
        super().__init__(*arguments, **options)
        self.settings = settings
        self.report = settings.report
        # UDP transports, TCP writers and capsule bytes to come, by stream.
        self.udp, self.tcp, self.content = {}, {}, {}
        self.tasks = set()

    def http_event_received(self, event):
        try:
            if isinstance(event, HeadersReceived):
                self.handle_request(event.stream_id, self.streams[event.stream_id].headers[-1])
            elif isinstance(event, DatagramReceived):
                self.handle_datagram(event.stream_id, event.data)
            elif isinstance(event, DataReceived):
                self.handle_content(event)
        except Exception as error:
            if not isinstance(error, Failure):
                traceback.print_exc()
            self.report.wrong.append(f"{type(error).__name__}: {error}")

    def handle_request(self, stream_id, headers):
        self.check_client_settings()
        fields = dict(headers)
        if fields.get(":protocol") == "connect-udp":
            self.handle_connect_udp(stream_id, headers, fields)
        else:
            self.handle_connect(stream_id, headers, fields)

    def check_client_settings(self):
        """RFC 9297 section 2.1.1: no datagrams without the setting. RFC 9220 section 3: the other one is a server's."""
        received = self.http.received_settings or {}
        expect("H3_DATAGRAM of the client", received.get(Setting.H3_DATAGRAM), 1)
        expect("ENABLE_CONNECT_PROTOCOL of the client", received.get(Setting.ENABLE_CONNECT_PROTOCOL), None)

    def handle_connect_udp(self, stream_id, headers, fields):
        """RFC 9298 sections 3 and 3.4, and RFC 9114 section 4.3.1: exactly these fields."""
        *_, host, port, empty = fields.get(":path", "").split("/")
        wanted = [
            (":method", "CONNECT"),
            (":protocol", "connect-udp"),
            (":scheme", "https"),
            (":path", f"/.well-known/masque/udp/{host}/{port}/"),
            (":authority", self.settings.authority),
            ("capsule-protocol", "?1"),
            ("authorization", f"Bearer {self.settings.token}"),
        ]
        # What Gramway asks of its own kind: a foreign proxy ignores it.
        own = [field for field in headers if field[0] == "gramway-split"]
        expect("the fields of CONNECT-UDP", sorted(headers), sorted(wanted + own))
        expect("what follows the path's port", empty, "")
        host = urllib.parse.unquote(host)
        if self.settings.refuse_token:
            return self.answer(stream_id, [(":status", "401"), ("www-authenticate", "Bearer")], end=True)
        if host in ("0.0.0.0", REFUSED_HOST):
            self.report.count("refused CONNECT-UDP")
            headers = [(":status", "502"), ("proxy-status", "foreign; error=destination_ip_prohibited")]
            self.answer(stream_id, headers)
            return self.send_content(stream_id, b"not for capsules", end=True)
        self.report.count("CONNECT-UDP")
        self.spawn(self.open_udp(stream_id, host, int(port)))

    async def open_udp(self, stream_id, host, port):
        if host == INTERIM_HOST:
            # RFC 9114 section 4.1: any number of these may precede the response.
            self.answer(stream_id, [(":status", "103"), ("link", "</style.css>")])
            self.answer(stream_id, [(":status", "100")])
            host = "127.0.0.1"
        loop = asyncio.get_running_loop()
        create = lambda: UdpReplies(self, stream_id)
        transport, _ = await loop.create_datagram_endpoint(create, remote_addr=(host, port))
        self.udp[stream_id] = transport
        self.answer(stream_id, [(":status", "200"), ("capsule-protocol", "?1")])
        for datagram in self.stream(stream_id).datagrams:
            self.forward(stream_id, datagram)

    def handle_datagram(self, stream_id, datagram):
        if stream_id in self.udp:
            self.forward(stream_id, datagram)

    def forward(self, stream_id, datagram):
        context_id, payload = split_context(datagram)
        if context_id != 0:
            return self.report.count("datagrams in other contexts")
        self.report.count("datagrams")
        if payload == BY_UNKNOWN_CONTEXT:
            self.send_payload(stream_id, payload, context_id=5)
        elif payload.startswith(BY_CAPSULE):
            unknown = capsule(0x17, b"skip me")
            data = unknown + capsule(0, encode_uint_var(0) + payload)
            # In two pieces, cut in the middle.
            self.send_content(stream_id, data[: len(data) // 2])
            self.send_content(stream_id, data[len(data) // 2 :])
        else:
            self.udp[stream_id].sendto(payload)

    def handle_connect(self, stream_id, headers, fields):
        """RFC 9114 section 4.4: `:method` and `:authority` are all pseudo-header fields."""
        wanted = [
            (":method", "CONNECT"),
            (":authority", fields.get(":authority")),
            ("proxy-authorization", f"Bearer {self.settings.token}"),
        ]
        expect("the fields of CONNECT", sorted(headers), sorted(wanted))
        host, _, port = fields[":authority"].rpartition(":")
        if host == REFUSED_HOST:
            self.report.count("refused CONNECT")
            return self.answer(stream_id, [(":status", "503"), ("retry-after", "120")], end=True)
        self.report.count("CONNECT")
        self.spawn(self.open_tcp(stream_id, host, int(port)))

    async def open_tcp(self, stream_id, host, port):
        reader, writer = await asyncio.open_connection(host, port)
        self.answer(stream_id, [(":status", "200")])
        self.tcp[stream_id] = writer
        stream = self.stream(stream_id)
        writer.write(stream.content)
        if stream.ended:
            writer.write_eof()
        while data := await reader.read(65536):
            self.send_content(stream_id, data)
        self.send_content(stream_id, b"", end=True)

    def handle_content(self, event):
        writer = self.tcp.get(event.stream_id)
        if writer:
            writer.write(event.data)
            if event.stream_ended:
                writer.write_eof()
        elif event.stream_id in self.udp:
            capsules, rest = take_capsules(self.content.get(event.stream_id, b"") + event.data)
            self.content[event.stream_id] = rest
            for kind, _ in capsules:
                self.report.count(f"capsules of type {kind}")
            if event.stream_ended:
                expect("a cut capsule", rest, b"")
                self.udp.pop(event.stream_id).close()
                self.report.count("ended CONNECT-UDP")
                self.send_content(event.stream_id, b"", end=True)

    def answer(self, stream_id, headers, end=False):
        self.http.send_headers(stream_id, [(n.encode(), v.encode()) for n, v in headers], end_stream=end)
        self.transmit()

    def spawn(self, work):
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self.finish_task)

    def finish_task(self, task):
        self.tasks.discard(task)
        if not task.cancelled() and task.exception():
            self.report.wrong.append(f"a request failed: {task.exception()!r}")


class UdpReplies(asyncio.DatagramProtocol):
    """Brings what the target sends to the client."""

    def __init__(self, proxy, stream_id):
        self.proxy, self.stream_id = proxy, stream_id

    def datagram_received(self, data, address):
        self.proxy.send_payload(self.stream_id, data)


class Settings:
    """How this proxy behaves, and how its clients know it."""

    def __init__(self, arguments):
        self.report = Report()
        self.refuse_token = arguments.refuse_token
        self.token = base64.urlsafe_b64encode(os.urandom(32)).decode().rstrip("=")
        self.authority = None
        self.quic = peer.configuration(is_client=False)
        # Room for payloads of the size that clients announce as unsplit.
        self.quic.max_datagram_size = 1452
        if arguments.no_datagrams:
            self.quic.max_datagram_frame_size = None
        key = ec.generate_private_key(ec.SECP256R1())
        self.quic.private_key, self.quic.certificate = key, certificate_of(key)
        public = key.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        self.pin = base64.urlsafe_b64encode(hashlib.sha256(public).digest()).decode().rstrip("=")

    def link(self, port):
        self.authority = f"127.0.0.1:{port}"
        return f"gramway://{self.token}@{self.authority}?pin=sha256-{self.pin}#foreign"


def certificate_of(key):
    """A self-signed certificate: clients look at its public key only."""
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "foreign")])
    now = datetime.datetime.now(datetime.timezone.utc)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    day = datetime.timedelta(days=1)
    builder = builder.not_valid_before(now - day).not_valid_after(now + day)
    return builder.sign(key, SHA256())


async def main(arguments):
    settings = Settings(arguments)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    create = lambda *positional, **named: Proxy(*positional, settings=settings, **named)
    server = await serve("127.0.0.1", 0, configuration=settings.quic, create_protocol=create)
    port = server._transport.get_extra_info("sockname")[1]
    print(json.dumps({"link": settings.link(port)}), flush=True)
    await ended.wait()
    server.close()
    print(json.dumps({"counts": settings.report.counts, "failed": settings.report.wrong}), flush=True)
    return not settings.report.wrong


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--refuse-token", action="store_true", help="answers 401 to everything")
    parser.add_argument("--no-datagrams", action="store_true", help="offers no HTTP Datagrams")
    sys.exit(0 if asyncio.run(main(parser.parse_args())) else 1)
