"""A real nginx as a child process: a proxy before servers of tests."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from outbox_servers.services.cache import Progress, cached_folder, logged
from outbox_servers.services.debian import Suite, architecture, loader_command, unpack_programs
from outbox_servers.services.process import ServerProcess, ServiceError
from outbox_servers.services.service import WebService

if TYPE_CHECKING:
    from pathlib import Path

_SUITE = Suite("Debian", "bookworm")
_PACKAGES = ("nginx", "libc6")
_TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


@dataclass(frozen=True)
class Installation:
    """An executable nginx.

    Attributes:
        command: Its program, after its loader if it needs one.
        version: Its version, ``1.22.1`` for example.
    """

    command: tuple[str, ...]
    version: str


def find_installation(progress: Progress = logged) -> Installation:
    """Returns the nginx on ``PATH``, or else that of Debian's package, fetched once.

    Raises:
        ServiceError: Neither is available; the message says why.
    """
    if program := shutil.which("nginx"):
        with suppress(ServiceError):
            return _installation((program,))

    def build(folder: Path) -> None:
        unpack_programs(_PACKAGES, _SUITE, folder, re.compile("usr/sbin/nginx$"), progress)
        _unpacked(folder)  # a server that does not run is not kept

    try:
        return _unpacked(cached_folder(f"nginx-{_SUITE.name}-{architecture()[0]}", build, progress=progress))
    except ServiceError as error:
        raise ServiceError(f"nginx could not be fetched, and is not installed here: {error}") from error


class NginxServer(WebService):
    """A server on 127.0.0.1, in one process.

    Args:
        server: What it does: directives of its ``server`` block, such as ``location``, without ``listen``.
        http: Directives of the block around it, such as ``upstream``.
        folder: The folder of settings and log; by default a new temporary folder.
        installation: The program; by default, as ``find_installation`` finds it.
        progress: Called for downloads and the start.
    """

    title: ClassVar[str] = "nginx"
    port_taken: ClassVar[str] = "Address already in use"

    def __init__(
        self,
        server: str,
        *,
        http: str = "",
        folder: Path | None = None,
        installation: Installation | None = None,
        progress: Progress = logged,
    ) -> None:
        super().__init__(folder)
        self._server = server
        self._http = http
        self._installation = installation
        self._progress = progress

    def _launch(self) -> ServerProcess:
        installation = self._installation = self._installation or find_installation(self._progress)
        self._progress(f"Starting nginx {installation.version} on {self.url}")
        settings = self.folder / "nginx.conf"
        settings.write_text(self._settings())
        options = ["-e", "stderr", "-p", str(self.folder), "-c", str(settings)]
        return ServerProcess(
            self.title, [*installation.command, *options], log=self.log, orphan_folder=self._orphan_folder
        )

    def _settings(self) -> str:
        folders = "\n".join(f"{name}_temp_path {self.folder}/{name};" for name in _TEMPORARY)
        return f"""
daemon off;
master_process off;
pid {self.folder}/nginx.pid;
events {{}}
http {{
access_log off;
{folders}
{self._http}
server {{
listen 127.0.0.1:{self.port};
{self._server}
}}
}}
"""

    def _ready(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False


def _unpacked(folder: Path) -> Installation:
    return _installation((*loader_command(folder), str(folder / "usr/sbin/nginx")))


def _installation(command: tuple[str, ...]) -> Installation:
    try:
        done = subprocess.run([*command, "-v"], check=False, capture_output=True, text=True)  # noqa: S603 - the program that was found
    except OSError as error:
        raise ServiceError(f"{command[-1]} does not run: {error}") from error
    told = re.search(r"nginx/(\d\S*)", done.stdout + done.stderr)
    if told is None:
        raise ServiceError(f"{command[-1]} does not run: {done.stdout[-500:]}{done.stderr[-1500:]}")
    return Installation(command, told[1])
