"""A real etcd server as a child process."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from urllib.request import ProxyHandler, build_opener

from outbox_servers.services.cache import Progress, cached_folder, logged
from outbox_servers.services.debian import Suite, architecture, loader_command, unpack_programs
from outbox_servers.services.external import Etcd
from outbox_servers.services.process import ServerProcess, ServiceError, free_port
from outbox_servers.services.service import Service

_SUITE = Suite("Debian", "bookworm")
_PACKAGES = ("etcd-server", "libc6")


@dataclass(frozen=True)
class Installation:
    """An executable etcd.

    Attributes:
        command: The program, after its loader if it needs one.
        version: Its version, ``3.4.23`` for example.
    """

    command: tuple[str, ...]
    version: str


def find_installation(progress: Progress = logged) -> Installation:
    """Returns the etcd on ``PATH``, or else that of Debian's packages, fetched once.

    Raises:
        ServiceError: Neither is available; the message says why.
    """
    if program := shutil.which("etcd"):
        with suppress(ServiceError):
            return _installation((program,))

    def build(folder: Path) -> None:
        unpack_programs(_PACKAGES, _SUITE, folder, re.compile("usr/bin/etcd$"), progress)
        _unpacked(folder)  # a server that does not run is not kept

    try:
        return _unpacked(cached_folder(f"etcd-{_SUITE.name}-{architecture()[0]}", build, progress=progress))
    except ServiceError as error:
        raise ServiceError(f"etcd could not be fetched, and is not installed here: {error}") from error


class EtcdServer(Service, Etcd):
    """A cluster of one member, on 127.0.0.1, without TLS.

    Args:
        folder: The folder of data and log; by default a new temporary folder.
        installation: The program; by default, as ``find_installation`` finds it.
        progress: Called for downloads and the start.
    """

    title: ClassVar[str] = "etcd"
    port_taken: ClassVar[str] = "address already in use"

    def __init__(
        self,
        *,
        folder: Path | None = None,
        installation: Installation | None = None,
        progress: Progress = logged,
    ) -> None:
        super().__init__(folder)
        self._installation = installation
        self._progress = progress
        self._peer_port: int | None = None

    @property
    def endpoint(self) -> str:
        """The address for clients, ``127.0.0.1:port``.

        Raises:
            ServiceError: The server was never started.
        """
        return f"127.0.0.1:{self.port}"

    def _choose_ports(self) -> None:
        super()._choose_ports()
        self._peer_port = free_port()

    def _launch(self) -> ServerProcess:
        installation = self._installation = self._installation or find_installation(self._progress)
        self._progress(f"Starting etcd {installation.version} on {self.endpoint}")
        client, peer = f"http://{self.endpoint}", f"http://127.0.0.1:{self._peer_port}"
        options = {
            "name": "default",
            "data-dir": str(self.folder / "data"),
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"default={peer}",
        }
        return ServerProcess(
            self.title,
            [*installation.command, *(f"--{name}={value}" for name, value in options.items())],
            log=self.log,
            environment={},  # etcd refuses variables that its options override
            orphan_folder=self._orphan_folder,
        )

    def _ready(self) -> bool:
        with suppress(OSError, ValueError), _open(f"http://{self.endpoint}/health", timeout=1) as answer:
            return bool(json.load(answer)["health"] == "true")
        return False


# A proxy that the environment names is not for this machine.
_open = build_opener(ProxyHandler({})).open


def _unpacked(folder: Path) -> Installation:
    return _installation((*loader_command(folder), str(folder / "usr/bin/etcd")))


def _installation(command: tuple[str, ...]) -> Installation:
    try:
        done = subprocess.run([*command, "--version"], check=False, capture_output=True, text=True, env={})  # noqa: S603 - the server that was found
    except OSError as error:
        raise ServiceError(f"{command[-1]} does not run: {error}") from error
    told = re.search(r"etcd Version: (\S+)", done.stdout)
    if told is None:
        raise ServiceError(f"{command[-1]} does not run: {done.stdout[-500:]}{done.stderr[-1500:]}")
    return Installation(command, told[1])
