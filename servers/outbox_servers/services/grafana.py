"""A real Grafana as a child process, which shows dashboards of a Prometheus; no package index has it."""

from __future__ import annotations

import json
import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

from outbox_servers.services.cache import Progress, logged
from outbox_servers.services.process import ServerProcess, ServiceError
from outbox_servers.services.service import WebService

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HOME_VARIABLE = "GRAFANA_HOME"
"""The environment variable that names the folder of an unpacked Grafana."""

_COMMANDS = (("bin/grafana", "server"), ("bin/grafana-server",))
"""The program below its home, with its command: since Grafana 9.4, and before."""
_PARTS = ("conf/defaults.ini", "public/views/index.html")
"""What a home has besides."""
_ANSWER_SECONDS = 30.0
"""The longest that an answer may take."""

# The keys are sections and names of its file of settings.
_SETTINGS = {
    "AUTH_ANONYMOUS_ENABLED": "true",  # it listens on 127.0.0.1 alone
    "AUTH_ANONYMOUS_ORG_ROLE": "Admin",
    "AUTH_DISABLE_LOGIN_FORM": "true",
    # It asks nobody outside of this machine for anything.
    "ANALYTICS_REPORTING_ENABLED": "false",
    "ANALYTICS_CHECK_FOR_UPDATES": "false",
    "ANALYTICS_CHECK_FOR_PLUGIN_UPDATES": "false",
    "NEWS_NEWS_FEED_ENABLED": "false",
    "PLUGINS_PREINSTALL_DISABLED": "true",
    "PLUGINS_PLUGIN_ADMIN_ENABLED": "false",
    "SECURITY_DISABLE_GRAVATAR": "true",
    "LOG_MODE": "console",
}


@dataclass(frozen=True)
class Installation:
    """An executable Grafana.

    Attributes:
        home: Its folder.
        command: Its program, with the command that starts the server.
    """

    home: Path
    command: tuple[str, ...]


def find_installation(environment: Mapping[str, str] = os.environ) -> Installation:
    """Returns the Grafana in the folder that ``GRAFANA_HOME`` names.

    Raises:
        ServiceError: The variable is not set, or the folder is not that of a Grafana.
    """
    named = environment.get(HOME_VARIABLE)
    if not named:
        raise ServiceError(
            f"No package index has Grafana: unpack its archive (grafana.com/grafana/download), and name its "
            f"folder in {HOME_VARIABLE}. A package of your system has it in /usr/share/grafana."
        )
    home = Path(named).expanduser().resolve()
    if missing := [each for each in _PARTS if not (home / each).is_file()]:
        raise ServiceError(f"{HOME_VARIABLE}={named} is not the folder of a Grafana: it has no {missing[0]}.")
    for program, *command in _COMMANDS:
        if os.access(home / program, os.X_OK):
            return Installation(home, (str(home / program), *command))
    programs = " nor ".join(program for program, *_ in _COMMANDS)
    raise ServiceError(f"{HOME_VARIABLE}={named} is not the folder of a Grafana: it has neither {programs}.")


class GrafanaServer(WebService):
    """A server on 127.0.0.1 whose visitors need no account and may change everything.

    Args:
        prometheus: The address of a Prometheus, which becomes its default data source.
        dashboards: Folders whose dashboards, each with a ``uid``, it has read when it is ready.
        interval: Seconds between two scrapes of that Prometheus.
        folder: The folder of data and log; by default a new temporary folder.
        installation: The program; by default, as ``find_installation`` finds it.
        progress: Called for the start.
    """

    title: ClassVar[str] = "Grafana"
    port_taken: ClassVar[str] = "address already in use"

    def __init__(
        self,
        prometheus: str,
        dashboards: Sequence[Path] = (),
        *,
        interval: float = 1.0,
        folder: Path | None = None,
        installation: Installation | None = None,
        progress: Progress = logged,
    ) -> None:
        super().__init__(folder)
        self._prometheus = prometheus
        self._dashboards = [str(each.resolve()) for each in dashboards]
        files = (file for each in dashboards for file in each.rglob("*.json"))
        self._uids = [json.loads(file.read_text("utf-8"))["uid"] for file in files]
        self._interval = f"{interval:g}s"
        self._installation = installation
        self._progress = progress

    def get(self, path: str) -> Any:
        """Returns the answer of the API to a request, ``health`` for example.

        Raises:
            ServiceError: The server refuses it, or does not answer within 30 seconds.
        """
        return self._ask(path, None)

    def post(self, path: str, data: Any) -> Any:
        """Sends data to the API, and returns its answer.

        Raises:
            ServiceError: The server refuses them, or does not answer within 30 seconds.
        """
        return self._ask(path, json.dumps(data).encode())

    def _ask(self, path: str, data: bytes | None) -> Any:
        request = Request(f"{self.url}/api/{path}", data, {"Content-Type": "application/json"})  # noqa: S310 - its own address
        try:
            with _open(request, timeout=_ANSWER_SECONDS) as answer:
                return json.load(answer)
        except HTTPError as error:
            with error:
                raise ServiceError(f"{self.title} refuses {path}: {error.read()!r}") from error
        except (OSError, ValueError) as error:
            raise ServiceError(f"{self.title} does not answer: {error}") from error

    def _launch(self) -> ServerProcess:
        installation = self._installation = self._installation or find_installation()
        self._progress(f"Starting the Grafana of {installation.home} on {self.url}")
        provisioning = self._provision()
        settings = {
            **_SETTINGS,
            "PATHS_DATA": str(self.folder / "data"),
            "PATHS_LOGS": str(self.folder / "logs"),
            "PATHS_PLUGINS": str(self.folder / "plugins"),
            "PATHS_PROVISIONING": str(provisioning),
            "SERVER_HTTP_ADDR": "127.0.0.1",
            "SERVER_HTTP_PORT": str(self.port),
            "SECURITY_ADMIN_PASSWORD": secrets.token_urlsafe(24),
        }
        return ServerProcess(
            self.title,
            [*installation.command, f"--homepath={installation.home}"],
            log=self.log,
            environment={**os.environ, **{f"GF_{name}": value for name, value in settings.items()}},
            orphan_folder=self._orphan_folder,
        )

    def _provision(self) -> Path:
        """Writes what it reads when it starts, and returns the folder."""
        source = {
            "name": "Prometheus",
            "type": "prometheus",
            "access": "proxy",
            "url": self._prometheus,
            "isDefault": True,
            "jsonData": {"timeInterval": self._interval, "httpMethod": "POST"},
        }
        providers = [
            {"name": f"dashboards-{number}", "type": "file", "options": {"path": path}}
            for number, path in enumerate(self._dashboards, 1)
        ]
        folder = self.folder / "provisioning"
        for name, data in {"datasources": [source], "dashboards": providers}.items():
            file = folder / name / "all.yaml"
            file.parent.mkdir(parents=True, exist_ok=True)
            key = "providers" if name == "dashboards" else name
            file.write_text(json.dumps({"apiVersion": 1, key: data}))  # JSON is YAML
        return folder

    def _ready(self) -> bool:
        # It is healthy before it has read its dashboards. Meanwhile it may answer others with "500".
        with suppress(OSError, ValueError):
            if self._now("health")["database"] == "ok":
                return all(self._now(f"dashboards/uid/{uid}")["meta"]["provisioned"] for uid in self._uids)
        return False

    def _now(self, path: str) -> Any:
        with _open(f"{self.url}/api/{path}", timeout=1) as answer:
            return json.load(answer)


# A proxy that the environment names is not for this machine.
_open = build_opener(ProxyHandler({})).open
