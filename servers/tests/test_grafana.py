"""Which Grafana is used: the one that is named, and no other; and when it is ready."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from outbox_servers.services import ServiceError
from outbox_servers.services.grafana import HOME_VARIABLE, GrafanaServer, Installation, find_installation


def home(folder: Path, *files: str) -> dict[str, str]:
    """Returns an environment that names a folder with these files."""
    for each in files:
        (folder / each).parent.mkdir(parents=True, exist_ok=True)
        (folder / each).touch(0o755)
    return {HOME_VARIABLE: str(folder)}


CONTENTS = ("conf/defaults.ini", "public/views/index.html")


@pytest.mark.parametrize("programs", [("bin/grafana", "bin/grafana-server"), ("bin/grafana",)])
def test_a_grafana_since_9_4_is_one_program_with_commands(tmp_path: Path, programs: tuple[str, ...]) -> None:
    found = find_installation(home(tmp_path, *CONTENTS, *programs))
    assert found == Installation(tmp_path, (str(tmp_path / "bin/grafana"), "server"))


def test_an_older_grafana_has_a_program_for_its_server(tmp_path: Path) -> None:
    found = find_installation(home(tmp_path, *CONTENTS, "bin/grafana-server"))
    assert found == Installation(tmp_path, (str(tmp_path / "bin/grafana-server"),))


def test_without_a_named_grafana_the_error_says_where_to_get_one() -> None:
    with pytest.raises(ServiceError, match=rf"grafana.com/grafana/download.*{HOME_VARIABLE}"):
        find_installation({})


@pytest.mark.parametrize(
    ("files", "missing"),
    [
        (("bin/grafana",), "conf/defaults.ini"),
        (("bin/grafana", "conf/defaults.ini"), "public/views/index.html"),
        (CONTENTS, "bin/grafana nor bin/grafana-server"),
    ],
)
def test_a_folder_of_something_else_is_refused(tmp_path: Path, files: tuple[str, ...], missing: str) -> None:
    with pytest.raises(ServiceError, match=missing):
        find_installation(home(tmp_path, *files))


STAND_IN = """
import json, os
from http.server import BaseHTTPRequestHandler, HTTPServer

later = iter([(404, {}), (500, {}), (200, {"meta": {"provisioned": False}})])

class Answers(BaseHTTPRequestHandler):
    def do_GET(self):
        done = 200, {"database": "ok", "meta": {"provisioned": True}}
        status, data = next(later, done) if self.path == "/api/dashboards/uid/sales" else done
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(data).encode())

HTTPServer(("127.0.0.1", int(os.environ["GF_SERVER_HTTP_PORT"])), Answers).serve_forever()
"""
"""Healthy at once; its dashboard is not there, then makes it fail, and is later known as that of a file."""


def test_it_is_ready_when_it_has_read_the_dashboards(tmp_path: Path) -> None:
    dashboards = tmp_path / "dashboards"
    dashboards.mkdir()
    (dashboards / "sales.json").write_text('{"uid": "sales"}')
    program = tmp_path / "grafana.py"
    program.write_text(STAND_IN)
    stand_in = Installation(tmp_path, (sys.executable, str(program)))
    with GrafanaServer("http://127.0.0.1:9", [dashboards], installation=stand_in) as grafana:
        assert grafana.get("dashboards/uid/sales")["meta"]["provisioned"]
