"""Prometheus as a service: it scrapes, evaluates rules, and answers queries."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from outbox_servers.services import PrometheusServer, ServiceError
from outbox_servers.services.prometheus import Installation, find_installation

RULES = {
    "groups": [
        {
            "name": "test",
            "rules": [{"alert": "Away", "expr": "up == 0", "annotations": {"who": "{{ $labels.job }}"}}],
        }
    ]
}


def until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not what():
        assert time.monotonic() < deadline, "did not come true within 120 s"
        time.sleep(0.05)


def scrapes(server: PrometheusServer) -> float:
    [sample] = server.query("count_over_time(up[1h])")
    return sample.value


@pytest.mark.slow
def test_it_scrapes_its_targets_and_tells_which_alerts_fire(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(json.dumps(RULES))
    with PrometheusServer({"nobody": ["127.0.0.1:1"]}, rules=[rules], interval=0.2) as server:
        until(lambda: [each.value for each in server.query('up{job="nobody"}')] == [0])
        until(lambda: any(each.firing for each in server.alerts()))
        [alert] = server.alerts()
        assert (alert.name, alert.annotations) == ("Away", {"who": "nobody"})
        assert alert.labels["instance"] == "127.0.0.1:1"
        assert [each.value for each in server.query("scalar(count(up))")] == [1]
        with pytest.raises(ServiceError, match="parse error"):
            server.query("up{")
        until(lambda: scrapes(server) > 3)
        server.stop()
        with pytest.raises(ServiceError, match="does not answer"):
            server.alerts()
        server.start()
        assert scrapes(server) > 3
    assert not server.folder.exists()


def test_its_tool_checks_rules(tmp_path: Path) -> None:
    rules, tool = tmp_path / "rules.yaml", find_installation().tool
    for text, code in (json.dumps(RULES), 0), (json.dumps(RULES).replace("== 0", "=="), 1):
        rules.write_text(text)
        done = subprocess.run(
            [*tool, "check", "rules", str(rules)], check=False, capture_output=True, text=True
        )
        assert done.returncode == code, done.stdout + done.stderr


def test_a_program_that_does_not_serve_is_an_error_with_its_log() -> None:
    nothing = Installation(("/bin/false",), ("/bin/false",), "0")
    with pytest.raises(ServiceError, match="before it was ready"), PrometheusServer({}, installation=nothing):
        pass
