"""`outbox status --watch` beside harvesters of a real PostgreSQL: it shows who leads."""

import re
from pathlib import Path

import psycopg
import pytest

from .cli_runner import INSERT, OUTBOX, changed, configure, harvester, told
from .terminals import Terminal


@pytest.mark.slow
def test_a_leader_is_killed_and_another_leads(
    tmp_path: Path, postgres_dsn: str, kafka_bootstrap: str, topic: str
):
    # Longer than what keeps a process of a busy machine from confirming its lease.
    elector = {"driver": "lease", "sessionTimeout": "5s"}
    plain = configure(tmp_path, postgres_dsn, kafka_bootstrap)
    one, other = (
        changed(plain, elector=elector, name=name).rename(tmp_path / f"{name}.yaml")
        for name in ("one", "other")
    )
    told(one, "init")
    command = [OUTBOX, "status", "--watch", "--interval", "200ms", "-f", str(one)]
    with Terminal(command) as terminal:
        terminal.until(lambda text: re.search(r"leader +none", text))
        with harvester(one):
            terminal.until(lambda text: re.search(r"leader +one", text) and re.search(r"0 +\d+ +0 +0 ", text))
        # It is killed now. Nobody can take over before the backlog is seen.
        with psycopg.connect(postgres_dsn, autocommit=True) as connection:
            connection.execute(INSERT, (topic, 100))
        terminal.until(lambda text: "backlog  100 rec" in text)
        with harvester(other, "] outbox "):
            terminal.until(lambda text: re.search(r"leader +other", text) and "backlog  0 rec" in text)
        assert len(terminal.text.splitlines()) <= 24
        assert terminal.interrupt() == 0
