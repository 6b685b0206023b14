"""A socket for the driver: TLS within TDS, its own time-outs, and the driver's errors.

The driver encrypts with a library that has changed its interface (pyOpenSSL 26.2), and by default not at
all. The dialect therefore passes this socket to the driver (parameter ``sock``). It has negotiated
encryption with the server already, as MS-TDS specifies ("PRELOGIN", "Sent Initial PRELOGIN Packet State"):
the handshake goes in packets of that type, and everything after it through TLS 1.2. The socket answers
the driver's own PRELOGIN with the server's answer to ours, except that it reports no encryption.
"""

from __future__ import annotations

import socket
import ssl
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import pytds

PRELOGIN: Final = 0x12
REPLY: Final = 0x04
HEADER: Final = struct.Struct(">BBHHBB")
PACKET: Final = 4096

_VERSION, _ENCRYPTION, _INSTANCE, _THREAD, _END = 0x00, 0x01, 0x02, 0x03, 0xFF
_ON, _NOT_SUPPORTED, _REQUIRED = 0x01, 0x02, 0x03


class TdsSocket:
    """What the driver uses as a socket.

    Args:
        address: Host and port.
        timeout: How long connecting, and each wait while signing in, may take, in seconds.

    Raises:
        pytds.InterfaceError: The server does not answer.
    """

    def __init__(self, address: tuple[str, int], timeout: float) -> None:
        self._tls: ssl.SSLObject | None = None
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._answer = b""
        self._canned = b""
        self._signing_in = True
        self._around = sys.exc_info()[1]
        with _told():
            self._socket = socket.create_connection(address, timeout)

    def encrypt(self, context: ssl.SSLContext, name: str) -> None:
        """Negotiates TLS with the server, and verifies its certificate for ``name``."""
        context.maximum_version = ssl.TLSVersion.TLSv1_2  # what follows a newer handshake fits no packets
        self._send_packets(_prelogin())
        self._answer, agreed = _without_encryption(self._packet())
        if agreed not in (_ON, _REQUIRED):
            self.close(force=True)
            raise pytds.Error("the server does not encrypt; say Encrypt=no if that is meant")
        tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=name)
        with _told():
            while True:
                try:
                    tls.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    self._send_packets(self._outgoing.read())
                    self._incoming.write(self._packet())
        if self._outgoing.pending:
            self._send_packets(self._outgoing.read())
        self._tls = tls

    def ready(self, timeout: float) -> None:
        """Ends the login; from now on each wait for the server may take ``timeout`` seconds."""
        self._signing_in = False
        self._socket.settimeout(timeout)

    def sendall(self, data: Any, _flags: int = 0) -> None:
        """Sends bytes."""
        if self._answer:  # the driver's own PRELOGIN
            self._canned = HEADER.pack(REPLY, 1, HEADER.size + len(self._answer), 0, 1, 0) + self._answer
            self._answer = b""
            return
        with self._lost():
            if self._tls is None:
                self._socket.sendall(data)
                return
            view = memoryview(bytes(data))
            while view:
                view = view[self._tls.write(view) :]
            self._socket.sendall(self._outgoing.read())

    def recv(self, size: int, _flags: int = 0) -> bytes:
        """Receives up to ``size`` bytes; none when the server has closed the connection."""
        if self._canned:
            found, self._canned = self._canned[:size], self._canned[size:]
            return found
        with self._lost():
            if self._tls is None:
                return self._socket.recv(size)
            while True:
                try:
                    return self._tls.read(size)
                except ssl.SSLWantReadError:
                    data = self._socket.recv(1 << 16)
                    if not data:
                        return b""
                    self._incoming.write(data)
                except ssl.SSLZeroReturnError:
                    return b""

    def recv_into(self, buffer: Any, size: int = 0, _flags: int = 0) -> int:
        """Receives into a buffer; returns how many bytes."""
        found = self.recv(size or len(buffer))
        buffer[: len(found)] = found
        return len(found)

    def settimeout(self, _timeout: float | None) -> None:
        """Does nothing: the driver would disable the time-out for a commit."""

    def gettimeout(self) -> float | None:
        """Returns how long a wait may take."""
        return self._socket.gettimeout()

    def setsockopt(self, *option: Any) -> None:
        """Passes an option on."""
        with self._lost():
            self._socket.setsockopt(*option)

    def shutdown(self, _how: int = 0) -> None:
        """Disconnects."""
        self.close(force=True)

    def close(self, *, force: bool = False) -> None:
        """Disconnects.

        Raises:
            pytds.Error: The driver is about to follow a redirection, which it would do without encryption.
        """
        self._socket.close()
        redirected = self._signing_in and sys.exc_info()[1] is self._around and not force
        if redirected:
            raise pytds.Error(
                "the server redirects to another, which is not supported: set its connection policy to Proxy"
            )

    @contextmanager
    def _lost(self) -> Iterator[None]:
        try:
            with _told():
                yield
        except pytds.InterfaceError:
            with suppress(OSError):
                self._socket.close()
            raise

    def _send_packets(self, payload: bytes) -> None:
        room = PACKET - HEADER.size
        with _told():
            for start in range(0, len(payload), room):
                part = payload[start : start + room]
                last = start + room >= len(payload)
                self._socket.sendall(HEADER.pack(PRELOGIN, last, HEADER.size + len(part), 0, 1, 0) + part)

    def _packet(self) -> bytes:
        """Receives one message's payload."""
        payload, status = b"", 0
        while not status & 1:
            _, status, length, *_ = HEADER.unpack(self._exactly(HEADER.size))
            payload += self._exactly(length - HEADER.size)
        return payload

    def _exactly(self, size: int) -> bytes:
        found = b""
        with _told():
            while len(found) < size:
                part = self._socket.recv(size - len(found))
                if not part:
                    raise ConnectionError("the server closed the connection")
                found += part
        return found


@contextmanager
def _told() -> Iterator[None]:
    """Turns errors of the network into those of the driver."""
    try:
        yield
    except OSError as error:
        text = "no answer in time" if isinstance(error, TimeoutError) else error.strerror or str(error)
        raise pytds.InterfaceError(f"connection lost: {text}") from error


def _prelogin() -> bytes:
    options = {
        _VERSION: bytes(6),
        _ENCRYPTION: bytes([_ON]),
        _INSTANCE: b"\0",
        _THREAD: bytes(4),
    }
    at, table, data = 5 * len(options) + 1, b"", b""
    for token, value in options.items():
        table += struct.pack(">BHH", token, at + len(data), len(value))
        data += value
    return table + bytes([_END]) + data


def _without_encryption(answer: bytes) -> tuple[bytes, int]:
    """Returns the server's PRELOGIN without encryption, and the encryption that it contained."""
    at = 0
    while answer[at : at + 1] not in (b"", bytes([_END])):
        token, offset, _ = struct.unpack_from(">BHH", answer, at)
        if token == _ENCRYPTION:
            return answer[:offset] + bytes([_NOT_SUPPORTED]) + answer[offset + 1 :], answer[offset]
        at += 5
    return answer, _NOT_SUPPORTED
