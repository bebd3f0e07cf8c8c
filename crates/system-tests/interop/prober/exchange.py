"""Sending datagrams to one address and keeping what comes back, each with its time."""

import asyncio
import contextlib
import socket
import time

UDP_PAYLOAD_BYTES_MAX = 65507


class Link:
    """A UDP socket of its own towards one address."""

    def __init__(self, target):
        # What came, as (seconds after the last datagram went, bytes); a refusal by ICMP is None instead of bytes.
        self.heard = []
        self.sent_at = time.monotonic()
        self._taken = 0
        self._news = asyncio.Event()
        family = socket.AF_INET6 if ":" in target[0] else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.connect(target)
        asyncio.get_running_loop().add_reader(self._socket, self._receive)

    def close(self):
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def send(self, *datagrams):
        for datagram in datagrams:
            # A refusal of an earlier datagram is told here, too; this one has gone all the same at the second try.
            with contextlib.suppress(ConnectionRefusedError):
                self._socket.send(datagram)
        self.sent_at = time.monotonic()

    def take_heard(self):
        """What came since this was asked last."""
        heard = self.heard[self._taken :]
        self._taken = len(self.heard)
        return heard

    async def wait(self, seconds):
        """Lets so much time pass."""
        await asyncio.sleep(seconds)

    async def next_turn(self, first, quiet):
        """Waits until something came, `first` seconds at most, and nothing more for `quiet` seconds; gives it."""
        start = len(self.heard)
        limit = first
        while True:
            self._news.clear()
            try:
                await asyncio.wait_for(self._news.wait(), limit)
            except TimeoutError:
                return [data for _, data in self.heard[start:] if data is not None]
            limit = quiet

    def _receive(self):
        try:
            while True:
                data = self._socket.recv(UDP_PAYLOAD_BYTES_MAX)
                self.heard.append((time.monotonic() - self.sent_at, data))
        except ConnectionRefusedError:
            self.heard.append((time.monotonic() - self.sent_at, None))
        except BlockingIOError:
            pass
        self._news.set()
