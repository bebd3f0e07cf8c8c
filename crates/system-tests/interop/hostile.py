"""A peer that breaks the rules of HTTP/3: each break costs its stream or its connection, as the RFCs say, and never the
server.
"""

import asyncio

import service
from aioquic.buffer import encode_uint_var
from aioquic.h3.connection import ErrorCode, FrameType, StreamType, encode_frame
from aioquic.quic.packet import QuicErrorCode
from peer import Failure, capsule, checks_of, expect, run_checks, udp_target
from service import well_known_path

SERVICE = service.from_arguments(__doc__)
HOST = SERVICE.target_host

# Frame and stream types reserved to exercise that unknown ones are ignored (RFC 9114 sections 6.2.3 and 7.2.8).
UNKNOWN_TYPE = 0x1F * 5 + 0x21

# Frame types of HTTP/2 (RFC 9114 section 7.2.8).
HTTP2_FRAMES = [0x02, 0x06, 0x08, 0x09]

# Request streams that a stranger may have open.
STRANGER_STREAMS = 4

# An empty field section: Required Insert Count 0, Base 0 (RFC 9204 section 4.5.1).
NO_FIELDS = b"\0\0"


def settings(*pairs):
    return encode_frame(FrameType.SETTINGS, b"".join(encode_uint_var(i) + encode_uint_var(v) for i, v in pairs))


async def expect_close(what, code, act, **options):
    """The connection ends with this code after `act(peer)`, and the server serves others."""
    async with SERVICE.connection(**options) as peer:
        if peer.http:
            # What comes together with the end of the handshake may be too early to be looked at.
            await peer.until("SETTINGS", lambda: peer.http.received_settings)
        act(peer)
        closed = await peer.until_closed()
        if closed != code:
            raise Failure(f"{what}: closed with {closed:#x} ({peer.closed.reason_phrase}), and not with {code!r}")
    await SERVICE.expect_serving()


async def expect_reset(what, code, act):
    """The request that `act(peer)` sends fails with this code, and the connection goes on."""
    async with SERVICE.connection() as peer:
        stream = peer.stream(act(peer))
        await peer.until(f"the reset of {what}", lambda: stream.reset_code is not None)
        expect(f"the code of {what}", stream.reset_code, code)
        expect(f"the response to {what}", stream.headers, [])
        await peer.expect_only(peer.request(SERVICE.connect_udp("/")), [(":status", "404")])


def on_request(data, end=False):
    return lambda peer: peer.send_raw(peer.quic.get_next_available_stream_id(), data, end)


def on_control(data, end=False):
    return lambda peer: peer.send_raw(peer.http._local_control_stream_id, data, end)


def on_new_stream(kind, data=b"", end=False):
    def act(peer):
        stream_id = peer.quic.get_next_available_stream_id(is_unidirectional=True)
        peer.send_raw(stream_id, encode_uint_var(kind) + data, end)

    return act


async def check_frames_where_they_must_not_be():
    """RFC 9114 sections 4.1, 7.1 and 7.2."""
    unexpected = ErrorCode.H3_FRAME_UNEXPECTED
    for kind in [FrameType.DATA, FrameType.SETTINGS, FrameType.GOAWAY, FrameType.MAX_PUSH_ID, FrameType.CANCEL_PUSH]:
        await expect_close(f"{kind!r} first", unexpected, on_request(encode_frame(kind, b"\0")))
    await expect_close("PUSH_PROMISE", unexpected, on_request(encode_frame(FrameType.PUSH_PROMISE, b"\0\0\0")))
    for kind in HTTP2_FRAMES:
        await expect_close(f"HTTP/2 frame {kind}", unexpected, on_request(encode_frame(kind, b"x")))
        await expect_close(f"HTTP/2 frame {kind} on control", unexpected, on_control(encode_frame(kind, b"x")))
    for kind in [FrameType.DATA, FrameType.HEADERS, FrameType.PUSH_PROMISE]:
        await expect_close(f"{kind!r} on control", unexpected, on_control(encode_frame(kind, b"\0\0\0")))
    await expect_close("second SETTINGS", unexpected, on_control(settings((0x33, 1))))
    for cut in [b"\x01\x20half", b"\x01", b"\x40"]:
        await expect_close(f"request cut at {cut!r}", ErrorCode.H3_FRAME_ERROR, on_request(cut, end=True))


async def check_headers_after_connect():
    """RFC 9114 section 4.4: only DATA may follow, and unknown frames."""
    async with udp_target(HOST) as port, SERVICE.connection() as peer:
        stream_id = await SERVICE.open_udp(peer, port)
        peer.send_raw(stream_id, encode_frame(UNKNOWN_TYPE, b"ignore me"))
        await SERVICE.echo_udp(peer, stream_id, b"ignored")
        peer.send_raw(stream_id, encode_frame(FrameType.HEADERS, NO_FIELDS))
        expect("the code", await peer.until_closed(), ErrorCode.H3_FRAME_UNEXPECTED)
    await SERVICE.expect_serving()


async def check_garbage_instead_of_fields():
    """RFC 9204 sections 2.2 and 6: what does not decode ends the connection."""
    for garbage in [b"", b"\xff" * 40, b"\x02\x00\x80", b"\0\0" + b"\xff" * 11, b"\0\0\x27\xff"]:
        frame = encode_frame(FrameType.HEADERS, garbage)
        await expect_close(f"fields {garbage!r}", ErrorCode.QPACK_DECOMPRESSION_FAILED, on_request(frame))


async def check_control_streams_that_break_the_rules():
    """RFC 9114 sections 6.2, 7.2.4 and 7.2.7, RFC 9204 section 4.2."""
    missing, bad_settings = ErrorCode.H3_MISSING_SETTINGS, ErrorCode.H3_SETTINGS_ERROR
    bare = {"speaks_http3": False}
    for what, code, data in [
        ("GOAWAY before SETTINGS", missing, encode_frame(FrameType.GOAWAY, b"\0")),
        ("an unknown frame before SETTINGS", missing, encode_frame(UNKNOWN_TYPE, b"")),
        ("a setting of HTTP/2", bad_settings, settings((0x02, 1))),
        ("a setting twice", bad_settings, settings((0x33, 1), (0x33, 1))),
        ("a boolean setting of 2", bad_settings, settings((0x33, 2))),
        ("SETTINGS cut short", ErrorCode.H3_FRAME_ERROR, encode_frame(FrameType.SETTINGS, b"\x33")),
        ("SETTINGS of 1 MiB", ErrorCode.H3_EXCESSIVE_LOAD, b"\x04" + encode_uint_var(1 << 20)),
    ]:
        await expect_close(what, code, on_new_stream(StreamType.CONTROL, data), **bare)
    twice, closed = ErrorCode.H3_STREAM_CREATION_ERROR, ErrorCode.H3_CLOSED_CRITICAL_STREAM
    for kind in [StreamType.CONTROL, StreamType.QPACK_ENCODER, StreamType.QPACK_DECODER]:
        await expect_close(f"second {kind!r}", twice, on_new_stream(kind))
    await expect_close("push stream", twice, on_new_stream(StreamType.PUSH))
    await expect_close("control stream ends", closed, on_control(b"", end=True))
    await expect_close("QPACK stream ends", closed, on_new_stream(StreamType.QPACK_ENCODER, end=True), **bare)
    lower = on_control(encode_frame(FrameType.MAX_PUSH_ID, b"\0"))
    await expect_close("push ID decreases", ErrorCode.H3_ID_ERROR, lower)
    insert = on_new_stream(StreamType.QPACK_ENCODER, b"\x41x\x01y")
    await expect_close("an insertion", ErrorCode.QPACK_ENCODER_STREAM_ERROR, insert, **bare)
    acknowledge = on_new_stream(StreamType.QPACK_DECODER, b"\x80")
    await expect_close("an acknowledgement", ErrorCode.QPACK_DECODER_STREAM_ERROR, acknowledge, **bare)


async def check_unknown_streams_and_frames_are_ignored():
    """RFC 9114 sections 6.2.3, 7.2.8 and 9."""
    async with udp_target(HOST) as port, SERVICE.connection() as peer:
        stream_id = peer.quic.get_next_available_stream_id(is_unidirectional=True)
        peer.send_raw(stream_id, encode_uint_var(UNKNOWN_TYPE) + b"who knows")
        stream = peer.stream(stream_id)
        await peer.until("STOP_SENDING", lambda: stream.stop_code is not None)
        expect("its code", stream.stop_code, ErrorCode.H3_STREAM_CREATION_ERROR)
        on_control(encode_frame(UNKNOWN_TYPE, bytes(5000)))(peer)
        request_id = peer.quic.get_next_available_stream_id()
        peer.send_raw(request_id, encode_frame(UNKNOWN_TYPE, bytes(5000)))
        headers = SERVICE.connect_udp(SERVICE.secret_path(HOST, port))
        peer.http.send_headers(request_id, [(n.encode(), v.encode()) for n, v in headers])
        await SERVICE.echo_udp(peer, request_id, b"unharmed")


async def check_datagrams_that_belong_to_nothing():
    """RFC 9297 section 2.1: an unreadable one ends the connection, one for an unknown request is dropped."""
    async with udp_target(HOST) as port, SERVICE.connection() as peer:
        stream_id = await SERVICE.open_udp(peer, port)
        peer.send_payload(4000, b"for nobody")
        # No context ID.
        peer.http.send_datagram(stream_id, b"")
        await SERVICE.echo_udp(peer, stream_id, b"for somebody")

    def send(datagram):
        return lambda peer: (peer.quic.send_datagram_frame(datagram), peer.transmit())

    for datagram in [b"", b"\x40", b"\xff" * 8]:
        await expect_close(f"datagram {datagram!r}", ErrorCode.H3_DATAGRAM_ERROR, send(datagram))


async def check_capsules_that_are_cut():
    """RFC 9297 section 3.3: H3_MESSAGE_ERROR."""
    async with udp_target(HOST) as port, SERVICE.connection() as peer:
        stream_id = await SERVICE.open_udp(peer, port)
        peer.send_content(stream_id, capsule(0, b"\0whole")[:-1], end=True)
        stream = peer.stream(stream_id)
        await peer.until("the reset", lambda: stream.reset_code is not None, stream_id)
        expect("the code", stream.reset_code, ErrorCode.H3_MESSAGE_ERROR)
        await SERVICE.echo_udp(peer, await SERVICE.open_udp(peer, port), b"next")


async def check_malformed_requests():
    """RFC 9114 sections 4.1.2, 4.2, 4.3 and 4.4."""
    udp = SERVICE.connect_udp(well_known_path(HOST, 9))
    tcp = SERVICE.connect(f"{HOST}:9", SERVICE.token)
    get = [(":method", "GET"), (":scheme", "https"), (":authority", SERVICE.authority), (":path", "/")]
    for what, headers in {
        "no method": udp[1:],
        "method twice": [udp[0], *udp],
        "unknown pseudo-header": [(":odd", "x"), *udp],
        "status in a request": [(":status", "200"), *udp],
        "pseudo-header at the end": [*udp[1:], udp[0]],
        "CONNECT with scheme and path": [*tcp[:2], (":scheme", "https"), (":path", "/"), *tcp[2:]],
        "CONNECT without authority": [tcp[0], *tcp[2:]],
        "extended CONNECT without path": [field for field in udp if field[0] != ":path"],
        "GET with protocol": [*get, (":protocol", "connect-udp")],
        "GET without path": get[:-1],
        "no authority": [field for field in get if field[0] != ":authority"],
        "host differs": [*get, ("host", "elsewhere.example")],
        "upper case": [*get, ("Upper", "x")],
        "connection": [*get, ("connection", "keep-alive")],
        "transfer-encoding": [*udp, ("transfer-encoding", "chunked")],
        "te": [*get, ("te", "gzip")],
        "line break": [*get, ("odd", "a\r\nb: c")],
    }.items():
        await expect_reset(what, ErrorCode.H3_MESSAGE_ERROR, lambda peer: peer.request(headers))
    await expect_reset(
        "no request", ErrorCode.H3_REQUEST_INCOMPLETE, lambda peer: unfinished(peer, encode_frame(UNKNOWN_TYPE, b""))
    )


def unfinished(peer, data):
    stream_id = peer.quic.get_next_available_stream_id()
    peer.send_raw(stream_id, data, end=True)
    return stream_id


async def check_oversized_fields():
    """RFC 9114 sections 4.2.2 and 10.5.1: more than 8 KiB, encoded or decoded, costs the stream."""
    udp = SERVICE.connect_udp(SERVICE.secret_path(HOST, 9))
    too_large = ErrorCode.H3_EXCESSIVE_LOAD
    for what, headers in {
        "one large field": [*udp, ("large", "~" * 9000)],
        "many small fields": [*udp, *[("a", "")] * 300],
        "a large path": [*udp[:3], (":path", "/" + "x" * 9000), *udp[4:]],
    }.items():
        await expect_reset(what, too_large, lambda peer: peer.request(headers))
    # A promise of 1 GiB is refused at the frame's header.
    promise = encode_uint_var(FrameType.HEADERS) + encode_uint_var(1 << 30)

    def promised(peer):
        stream_id = peer.quic.get_next_available_stream_id()
        peer.send_raw(stream_id, promise + bytes(100))
        return stream_id

    await expect_reset("a promise", too_large, promised)


async def check_a_stranger_has_four_streams():
    """RFC 9000 section 4.6: more than was allowed is STREAM_LIMIT_ERROR."""
    async with SERVICE.connection() as peer:
        expect("the streams allowed", peer.quic._remote_max_streams_bidi, STRANGER_STREAMS)
        peer.quic._remote_max_streams_bidi = 100
        for _ in range(20):
            on_request(b"\x01")(peer)
        expect("the code", await peer.until_closed(), QuicErrorCode.STREAM_LIMIT_ERROR)
    await SERVICE.expect_serving()


async def check_a_user_has_many_streams():
    async with udp_target(HOST) as port, SERVICE.connection() as peer:
        stream_id = await SERVICE.open_udp(peer, port)
        others = [await SERVICE.open_udp(peer, port) for _ in range(3 * STRANGER_STREAMS)]
        await SERVICE.echo_udp(peer, others[-1], b"last")
        await SERVICE.echo_udp(peer, stream_id, b"first")


async def check_a_silent_stranger_is_closed():
    """10 s without a valid token."""
    async with SERVICE.connection() as peer:
        await peer.expect_only(peer.request(SERVICE.connect_udp("/")), [(":status", "404")])
        began = asyncio.get_running_loop().time()
        await peer.until_closed()
        seconds = asyncio.get_running_loop().time() - began
        if seconds > 15:
            raise Failure(f"closed after {seconds:.1f} s only")
    await SERVICE.expect_serving()


# The last ones: wrong tokens are counted for the whole network of this client.


async def check_three_wrong_tokens_close_the_connection():
    wrong = "A" * 43
    for headers, answer in [
        (SERVICE.connect_udp(well_known_path(HOST, 9), ("authorization", f"Bearer {wrong}")), "401"),
        (SERVICE.connect(f"{HOST}:9", wrong), "407"),
    ]:
        async with SERVICE.connection() as peer:
            for _ in range(2):
                response = await peer.response(peer.request(headers))
                expect("the status", response[0], (":status", answer))
            peer.request(headers)
            expect("the code", await peer.until_closed(), ErrorCode.H3_NO_ERROR)
        await SERVICE.expect_serving()


if __name__ == "__main__":
    run_checks(checks_of(globals()))
