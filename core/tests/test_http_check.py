"""What `outbox check` says of the HTTP server."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from outbox_api import ConfigError
from outbox_api.base.finding import Level
from outbox_console.listening import check_http
from outbox_core.cli import check
from outbox_core.cli.run import monitored
from outbox_core.settings.http import HttpSettings

from .cli_runner import outbox
from .http_server import ALICE, ORIGIN, VIEWER, serving, settings_of


def levels(**http: Any) -> dict[str, Level]:
    return {each.subject: each.level for each in check_http(settings_of(**http).http)}


def test_nothing_is_said_where_nothing_is_served():
    assert list(check_http(HttpSettings())) == []


@pytest.mark.parametrize(
    ("http", "level"),
    [
        ({"listen": "0.0.0.0:0"}, Level.WARNING),
        ({"listen": "0.0.0.0:0", "origin": "http://outbox.example"}, Level.WARNING),
        ({"listen": "127.0.0.1:0", "origin": "http://outbox.example"}, Level.WARNING),
        ({"listen": "0.0.0.0:0", "origin": ORIGIN}, Level.OK),
        ({"listen": "127.0.0.1:0"}, Level.OK),
        ({"listen": "127.0.0.1:0", "origin": "http://localhost:9"}, Level.OK),
    ],
)
def test_tokens_in_clear_are_warned_of(http: dict[str, str], level: Level):
    assert levels(viewerTokens=[VIEWER], **http) == {"address": Level.OK, "TLS": level}
    assert levels(operatorTokens={"alice": ALICE}, **http)["TLS"] is level


def test_a_port_that_is_not_free():
    with serving(settings_of()) as site:
        assert levels(listen=f"127.0.0.1:{site.port}")["address"] is Level.WARNING
    assert levels(listen="192.0.2.1:1", viewerTokens=[VIEWER])["address"] is Level.ERROR


def test_a_missing_console_is_told_as_the_start_tells_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("outbox_core.cli.extras.entry_points", lambda **_: ())
    settings = settings_of(listen="127.0.0.1:0")
    [found] = check._check_http(settings.http)
    with pytest.raises(ConfigError) as error, monitored(settings, list, {}):
        pass
    assert found.level is Level.ERROR
    assert f"{found.message}: {found.cure}" == str(error.value)
    assert "pip install outbox-console" in found.cure


def test_the_command_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(check, "_checks", lambda _: {})  # what else it looks at takes its time
    file = tmp_path / "outbox.yaml"
    harvest = {
        "dialect": "sqlite",
        "dataSource": str(tmp_path / "box.db"),
        "elector": "static",
        "engine": "inline",
    }
    http = {"listen": "0.0.0.0:0", "viewerTokens": [VIEWER]}
    file.write_text(json.dumps({"http": http, "harvest": harvest}))
    findings = json.loads(outbox(file, "check", "--json").stdout)["findings"]
    [found] = [each for each in findings if (each["part"], each["level"]) == ("http", "warning")]
    assert "in clear" in found["message"]
    assert "http.origin" in found["cure"]
    assert VIEWER not in json.dumps(findings)


def test_a_missing_library_of_the_console_is_told_as_the_start_tells_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    for module in ("app", "server"):
        monkeypatch.delitem(sys.modules, f"outbox_console.{module}", raising=False)
    settings = settings_of(listen="127.0.0.1:0")
    [found] = check._check_http(settings.http)
    with pytest.raises(ConfigError) as error, monitored(settings, list, {}):
        pass
    assert found.level is Level.ERROR
    assert f"{found.message}: {found.cure}" == str(error.value)
    assert "uvicorn is not installed" in found.message
