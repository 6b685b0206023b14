"""A server of S3 behind a proxy: it can refuse, and it can hang."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import s3fs
from moto.server import ThreadedMotoServer

from .faults.proxy import Proxy

CLOSED_PORT = 1
"""On which nothing listens."""
SECRET = "not-to-be-logged"


class S3:
    """One bucket of the server."""

    def __init__(self, bucket: str) -> None:
        self._server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
        self._server.start()
        self._port = self._served = self._server.get_host_and_port()[1]
        self._proxy = Proxy(lambda: self._port)
        self.store = f"s3://{bucket}/claims"
        self.files = s3fs.S3FileSystem(**self.options, skip_instance_cache=True)
        self.files.mkdir(bucket)

    @property
    def options(self) -> Mapping[str, Any]:
        """What fsspec passes to the library."""
        endpoint = f"http://127.0.0.1:{self._proxy.port}"
        return {"key": "reader", "secret": SECRET, "client_kwargs": {"endpoint_url": endpoint}}

    def refuse(self) -> None:
        """Resets all connections, and those that come."""
        self._port = CLOSED_PORT
        self._proxy.cut()

    def hang(self) -> None:
        """Answers nothing."""
        self._proxy.silence()

    def answer(self) -> None:
        """Answers again."""
        self._port = self._served
        self._proxy.speak()

    def objects(self) -> list[str]:
        """Returns the names of all objects."""
        self.files.invalidate_cache()
        return [name.rpartition("/")[2] for name in self.files.find(self.store)]

    def close(self) -> None:
        """Ends the server."""
        self._proxy.close()
        self._server.stop()
