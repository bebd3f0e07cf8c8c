"""The Gramway server that the client roles talk to, as `gramway link --masque` describes it, and its requests."""

import argparse
import urllib.parse
from pathlib import Path

import peer
from peer import expect

CONNECT_UDP_ACCEPTED = [(":status", "200"), ("capsule-protocol", "?1")]
CONNECT_ACCEPTED = [(":status", "200")]


class Service:
    """Where the server is, how it is known, and what opens it."""

    def __init__(self, description, token, target_host):
        template = description.split("\n", 1)[0]
        certificate = description[description.index("-----BEGIN") :]
        url = urllib.parse.urlsplit(template)
        self.address = (url.hostname, url.port)
        self.authority = url.netloc
        # RFC 9298 section 2: the variables target_host and target_port.
        self.template_path = urllib.parse.unquote(url.path)
        self.certificate = certificate.encode()
        self.token = token
        self.target_host = target_host

    def connection(self, **options):
        """A new connection."""
        return peer.client(self.address, self.certificate, **options)

    def secret_path(self, host, port):
        """The path of the template that holds the derived segment."""
        host = urllib.parse.quote(host, safe="")
        return self.template_path.replace("{target_host}", host).replace("{target_port}", str(port))

    def connect_udp(self, path, *fields):
        """A CONNECT-UDP request (RFC 9298 section 3.4)."""
        return [
            (":method", "CONNECT"),
            (":protocol", "connect-udp"),
            (":scheme", "https"),
            (":path", path),
            (":authority", self.authority),
            ("capsule-protocol", "?1"),
            *fields,
        ]

    def connect(self, authority, token=None):
        """A CONNECT request (RFC 9114 section 4.4)."""
        headers = [(":method", "CONNECT"), (":authority", authority)]
        return headers + ([("proxy-authorization", f"Bearer {token}")] if token else [])

    async def open_udp(self, connection, port):
        """A UDP session to this port of the target host; gives its stream ID."""
        stream_id = connection.request(self.connect_udp(self.secret_path(self.target_host, port)))
        expect("the response", await connection.response(stream_id), CONNECT_UDP_ACCEPTED)
        return stream_id

    async def echo_udp(self, connection, stream_id, payload):
        """The payload comes back from the target, in context 0."""
        connection.send_payload(stream_id, payload)
        datagrams = connection.stream(stream_id).datagrams
        what = f"{len(payload)} bytes from the UDP target"
        await connection.until(what, lambda: b"\0" + payload in datagrams, stream_id)

    async def expect_serving(self):
        """The server serves a new connection."""
        async with peer.udp_target(self.target_host) as port, self.connection() as connection:
            await self.echo_udp(connection, await self.open_udp(connection, port), b"still there?")


def well_known_path(host, port):
    """The path of the default template (RFC 9298 section 3)."""
    return f"/.well-known/masque/udp/{urllib.parse.quote(host, safe='')}/{port}/"


def from_arguments(description):
    """The service that the command line names."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--masque", type=Path, required=True, help="output of gramway link --masque")
    parser.add_argument("--token-file", type=Path, required=True, help="the server's owner.token")
    parser.add_argument("--target-host", required=True, help="an address that --allow-target permits")
    arguments = parser.parse_args()
    token = arguments.token_file.read_text().strip()
    return Service(arguments.masque.read_text(), token, arguments.target_host)
