"""A web site with HTTP/3: what a server with a cover looks like to strangers.

The first line of output has the address. It serves one page under every path until SIGTERM.
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal

from aioquic.asyncio import QuicConnectionProtocol, serve
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import HeadersReceived
from aioquic.quic import connection
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.packet import QuicPreferredAddress

PAGE = b"<!doctype html><title>Harbour news</title><p>" + b"Ships come and ships go. " * 80
RESPONSE = [(b":status", b"200"), (b"content-type", b"text/html"), (b"content-length", str(len(PAGE)).encode())]

# Of the documentation (RFC 5737): nobody is there.
ELSEWHERE = ("192.0.2.1", 443)


class Visitor(QuicConnectionProtocol):
    """One connection."""

    http = None

    def quic_event_received(self, event):
        if self.http is None:
            self.http = H3Connection(self._quic)
        for received in self.http.handle_event(event):
            if isinstance(received, HeadersReceived):
                self.http.send_headers(received.stream_id, RESPONSE)
                self.http.send_data(received.stream_id, PAGE, end_stream=True)
        self.transmit()


def announce_preferred_address():
    """aioquic reads the transport parameter of RFC 9000 section 9.6 and never sends it; from here on it does."""
    push = connection.push_quic_transport_parameters

    def push_with_preferred_address(buffer, parameters):
        parameters.preferred_address = QuicPreferredAddress(ELSEWHERE, None, os.urandom(8), os.urandom(16))
        push(buffer, parameters)

    connection.push_quic_transport_parameters = push_with_preferred_address


async def main(arguments):
    settings = QuicConfiguration(
        is_client=False,
        alpn_protocols=H3_ALPN if arguments.alpn is None else [arguments.alpn],
        connection_id_length=arguments.id_length,
    )
    settings.load_cert_chain(arguments.chain, arguments.key)
    if arguments.preferred_address:
        announce_preferred_address()
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    host, _, port = arguments.listen.rpartition(":")
    server = await serve(
        host.strip("[]"), int(port), configuration=settings, create_protocol=Visitor, retry=arguments.retry
    )
    address = server._transport.get_extra_info("sockname")
    print(json.dumps({"address": f"{address[0]}:{address[1]}"}), flush=True)
    with contextlib.closing(server):
        await ended.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--listen", required=True, help="ADDR:PORT")
    parser.add_argument("--chain", required=True, help="PEM file with the certificate and those that lead to the root")
    parser.add_argument("--key", required=True, help="PEM file")
    parser.add_argument("--alpn", help="another protocol than HTTP/3")
    parser.add_argument("--id-length", type=int, default=8, help="bytes of its connection IDs")
    parser.add_argument("--retry", action="store_true", help="has every client prove its address")
    parser.add_argument("--preferred-address", action="store_true", help="asks clients to go elsewhere")
    asyncio.run(main(parser.parse_args()))
