"""A real Chromium without a window as a child process, which programs drive over its debugging protocol."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar
from urllib.request import ProxyHandler, build_opener

from outbox_servers.services.cache import Progress, cached_folder, logged
from outbox_servers.services.debian import Suite, architecture, unpack_programs
from outbox_servers.services.process import ServerProcess, ServiceError
from outbox_servers.services.service import WebService

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PROGRAM_VARIABLE = "OUTBOX_TEST_CHROMIUM"
"""The environment variable that names the program to use, wherever it is."""

_PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")

_SUITE = Suite("Debian", "bookworm")
_PACKAGES = ("chromium-headless-shell", "chromium-common", "fonts-dejavu-core")
# Chromium starts its children by the name of its own program, which would be the loader's: it needs the
# machine's loader, and thus the machine's C library.
_OF_THE_MACHINE = frozenset({"libc6"})
# One library keeps a library of its own in a folder of its own.
_WANTED = re.compile("usr/lib/chromium/|usr/share/fonts/|usr/lib/[^/]+/pulseaudio/")

_OPTIONS = (
    "--headless",
    # Its sandbox needs rights that a container seldom gives, and it shows the pages of tests alone.
    "--no-sandbox",
    "--disable-dev-shm-usage",  # which is small in a container
    "--disable-gpu",
    "--hide-scrollbars",
    "--mute-audio",
    "--no-first-run",
    "--no-proxy-server",  # what it shows is on this machine
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--force-color-profile=srgb",  # the same picture everywhere
    "--password-store=basic",
)


@dataclass(frozen=True)
class Installation:
    """An executable Chromium.

    Attributes:
        program: Its file.
        version: Its version, ``150.0.7871.100`` for example.
        fonts: The folder of the only fonts that it shall use; ``None`` for the machine's.
        libraries: The folders of the libraries that it needs, besides the machine's.
    """

    program: str
    version: str
    fonts: Path | None = None
    libraries: tuple[Path, ...] = ()


def find_installation(
    environment: Mapping[str, str] = os.environ, progress: Progress = logged
) -> Installation:
    """Returns the named program (``OUTBOX_TEST_CHROMIUM``), one on ``PATH``, or Debian's, fetched once.

    Raises:
        ServiceError: The named program does not run, or none is available; the message says why.
    """
    if named := environment.get(PROGRAM_VARIABLE):
        return _installation(named)
    for name in _PROGRAMS:
        if program := shutil.which(name, path=environment.get("PATH")):
            with suppress(ServiceError):
                return _installation(program)

    def build(folder: Path) -> None:
        unpack_programs(_PACKAGES, _SUITE, folder, _WANTED, progress, without=_OF_THE_MACHINE)
        _unpacked(folder)  # a program that does not run is not kept

    try:
        name = f"chromium-headless-{_SUITE.name}-{architecture()[0]}"
        return _unpacked(cached_folder(name, build, progress=progress))
    except ServiceError as error:
        raise ServiceError(
            f"Chromium could not be fetched: {error} Or install Chromium or Chrome on PATH "
            f"(apt-get install chromium), or name its program in {PROGRAM_VARIABLE}."
        ) from error


class ChromiumBrowser(WebService):
    """A browser without a window, with a profile of its own that is empty at first.

    It listens on 127.0.0.1 for clients of the Chrome DevTools protocol, such as Playwright
    (``connect_over_cdp``); any process of this machine can drive it.

    Args:
        folder: The folder of profile and log; by default a new temporary folder.
        installation: The program; by default, as ``find_installation`` finds it.
        progress: Called for downloads and the start.
    """

    title: ClassVar[str] = "Chromium"
    port_taken: ClassVar[str] = "Cannot start http server for devtools"

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

    def _launch(self) -> ServerProcess:
        installation = self._installation = self._installation or find_installation(progress=self._progress)
        self._progress(f"Starting Chromium {installation.version} on {self.url}")
        profile = self.folder / "profile"
        return ServerProcess(
            self.title,
            [
                installation.program,
                *_OPTIONS,
                f"--remote-debugging-port={self.port}",
                f"--user-data-dir={profile}",
                "about:blank",
            ],
            log=self.log,
            environment={**os.environ, "HOME": str(self.folder), **self._resources(installation)},
            orphan_folder=self._orphan_folder,
        )

    def _resources(self, installation: Installation) -> dict[str, str]:
        """Returns the variables with which the program finds what was unpacked with it."""
        variables = _variables(installation.libraries)
        if installation.fonts:
            settings = self.folder / "fonts.conf"
            settings.write_text(
                f"<fontconfig><dir>{installation.fonts}</dir><cachedir>{self.folder}/fonts</cachedir></fontconfig>"
            )
            variables["FONTCONFIG_FILE"] = str(settings)
        return variables

    def _ready(self) -> bool:
        with suppress(OSError), _open(f"{self.url}/json/version", timeout=1):
            return True
        return False


# A proxy that the environment names is not for this machine.
_open = build_opener(ProxyHandler({})).open


def _unpacked(folder: Path) -> Installation:
    _, triplet = architecture()
    libraries = folder / "usr/lib" / triplet
    places = (libraries, folder / "lib" / triplet, libraries / "pulseaudio")
    return _installation(
        str(folder / "usr/lib/chromium/chromium-headless-shell"),
        folder / "usr/share/fonts",
        tuple(each for each in places if each.is_dir()),
    )


def _installation(program: str, fonts: Path | None = None, libraries: tuple[Path, ...] = ()) -> Installation:
    try:
        done = subprocess.run(  # noqa: S603 - the browser that was found
            [program, "--version"],
            check=False,
            capture_output=True,
            text=True,
            env={**os.environ, **_variables(libraries)},
        )
    except OSError as error:
        raise ServiceError(f"{program} does not run: {error}") from error
    told = re.search(r"(?:Chromium|Chrome)\D* (\d+(?:\.\d+)+)", done.stdout)
    if told is None:
        raise ServiceError(f"{program} does not run: {done.stdout[-500:]}{done.stderr[-1500:]}")
    return Installation(program, told[1], fonts, libraries)


def _variables(libraries: tuple[Path, ...]) -> dict[str, str]:
    return {"LD_LIBRARY_PATH": os.pathsep.join(map(str, libraries))} if libraries else {}
