"""Messages over a socket, each of which shows that its sender knows a secret.

Both ends draw a random number, and make a key of the secret and both numbers. Each message carries its
HMAC-SHA-256 under that key, with the role of its sender and its number in the connection. So no message can
be forged, changed, repeated, left out, kept for another connection, or sent back to where it came from.
Messages are not encrypted.
"""

from __future__ import annotations

import secrets
import socket
from contextlib import suppress
from hmac import compare_digest, digest
from time import monotonic
from typing import Literal

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
"""The most bytes of one message."""

Role = Literal[b"leader", b"group"]

_HASH = "sha256"
_DIGEST_BYTES = 32
_NONCE_BYTES = 32
_PURPOSE = b"outbox control channel 1"


class NotAuthentic(ConnectionError):  # noqa: N818 - says what the other end is
    """The other end does not know the secret, or what it sent was changed on its way."""


class Wire:
    """One end of a connection. :meth:`allow` says how long all that follows may take."""

    def __init__(self, peer: socket.socket, role: Role, secret: bytes) -> None:
        self._peer = peer
        self._role: Role = role
        self._other: Role = b"group" if role == b"leader" else b"leader"
        self._secret = secret
        self._key = b""
        self._sent = self._received = 0
        self._until = monotonic()

    def allow(self, seconds: float) -> None:
        """Gives all calls from now on so many seconds together."""
        self._until = monotonic() + seconds

    def shake_hands(self) -> None:
        """Makes the key of this connection, and makes sure that the other end can.

        A group proves itself first. Until it has, the leader sends it a random number and nothing else.
        """
        mine = secrets.token_bytes(_NONCE_BYTES)
        self._write(mine)
        theirs = self._read(_NONCE_BYTES)
        nonces = mine + theirs if self._role == b"leader" else theirs + mine
        self._key = digest(self._secret, _PURPOSE + nonces, _HASH)
        if self._role == b"group":
            self.send(b"")
            self.receive(0)
        else:
            self.receive(0)
            self.send(b"")

    def send(self, message: bytes) -> None:
        """Sends a message; raises as :meth:`shake_hands`."""
        length = len(message).to_bytes(4)
        self._write(length + self._proof(self._role, self._sent, length + message) + message)
        self._sent += 1

    def receive(self, most: int = MAX_MESSAGE_BYTES) -> bytes:
        """Receives a message of at most so many bytes; raises as :meth:`shake_hands`."""
        length = self._read(4)
        if int.from_bytes(length) > most:
            raise NotAuthentic(f"a message of {int.from_bytes(length)} bytes, where {most} are allowed")
        proof = self._read(_DIGEST_BYTES)
        message = self._read(int.from_bytes(length))
        if not compare_digest(proof, self._proof(self._other, self._received, length + message)):
            raise NotAuthentic("the other end does not know the secret")
        self._received += 1
        return message

    def hang_up(self) -> None:
        """Ends the connection, and waits for the peer in other threads, which then close it.

        Whoever closes a connection that another thread waits for frees its descriptor: the next connection
        may get it, and that thread would read what belongs to the other one.
        """
        with suppress(OSError):  # it is closed, or the peer has ended it already
            self._peer.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Closes the connection. Only the thread that uses it may do so; others hang up."""
        self.hang_up()
        self._peer.close()

    def _proof(self, role: Role, number: int, framed: bytes) -> bytes:
        return digest(self._key, role + b"\0" + number.to_bytes(8) + framed, _HASH)

    def _write(self, message: bytes) -> None:
        self._peer.settimeout(self._left())
        self._peer.sendall(message)

    def _read(self, length: int) -> bytes:
        read = bytearray()
        while len(read) < length:
            self._peer.settimeout(self._left())
            more = self._peer.recv(length - len(read))
            if not more:
                raise EOFError("the other end has closed the connection")
            read += more
        return bytes(read)

    def _left(self) -> float:
        left = self._until - monotonic()
        if left <= 0:
            raise TimeoutError("no answer in time")
        return left
