"""A visitor of a web site with HTTP/3, which knows nothing of a server that stands before it.

Prints one line with what it got: the response's status and the bytes of its content.
"""

import argparse
import asyncio
import json

from aioquic.asyncio import QuicConnectionProtocol, connect
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration

LIMIT_SECONDS = 20


class Visitor(QuicConnectionProtocol):
    """One connection with one request."""

    def __init__(self, *arguments, **settings):
        super().__init__(*arguments, **settings)
        self.http = H3Connection(self._quic)
        self.status, self.length, self.ended = None, 0, asyncio.Event()

    def quic_event_received(self, event):
        for received in self.http.handle_event(event):
            if isinstance(received, HeadersReceived):
                self.status = int(dict(received.headers)[b":status"])
            if isinstance(received, DataReceived):
                self.length += len(received.data)
            if received.stream_ended:
                self.ended.set()

    async def get(self, name):
        stream = self._quic.get_next_available_stream_id()
        fields = {":method": "GET", ":scheme": "https", ":authority": name, ":path": "/"}
        self.http.send_headers(
            stream, [(field.encode(), value.encode()) for field, value in fields.items()], end_stream=True
        )
        self.transmit()
        await asyncio.wait_for(self.ended.wait(), LIMIT_SECONDS)


async def main(arguments):
    settings = QuicConfiguration(is_client=True, alpn_protocols=H3_ALPN, server_name=arguments.name)
    settings.load_verify_locations(arguments.root)
    host, _, port = arguments.address.rpartition(":")
    async with connect(host.strip("[]"), int(port), configuration=settings, create_protocol=Visitor) as visitor:
        await visitor.get(arguments.name)
        print(json.dumps({"status": visitor.status, "bytes": visitor.length}), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address", help="ADDR:PORT")
    parser.add_argument("--name", required=True, help="the name to ask for")
    parser.add_argument("--root", required=True, help="PEM file of who vouches for it")
    asyncio.run(main(parser.parse_args()))
