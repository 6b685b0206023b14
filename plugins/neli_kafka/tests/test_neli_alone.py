"""The election in a program of its own, without the harvester."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from outbox_api import ConfigError
from outbox_neli_kafka import LeadershipEvent, Neli, NeliOptions

README = Path(__file__).parents[1] / "README.md"


def test_the_readme_example_runs_without_the_harvester(kafka_bootstrap: str, topic: str) -> None:
    [example] = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    program = example.replace("localhost:9092", kafka_bootstrap).replace("nightly-report", topic)
    program += "import sys\nassert 'outbox_core' not in sys.modules\n"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line != "somebody else leads"]
    pages = [f"page {number} leads" for number in range(3)]
    assert lines == ["ACQUIRED", *pages, "REVOKED"]


def test_one_of_two_leads_and_hands_over(kafka_bootstrap: str, topic: str) -> None:
    options = NeliOptions({"bootstrap.servers": kafka_bootstrap}, leader_group_id=topic, session_timeout=6)
    events: list[LeadershipEvent] = []
    first, second = Neli(options, events.append), Neli(options)
    assert not first.is_leader
    with first:
        assert first.pulse(60)
        with second:
            assert not second.pulse(1.0)
            assert first.lease() > 0
            first.__exit__()
            assert second.pulse(30)
            assert not first.is_leader
    assert events == [LeadershipEvent.ACQUIRED, LeadershipEvent.REVOKED]


def test_an_error_of_the_handler_ends_the_candidacy(kafka_bootstrap: str, topic: str) -> None:
    def refuse(event: LeadershipEvent) -> None:
        if event is LeadershipEvent.ACQUIRED:
            raise ConfigError("not today")

    options = NeliOptions({"bootstrap.servers": kafka_bootstrap}, leader_group_id=topic)
    with Neli(options, refuse) as neli, pytest.raises(ConfigError, match="not today"):
        neli.pulse(30)
