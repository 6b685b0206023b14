"""For tests of the HTTP server: requests to it, and what Prometheus makes of its metrics."""

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from outbox_servers.services import free_port
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

TOKEN = "a-token-of-a-viewer"


class Answered(NamedTuple):
    """The answer to a request."""

    code: int
    text: str
    headers: Mapping[str, str]


class _Connection(http.client.HTTPConnection):
    """Sends the head and the body of a request together.

    A server that refuses the head closes the connection. A body that came after that would have the client's
    system drop the answer.
    """

    _request = b""

    def send(self, data: Any) -> None:
        self._request += data

    def getresponse(self) -> http.client.HTTPResponse:
        super().send(self._request)
        return super().getresponse()


class Site:
    """One server."""

    def __init__(self, port: int) -> None:
        self.port = port

    def get(self, path: str, **headers: str) -> Answered:
        """Asks the server; ``headers`` are named with ``_`` for ``-``."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", headers=named)
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                return Answered(response.status, response.read().decode(), dict(response.headers))
        except urllib.error.HTTPError as error:
            with error:
                return Answered(error.code, error.read().decode(), dict(error.headers))

    def ask(
        self,
        method: str,
        path: str,
        *headers: tuple[str, str],
        body: str | bytes | None = None,
        peer: str = "127.0.0.1",
    ) -> Answered:
        """Asks the server as these headers say, in their order; follows no redirection.

        A body has its length; ``peer`` is the address to ask from.
        """
        with closing(_Connection("127.0.0.1", self.port, 30, (peer, 0))) as connection:
            named = {name.lower() for name, _ in headers}
            connection.putrequest(method, path, skip_host="host" in named, skip_accept_encoding=True)
            content = body.encode() if isinstance(body, str) else body
            if content is not None and not named & {"content-length", "transfer-encoding"}:
                connection.putheader("Content-Length", str(len(content)))
            for name, value in headers:
                connection.putheader(name, value)
            connection.endheaders(content)
            with connection.getresponse() as answer:
                return Answered(answer.status, answer.read().decode(), dict(_lower(answer.getheaders())))

    def json(self, path: str, code: int = 200) -> Any:
        answered = self.get(path)
        assert answered.code == code, answered
        return json.loads(answered.text)

    def scrape(self) -> dict[str, Metric]:
        """Returns the families of metrics, by name."""
        answered = self.get("/metrics")
        assert answered.code == 200, answered
        families = list(text_string_to_metric_families(answered.text))
        assert len({family.name for family in families}) == len(families)
        return {family.name: family for family in families}

    def total(self, name: str, **labels: str) -> float:
        """Returns the sum of a metric's samples; 0 if there are none. A histogram's are its values."""
        family = self.scrape().get(name)
        return total(family, **labels)


def _lower(headers: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(name.lower(), value) for name, value in headers]


def total(family: Metric | None, **labels: str) -> float:
    """Returns the sum of a family's samples: of a histogram, the number of values."""
    if family is None:
        return 0.0
    samples = [
        sample
        for sample in family.samples
        if not sample.name.endswith(("_bucket", "_sum", "_created"))
        and labels.items() <= dict(sample.labels).items()
    ]
    return float(sum(sample.value for sample in samples))


def served(file: Path, **http: object) -> Path:
    """Writes another configuration beside ``file``, with an HTTP server on a free port."""
    data = json.loads(file.read_text())
    data["http"] = {"listen": f"127.0.0.1:{free_port()}", **http}
    path = file.with_name("served.yaml")
    path.write_text(json.dumps(data))
    return path


def site_of(file: Path) -> Site:
    """Returns the server of a configuration."""
    return Site(int(json.loads(file.read_text())["http"]["listen"].rpartition(":")[2]))
