"""As much of a server as signing in takes, over real sockets and TLS: MS-TDS's PRELOGIN, LOGIN7, an error.

It shows that what a user's password travels in is encrypted, and with whom; nothing else about SQL Server.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

HEADER = struct.Struct(">BBHHBB")
NOT_SUPPORTED, ON = 0x02, 0x01
LOGIN7, PRELOGIN, REPLY = 0x10, 0x12, 0x04


def certificate(folder: Path, name: str) -> Path:
    """Makes a file with a key and a certificate of its own for a name; it is its own authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = folder / f"{name}.pem"
    file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        + made.public_bytes(serialization.Encoding.PEM)
    )
    return file


class TdsServer:
    """Lets nobody in, with error 18456, once.

    Args:
        file: Its key and certificate; none for a server that does not encrypt.
        hangs_up: Whether it closes the connection instead of answering whoever signs in.

    Attributes:
        seen: The bytes that came in before anything was encrypted.
        login: What it was sent to sign in.
    """

    def __init__(self, file: Path | None, *, hangs_up: bool = False) -> None:
        self.seen, self.login = b"", b""
        self._hangs_up = hangs_up
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if file else None
        if self._context and file:
            self._context.load_cert_chain(file)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(10)
        self.port: int = self._listener.getsockname()[1]
        self._thread = Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._listener.close()
        self._thread.join(10)

    def _serve(self) -> None:
        try:
            with self._listener.accept()[0] as connection:
                connection.settimeout(10)
                self._sign_in(connection)
        except OSError:
            pass  # the client has turned away

    def _sign_in(self, connection: socket.socket) -> None:
        kind, payload = self._packet(connection)
        assert kind == PRELOGIN
        self._send(connection, REPLY, _agreeing(payload, ON if self._context else NOT_SUPPORTED))
        if self._context is None:
            self._answer(*self._packet(connection), connection.sendall)
            return
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = self._context.wrap_bio(incoming, outgoing, server_side=True)
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                if outgoing.pending:
                    self._send(connection, PRELOGIN, outgoing.read())
                incoming.write(self._packet(connection)[1])
        self._send(connection, PRELOGIN, outgoing.read())
        data = b""
        while len(data) < HEADER.size or len(data) < HEADER.unpack(data[: HEADER.size])[2]:
            try:
                data += tls.read(1 << 16)
            except ssl.SSLWantReadError:
                incoming.write(connection.recv(1 << 16))

        def send(reply: bytes) -> None:
            tls.write(reply)
            connection.sendall(outgoing.read())

        self._answer(data[0], data[HEADER.size :], send)

    def _answer(self, kind: int, payload: bytes, send: Callable[[bytes], object]) -> None:
        assert kind == LOGIN7
        self.login = payload
        if self._hangs_up:
            return
        text = "Login failed for user 'scott'."
        error = struct.pack("<iBB", 18456, 1, 14) + struct.pack("<H", len(text)) + text.encode("utf-16-le")
        error += b"\0\0" + struct.pack("<i", 1)
        tokens = b"\xaa" + struct.pack("<H", len(error)) + error + b"\xfd" + struct.pack("<HHq", 2, 0, 0)
        send(HEADER.pack(REPLY, 1, HEADER.size + len(tokens), 0, 1, 0) + tokens)

    def _packet(self, connection: socket.socket) -> tuple[int, bytes]:
        header = self._exactly(connection, HEADER.size)
        return header[0], self._exactly(connection, HEADER.unpack(header)[2] - HEADER.size)

    def _exactly(self, connection: socket.socket, size: int) -> bytes:
        found = b""
        while len(found) < size:
            part = connection.recv(size - len(found))
            if not part:
                raise ConnectionError
            found += part
        self.seen += found
        return found

    @staticmethod
    def _send(connection: socket.socket, kind: int, payload: bytes) -> None:
        connection.sendall(HEADER.pack(kind, 1, HEADER.size + len(payload), 0, 1, 0) + payload)


def _agreeing(payload: bytes, answer: int) -> bytes:
    """Returns a PRELOGIN as it came, but for what it says of encryption."""
    at = 0
    while payload[at] != 0xFF:
        token, offset, _ = struct.unpack_from(">BHH", payload, at)
        if token == 1:
            return payload[:offset] + bytes([answer]) + payload[offset + 1 :]
        at += 5
    return payload


def scrambled(password: str) -> bytes:
    """Returns a password as LOGIN7 has it, which is no encryption."""
    return bytes((((byte << 4) | (byte >> 4)) & 0xFF) ^ 0xA5 for byte in password.encode("utf-16-le"))
