"""A program that tries what another user of the machine can do to the ports of a Spark without its secrets.

Reads ``{"blocks": …, "ports": […]}`` from standard input. Where it may, it becomes nobody first. It asks
each port, as Spark's own processes do, for blocks, for a chunk and a stream, and to handle a message; and as
PySpark does, for a call into the JVM and for a worker. Writes port → answers in latin-1.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401 - connecting needs it, which nobody may be forbidden to read
import json
import os
import socket
import struct
import sys
from concurrent.futures.thread import ThreadPoolExecutor  # while everything can still be read
from contextlib import suppress

NOBODY = 65534
SECONDS = 10.0
"""How long a JVM on a busy machine may take for its first answer; ports that say nothing take as long."""
CHUNK_FETCH, RPC, STREAM, ONE_WAY = 0, 3, 6, 9
"""Kinds of Spark's messages."""
RPC_ANSWER = 4
OPEN_BLOCKS = b"\x00"
JAVA_OBJECT = bytes.fromhex("aced0005") + b"no object"


def text(value: str) -> bytes:
    return struct.pack(">i", len(value)) + value.encode()


def message(kind: int, head: bytes, body: bytes = b"") -> bytes:
    return struct.pack(">qB", 9 + len(head) + len(body), kind) + head + body


def rpc(body: bytes) -> bytes:
    return message(RPC, struct.pack(">qi", 1, len(body)), body)


def one_way(body: bytes) -> bytes:
    return message(ONE_WAY, struct.pack(">i", len(body)), body)


def exact(peer: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        if not (more := peer.recv(min(length - len(data), 1 << 16))):
            raise EOFError
        data += more
    return data


def receive(peer: socket.socket) -> tuple[int, bytes]:
    length, kind = struct.unpack(">qB", exact(peer, 9))
    return kind, exact(peer, length - 9)


def block(port: int, name: str) -> bytes:
    """Returns a block of Spark's, or what was answered instead."""
    with socket.create_connection(("127.0.0.1", port), SECONDS) as peer:
        peer.sendall(rpc(OPEN_BLOCKS + text("app") + text("executor") + struct.pack(">i", 1) + text(name)))
        kind, answer = receive(peer)
        if kind == RPC_ANSWER:
            stream = struct.unpack(">q", answer[13:21])[0]
            peer.sendall(message(CHUNK_FETCH, struct.pack(">qi", stream, 0)))
            kind, answer = receive(peer)
        return answer


def answer_to(port: int, sent: bytes) -> bytes:
    """Returns all that a port answers until it closes the connection, or for some seconds."""
    answer = b""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), SECONDS) as peer:
        peer.sendall(sent)
        while more := peer.recv(1 << 16):
            answer += more
    return answer


def blocks_of(port: int, count: int) -> list[bytes]:
    found: list[bytes] = []
    with suppress(OSError, EOFError, struct.error):  # it does not speak Spark's protocol
        found.extend(block(port, f"broadcast_{number}_piece0") for number in range(count))
    return found


def answers(port: int, blocks: int) -> list[bytes]:
    attempts = [
        rpc(JAVA_OBJECT),
        one_way(JAVA_OBJECT),
        message(CHUNK_FETCH, struct.pack(">qi", 1000, 0)),
        message(STREAM, text("1000_0")),
        b"r\nu\njava.lang.System\nrj\ne\nc\nz:java.lang.System\ngetenv\ne\n",  # Py4J's protocol
        b"A\nwrong\ne\nc\nt\ngetenv\ne\n",
        text("wrong") + struct.pack(">i", 0) * 64,  # to a daemon of Python workers
    ]
    with ThreadPoolExecutor(1 + len(attempts)) as pool:
        found = pool.submit(blocks_of, port, blocks)
        said = pool.map(lambda attempt: answer_to(port, attempt), attempts)
        return [*found.result(), *said]


def main() -> None:
    asked = json.load(sys.stdin)
    if os.getuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    ports = asked["ports"]
    with ThreadPoolExecutor(len(ports)) as pool:
        found = list(pool.map(lambda port: answers(port, asked["blocks"]), ports))
    texts = {port: [each.decode("latin-1") for each in said] for port, said in zip(ports, found, strict=True)}
    json.dump({"uid": os.getuid(), "found": texts}, sys.stdout)


if __name__ == "__main__":
    main()
