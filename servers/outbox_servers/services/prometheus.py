"""A real Prometheus server as a child process, and its tool that checks rules."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import ProxyHandler, build_opener

from outbox_servers.services.cache import Progress, cached_folder, logged
from outbox_servers.services.debian import Suite, architecture, loader_command, unpack_programs
from outbox_servers.services.process import ServerProcess, ServiceError
from outbox_servers.services.service import WebService

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_SUITE = Suite("Debian", "bookworm")
_PACKAGES = ("prometheus", "libc6")
_ANSWER_SECONDS = 10.0
"""The longest that an answer may take."""


@dataclass(frozen=True)
class Installation:
    """An executable Prometheus.

    Attributes:
        server: The server's program, after its loader if it needs one.
        tool: The same for ``promtool``.
        version: Their version, ``2.42.0`` for example.
    """

    server: tuple[str, ...]
    tool: tuple[str, ...]
    version: str


@dataclass(frozen=True)
class Sample:
    """One series of the answer to a query.

    Attributes:
        labels: Its labels; the name of a metric is ``__name__``.
        value: Its value.
    """

    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True)
class Alert:
    """An alert that is not inactive.

    Attributes:
        name: The name of its rule.
        labels: All labels.
        annotations: The rule's texts, with the values filled in.
        firing: Whether it fires; otherwise it is pending.
    """

    name: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    firing: bool


def find_installation(progress: Progress = logged) -> Installation:
    """Returns the Prometheus on ``PATH``, or else that of Debian's package, fetched once.

    Raises:
        ServiceError: Neither is available; the message says why.
    """
    if (server := shutil.which("prometheus")) and (tool := shutil.which("promtool")):
        with suppress(ServiceError):
            return _installation((server,), (tool,))

    def build(folder: Path) -> None:
        unpack_programs(_PACKAGES, _SUITE, folder, re.compile("usr/bin/(prometheus|promtool)$"), progress)
        _unpacked(folder)  # a server that does not run is not kept

    try:
        name = f"prometheus-{_SUITE.name}-{architecture()[0]}"
        return _unpacked(cached_folder(name, build, progress=progress))
    except ServiceError as error:
        raise ServiceError(f"Prometheus could not be fetched, and is not installed here: {error}") from error


class PrometheusServer(WebService):
    """A server on 127.0.0.1, which scrapes targets and evaluates rules.

    Args:
        targets: Job → the addresses (``host:port``) whose ``/metrics`` it scrapes; none needs to answer yet.
        rules: Files of rules.
        interval: Seconds between two scrapes, and between two evaluations of the rules.
        folder: The folder of data and log; by default a new temporary folder.
        installation: The programs; by default, as ``find_installation`` finds them.
        progress: Called for downloads and the start.
    """

    title: ClassVar[str] = "Prometheus"
    port_taken: ClassVar[str] = "address already in use"

    def __init__(
        self,
        targets: Mapping[str, Sequence[str]],
        *,
        rules: Sequence[Path] = (),
        interval: float = 1.0,
        folder: Path | None = None,
        installation: Installation | None = None,
        progress: Progress = logged,
    ) -> None:
        super().__init__(folder)
        self._targets = targets
        self._rules = [str(each.resolve()) for each in rules]
        self._interval = f"{round(interval * 1000)}ms"
        self._installation = installation
        self._progress = progress

    def query(self, expression: str) -> list[Sample]:
        """Returns the present value of an expression: a series each, or one without labels for a scalar.

        Raises:
            ServiceError: The expression is wrong, or the server does not answer within ten seconds.
        """
        data = self._ask("query", query=expression)
        if data["resultType"] == "scalar":
            return [Sample({}, float(data["result"][1]))]
        return [Sample(each["metric"], float(each["value"][1])) for each in data["result"]]

    def alerts(self) -> list[Alert]:
        """Returns the alerts that fire or are pending.

        Raises:
            ServiceError: The server does not answer within ten seconds.
        """
        return [
            Alert(each["labels"]["alertname"], each["labels"], each["annotations"], each["state"] == "firing")
            for each in self._ask("alerts")["alerts"]
        ]

    def _ask(self, path: str, **parameters: str) -> Any:
        try:
            with _open(
                f"{self.url}/api/v1/{path}?{urlencode(parameters)}", timeout=_ANSWER_SECONDS
            ) as answer:
                return json.load(answer)["data"]
        except HTTPError as error:
            with error:
                raise ServiceError(f"{self.title} refuses {path} {parameters}: {error.read()!r}") from error
        except (OSError, ValueError) as error:
            raise ServiceError(f"{self.title} does not answer: {error}") from error

    def _launch(self) -> ServerProcess:
        installation = self._installation = self._installation or find_installation(self._progress)
        self._progress(f"Starting Prometheus {installation.version} on {self.url}")
        settings = self.folder / "prometheus.json"
        settings.write_text(json.dumps(self._settings()))  # JSON is YAML
        options = {
            "config.file": str(settings),
            "storage.tsdb.path": str(self.folder / "data"),
            "web.listen-address": f"127.0.0.1:{self.port}",
        }
        return ServerProcess(
            self.title,
            [*installation.server, *(f"--{name}={value}" for name, value in options.items())],
            log=self.log,
            orphan_folder=self._orphan_folder,
        )

    def _settings(self) -> dict[str, Any]:
        return {
            "global": {
                "scrape_interval": self._interval,
                "scrape_timeout": self._interval,
                "evaluation_interval": self._interval,
            },
            "rule_files": self._rules,
            "scrape_configs": [
                {"job_name": job, "static_configs": [{"targets": list(addresses)}]}
                for job, addresses in self._targets.items()
            ],
        }

    def _ready(self) -> bool:
        with suppress(OSError), _open(f"{self.url}/-/ready", timeout=1):
            return True
        return False


# A proxy that the environment names is not for this machine.
_open = build_opener(ProxyHandler({})).open


def _unpacked(folder: Path) -> Installation:
    loader, programs = loader_command(folder), folder / "usr/bin"
    return _installation((*loader, str(programs / "prometheus")), (*loader, str(programs / "promtool")))


def _installation(server: tuple[str, ...], tool: tuple[str, ...]) -> Installation:
    versions = {_version(each) for each in (server, tool)}
    if len(versions) > 1:
        raise ServiceError(f"{server[-1]} and {tool[-1]} are of different versions: {sorted(versions)}")
    return Installation(server, tool, versions.pop())


def _version(command: tuple[str, ...]) -> str:
    try:
        done = subprocess.run([*command, "--version"], check=False, capture_output=True, text=True)  # noqa: S603 - the program that was found
    except OSError as error:
        raise ServiceError(f"{command[-1]} does not run: {error}") from error
    told = re.search(r"version (\d\S*)", done.stdout + done.stderr)
    if told is None:
        raise ServiceError(f"{command[-1]} does not run: {done.stdout[-500:]}{done.stderr[-1500:]}")
    return told[1]
