"""TLS in front of a PostgreSQL server whose build has none, as poolers and proxies of clouds provide it."""

from __future__ import annotations

import asyncio
import ssl
import struct
from contextlib import closing, suppress
from threading import Thread

from outbox_servers.certificates import Certificate

_ASKS_FOR_TLS, _ASKS_FOR_KERBEROS = struct.pack("!ii", 8, 80877103), struct.pack("!ii", 8, 80877104)


class TlsFront:
    """Listens on 127.0.0.1, with TLS for whoever asks for it, and passes on what is said.

    Args:
        port: The server's port on 127.0.0.1.

    Attributes:
        port: The port to connect to.
        encrypted: How many connections asked for TLS and came to it.
    """

    def __init__(self, port: int) -> None:
        self.encrypted = 0
        self._behind = port
        self._context: ssl.SSLContext | None = None
        self._loop = asyncio.new_event_loop()
        self._server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = int(self._server.sockets[0].getsockname()[1])
        self._thread = Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def present(self, certificate: Certificate) -> None:
        """Presents another certificate to connections from now on."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate.certificate, certificate.key)
        self._context = context

    def close(self) -> None:
        """Stops listening, and ends all connections."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError), closing(writer):
            first = await reader.readexactly(8)
            if first == _ASKS_FOR_KERBEROS:
                writer.write(b"N")
                first = await reader.readexactly(8)
            if first == _ASKS_FOR_TLS and self._context is not None:
                writer.write(b"S")
                await writer.drain()
                await writer.start_tls(self._context)
                self.encrypted += 1
                first = b""
            behind_reader, behind_writer = await asyncio.open_connection("127.0.0.1", self._behind)
            with closing(behind_writer):
                behind_writer.write(first)
                await asyncio.gather(_pass_on(reader, behind_writer), _pass_on(behind_reader, writer))


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()
