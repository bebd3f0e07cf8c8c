"""A foreign MASQUE client: what a user of the server gets, and what a stranger gets."""

import asyncio
import hashlib
import socket

import service
from aioquic.buffer import encode_uint_var
from aioquic.h3.connection import ErrorCode, Setting
from peer import Failure, capsule, checks_of, expect, run_checks, tcp_target, udp_target
from service import CONNECT_ACCEPTED, CONNECT_UDP_ACCEPTED, well_known_path

SERVICE = service.from_arguments(__doc__)
HOST = SERVICE.target_host

# Capsule type DATAGRAM (RFC 9297 section 3.5), and one reserved to exercise unknown types (section 5.4).
DATAGRAM_CAPSULE = 0x00
UNKNOWN_CAPSULE = 0x17

# Bytes of a transfer that takes many packets and some flow control.
TRANSFER_BYTES = 2 << 20


async def check_settings():
    """RFC 9297 section 2.1.1, RFC 9220 section 3, RFC 9221 section 3."""
    async with SERVICE.connection() as peer:
        settings = await peer.until("SETTINGS", lambda: peer.http.received_settings)
        expect("H3_DATAGRAM", settings.get(Setting.H3_DATAGRAM), 1)
        expect("ENABLE_CONNECT_PROTOCOL", settings.get(Setting.ENABLE_CONNECT_PROTOCOL), 1)
        expect("QPACK_MAX_TABLE_CAPACITY", settings.get(Setting.QPACK_MAX_TABLE_CAPACITY, 0), 0)
        expect("MAX_FIELD_SECTION_SIZE", settings.get(Setting.MAX_FIELD_SECTION_SIZE), 8192)
        if not peer.quic._remote_max_datagram_frame_size:
            raise Failure("no max_datagram_frame_size transport parameter")


async def check_udp_by_the_secret_path():
    async with udp_target(HOST) as port, SERVICE.connection() as peer:
        stream_id = await SERVICE.open_udp(peer, port)
        for size in [1, 0, 64, 1000, 1100]:
            await SERVICE.echo_udp(peer, stream_id, bytes([size % 251]) * size)
        expect("the content", peer.stream(stream_id).content, b"")
        expect("whether the response has ended", peer.stream(stream_id).ended, False)


async def check_udp_by_the_token():
    async with udp_target(HOST) as port, SERVICE.connection() as peer:
        authorization = ("authorization", f"Bearer {SERVICE.token}")
        stream_id = peer.request(SERVICE.connect_udp(well_known_path(HOST, port), authorization))
        expect("the response", await peer.response(stream_id), CONNECT_UDP_ACCEPTED)
        await SERVICE.echo_udp(peer, stream_id, b"by the token")


async def check_datagrams_before_the_response():
    """RFC 9298 section 5: a client may send before it knows the response."""
    async with udp_target(HOST) as port, SERVICE.connection() as peer:
        await peer.until("SETTINGS", lambda: peer.http.received_settings)
        stream_id = peer.request(SERVICE.connect_udp(SERVICE.secret_path(HOST, port)))
        for number in range(5):
            peer.send_payload(stream_id, b"early %d" % number)
        await peer.until("all echoes", lambda: len(peer.stream(stream_id).datagrams) == 5, stream_id)
        expect("the response", await peer.response(stream_id), CONNECT_UDP_ACCEPTED)


async def check_several_sessions_keep_apart():
    async with udp_target(HOST) as port, SERVICE.connection() as peer:
        stream_ids = [await SERVICE.open_udp(peer, port) for _ in range(20)]
        for stream_id in stream_ids:
            await SERVICE.echo_udp(peer, stream_id, b"session %d" % stream_id)
        for stream_id in stream_ids:
            expect("the echoes", peer.stream(stream_id).datagrams, [b"\0session %d" % stream_id])


async def check_datagrams_in_capsules():
    """RFC 9297 sections 3.2 and 3.5: both forms mean the same, unknown capsules are skipped."""
    async with udp_target(HOST) as port, SERVICE.connection() as peer:
        stream_id = await SERVICE.open_udp(peer, port)
        datagrams = peer.stream(stream_id).datagrams
        whole = capsule(DATAGRAM_CAPSULE, encode_uint_var(0) + b"in a capsule")
        peer.send_content(stream_id, capsule(UNKNOWN_CAPSULE, b"skip me") + whole)
        await peer.until("the echo", lambda: b"\0in a capsule" in datagrams, stream_id)
        in_pieces = capsule(DATAGRAM_CAPSULE, encode_uint_var(0) + b"in pieces")
        for offset in range(len(in_pieces)):
            peer.send_content(stream_id, in_pieces[offset : offset + 1])
        await peer.until("the echo", lambda: b"\0in pieces" in datagrams, stream_id)


async def check_unknown_contexts_are_dropped():
    """RFC 9298 section 4: without a word, and the session goes on."""
    async with udp_target(HOST) as port, SERVICE.connection() as peer:
        stream_id = await SERVICE.open_udp(peer, port)
        peer.send_payload(stream_id, b"unknown", context_id=4)
        await SERVICE.echo_udp(peer, stream_id, b"known")
        expect("the echoes", peer.stream(stream_id).datagrams, [b"\0known"])


async def check_payloads_too_large_for_a_foreign_peer_are_dropped():
    async with udp_target(HOST) as port, SERVICE.connection() as peer:
        stream_id = await SERVICE.open_udp(peer, port)
        peer.send_payload(stream_id, b"larger 9000")
        await SERVICE.echo_udp(peer, stream_id, b"small")
        expect("the echoes", peer.stream(stream_id).datagrams, [b"\0small"])


async def check_the_end_of_the_stream_ends_the_session():
    """RFC 9298 section 3.1."""
    async with udp_target(HOST) as port, SERVICE.connection() as peer:
        stream_id = await SERVICE.open_udp(peer, port)
        peer.send_content(stream_id, b"", end=True)
        await peer.until("the end of the response", lambda: peer.stream(stream_id).ended, stream_id)


async def check_tcp_with_half_close():
    """RFC 9114 section 4.4: FIN in one direction leaves the other open."""

    async def answer_at_the_end(reader, writer):
        data = await reader.read()
        await asyncio.sleep(0)
        writer.write(hashlib.sha256(data).digest() + data)
        writer.close()

    sent = bytes(index * 7 % 251 for index in range(TRANSFER_BYTES))
    async with tcp_target(HOST, answer_at_the_end) as port, SERVICE.connection() as peer:
        stream_id = peer.request(SERVICE.connect(f"{HOST}:{port}", SERVICE.token))
        expect("the response", await peer.response(stream_id), CONNECT_ACCEPTED)
        for offset in range(0, len(sent), 65536):
            peer.send_content(stream_id, sent[offset : offset + 65536])
        peer.send_content(stream_id, b"", end=True)
        await peer.until("the end of the answer", lambda: peer.stream(stream_id).ended, stream_id)
        answer = peer.stream(stream_id).content
        expect("the digest", answer[:32], hashlib.sha256(sent).digest())
        expect("the answer's length", len(answer), 32 + len(sent))


async def check_tcp_whose_target_closes_first():
    """RFC 9114 section 4.4: the target's FIN is the stream's, and the client may go on sending."""
    received = asyncio.get_running_loop().create_future()

    async def greet_and_close(reader, writer):
        writer.write(b"greeting")
        writer.write_eof()
        received.set_result(await reader.read())
        writer.close()

    async with tcp_target(HOST, greet_and_close) as port, SERVICE.connection() as peer:
        stream_id = peer.request(SERVICE.connect(f"{HOST}:{port}", SERVICE.token))
        await peer.until("the end of the answer", lambda: peer.stream(stream_id).ended, stream_id)
        expect("the answer", peer.stream(stream_id).content, b"greeting")
        peer.send_content(stream_id, b"after your end", end=True)
        expect("what the target received", await received, b"after your end")


async def check_tcp_whose_target_resets():
    """RFC 9114 section 4.4: H3_CONNECT_ERROR."""

    async def reset(reader, writer):
        await reader.read(1)
        linger_none = b"\1\0\0\0\0\0\0\0"
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger_none)
        writer.close()

    async with tcp_target(HOST, reset) as port, SERVICE.connection() as peer:
        stream_id = peer.request(SERVICE.connect(f"{HOST}:{port}", SERVICE.token))
        expect("the response", await peer.response(stream_id), CONNECT_ACCEPTED)
        peer.send_content(stream_id, b"x")
        stream = peer.stream(stream_id)
        await peer.until("a reset", lambda: stream.reset_code is not None, stream_id)
        expect("the code", stream.reset_code, ErrorCode.H3_CONNECT_ERROR)


async def check_tcp_whose_client_resets():
    """RFC 9114 section 4.4: the proxy closes the TCP connection, with RST where it can."""
    outcome = asyncio.get_running_loop().create_future()

    async def wait_for_the_end(reader, writer):
        try:
            outcome.set_result(await reader.read())
        except ConnectionResetError:
            outcome.set_result("reset")
        writer.close()

    async with tcp_target(HOST, wait_for_the_end) as port, SERVICE.connection() as peer:
        stream_id = peer.request(SERVICE.connect(f"{HOST}:{port}", SERVICE.token))
        expect("the response", await peer.response(stream_id), CONNECT_ACCEPTED)
        peer.quic.reset_stream(stream_id, ErrorCode.H3_REQUEST_CANCELLED)
        peer.transmit()
        expect("what the target saw", await outcome, "reset")


async def check_failed_targets_are_explained():
    """RFC 9209 sections 2.1.1 and 2.3: the status and error of a refused and of a prohibited target."""
    async with SERVICE.connection() as peer:
        with socket.socket() as unused:
            # Bound and not listening, so that nobody else can take the port.
            unused.bind((HOST, 0))
            authority = f"{HOST}:{unused.getsockname()[1]}"
            refused = peer.request(SERVICE.connect(authority, SERVICE.token))
            await peer.expect_only(refused, failure("connection_refused"))
        for host in ["127.0.0.1", "::1", "::ffff:127.0.0.1", "localhost", "0.0.0.0", "169.254.169.254"]:
            udp = peer.request(SERVICE.connect_udp(SERVICE.secret_path(host, 53)))
            await peer.expect_only(udp, failure("destination_ip_prohibited"))
            authority = f"[{host}]:53" if ":" in host else f"{host}:53"
            tcp = peer.request(SERVICE.connect(authority, SERVICE.token))
            await peer.expect_only(tcp, failure("destination_ip_prohibited"))


def failure(error):
    return [(":status", "502"), ("proxy-status", f"gramway; error={error}")]


async def check_impossible_targets_are_bad_requests():
    """RFC 9298 section 3.1 and RFC 9114 section 4.4: ports beyond 65,535, no port, no host."""
    async with SERVICE.connection() as peer:
        for path in [SERVICE.secret_path(HOST, port) for port in ["0", "65536", "http", "-1"]]:
            await peer.expect_only(peer.request(SERVICE.connect_udp(path)), [(":status", "400")])
        for authority in [HOST, f"{HOST}:0", f"{HOST}:65536", ":80", f"user@{HOST}:80"]:
            stream_id = peer.request(SERVICE.connect(authority, SERVICE.token))
            await peer.expect_only(stream_id, [(":status", "400")])


async def check_requests_without_a_token():
    """RFC 9110 sections 15.5.2 and 15.5.8, and 404 for every path that is not ours; never any content."""
    unauthorized = [(":status", "401"), ("www-authenticate", "Bearer")]
    proxy_unauthorized = [(":status", "407"), ("proxy-authenticate", "Bearer")]
    not_found = [(":status", "404")]
    async with udp_target(HOST) as port:
        well_known = well_known_path(HOST, port)
        authority, secret = f"{HOST}:{port}", SERVICE.secret_path(HOST, port)
        changed = secret.replace(secret.split("/")[1], secret.split("/")[1][::-1])
        ordinary = [(":scheme", "https"), (":authority", SERVICE.authority)]
        other_protocol = dict(SERVICE.connect_udp(secret)) | {":protocol": "websocket"}
        for wanted, headers in [
            (unauthorized, SERVICE.connect_udp(well_known)),
            (unauthorized, SERVICE.connect_udp(well_known, ("proxy-authorization", f"Bearer {SERVICE.token}"))),
            (proxy_unauthorized, SERVICE.connect(authority)),
            (proxy_unauthorized, SERVICE.connect(authority) + [("authorization", f"Bearer {SERVICE.token}")]),
            (proxy_unauthorized, SERVICE.connect("127.0.0.1:22")),
            (not_found, SERVICE.connect_udp(changed)),
            (not_found, SERVICE.connect_udp(changed.replace(HOST, "127.0.0.1"))),
            (not_found, SERVICE.connect_udp("/")),
            (not_found, SERVICE.connect_udp("/.well-known/masque/udp/")),
            (not_found, SERVICE.connect_udp("/.well-known/masque/ip/*/*/")),
            (not_found, list(other_protocol.items())),
            (not_found, [(":method", "GET"), (":path", "/"), *ordinary]),
            (not_found, [(":method", "GET"), (":path", secret), *ordinary]),
            (not_found, [(":method", "POST"), (":path", well_known), *ordinary]),
            (not_found, [(":method", "OPTIONS"), (":path", "*"), *ordinary]),
        ]:
            for end in [False, True]:
                # A new connection each: strangers' ones are short-lived, and this is about one request.
                async with SERVICE.connection() as peer:
                    await peer.expect_only(peer.request(headers, end=end), wanted)
    await SERVICE.expect_serving()


if __name__ == "__main__":
    run_checks(checks_of(globals()))
