"""`outbox fence` on a real outbox: it fences a leader, and forgets what lanes may have published."""

import json
import os
import pty
import re
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from outbox_api import TransactionalLane
from outbox_core.config import load

from .cli_runner import OUTBOX, configure, harvester, outbox, program, told, until, wait_for


@pytest.fixture
def file(tmp_path: Path, postgres_dsn: str, kafka_bootstrap: str) -> Path:
    path = configure(tmp_path, postgres_dsn, kafka_bootstrap)
    told(path, "init")
    return path


def drained(file: Path) -> bool:
    records: int = json.loads(told(file, "status", "--json"))["backlog"]["records"]
    return records == 0


def test_a_bump_fences_the_leader_which_acquires_again(file: Path, topic: str):
    with harvester(file) as running:
        before = json.loads(told(file, "fence", "show", "--json"))["lanes"]
        assert [(lane["lane"], lane["lanes"]) for lane in before] == [(0, 2), (1, 2)]
        (token,) = {lane["token"] for lane in before}
        refused = outbox(file, "fence", "bump")
        assert refused.returncode == 2
        assert "add --yes" in refused.stderr
        bumped = json.loads(told(file, "fence", "bump", "--yes", "--json"))
        assert bumped["token"] > token
        assert bumped["lanes"] == 2
        assert bumped["holder"].startswith("operator ")
        seen = wait_for(running, "leader acquired")
        assert "leader fenced" in seen
        acquired = int(re.findall(r"fence token (\d+)", seen)[-1])
        assert acquired > bumped["token"]
        told(file, "pump", "--topic", topic, "--records", "1")
        until(lambda: drained(file))
        assert {lane["token"] for lane in json.loads(told(file, "fence", "show", "--json"))["lanes"]} == {
            acquired
        }


def test_the_fence_before_anybody_has_led(file: Path):
    assert told(file, "fence", "show") == "nobody has ever led\n"
    bumped = json.loads(told(file, "fence", "bump", "--yes", "--json"))
    assert bumped["token"] > 0
    assert bumped["lanes"] == 2
    shown = told(file, "fence", "show")
    assert "operator " in shown
    assert "none yet" in shown


@pytest.mark.parametrize(("answer", "code"), [(b"y\n\n", 0), (b"n\n", 1)])
def test_a_bump_asks_on_a_terminal(answer: bytes, code: int, file: Path):
    before = json.loads(told(file, "fence", "bump", "--yes", "--json"))["token"]
    ours, theirs = pty.openpty()
    command = [OUTBOX, "fence", "bump", "-f", str(file)]
    with subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        os.write(ours, answer)
        _, err = process.communicate(timeout=60)
    os.close(ours)
    os.close(theirs)
    assert process.returncode == code
    assert "The present leader is fenced" in " ".join(err.decode().split())
    token = json.loads(told(file, "fence", "show", "--json"))["lanes"][0]["token"]
    assert (token > before) == (code == 0)


def test_what_lanes_may_have_published_is_forgotten(file: Path):
    with closing(load(file).harvest.dialect.create().connect()) as table:
        for lanes in (
            3,
            2,
        ):  # a leader of three lanes dies, and so does one of two before it has settled them
            token = table.bump(lanes, "dead")
            table.set_transactional(
                table.enter(lanes - 1, lanes, token), TransactionalLane(lanes, "sender", "place")
            )
        shown = json.loads(told(file, "fence", "show", "--json"))
        assert [lane["transacting"] for lane in shown["lanes"]] == [None, 2]
        assert shown["former"] == [{"lane": 2, "transacting": 3, "sender": "sender", "location": "place"}]
        assert outbox(file, "fence", "forget").returncode == 2
        assert told(file, "fence", "forget", "--dry-run").endswith("the rows of lanes 1, 2\n")
        assert table.transactional_lanes() == {
            1: TransactionalLane(2, "sender", "place"),
            2: TransactionalLane(3, "sender", "place"),
        }
        done = json.loads(told(file, "fence", "forget", "--yes", "--json"))
        assert done["token"] > token
        assert len(done["lanes"]) == 2
        assert table.transactional_lanes() == {}
    assert "the fence notes no lane" in told(file, "fence", "forget", "--yes")


@pytest.mark.slow
def test_lanes_whose_checkpoints_are_lost_refuse_until_that_is_forgotten(
    tmp_path: Path, postgres_dsn: str, kafka_bootstrap: str, topic: str
):
    name = f"t{topic[-12:]}"
    checkpoints = f"{name}.checkpoints"
    publisher = {"driver": "kafka", "checkpointTopic": checkpoints}
    own = {"delivery": "exactly-once", "outboxTable": name, "failures": {"stopAfter": "100ms"}}
    file = configure(tmp_path, postgres_dsn, kafka_bootstrap, **own, publisher=publisher)
    told(file, "init")
    ledger = str(tmp_path / "ledger")
    with harvester(file):
        told(file, "pump", "--topic", topic, "--ledger", ledger, "--records", "50")
        until(lambda: drained(file))
    admin = AdminClient({"bootstrap.servers": kafka_bootstrap})
    admin.delete_topics([checkpoints])[checkpoints].result()
    refused = program(file, "run")
    assert refused.returncode == 1
    assert "'outbox fence forget'" in refused.stderr
    told(file, "fence", "forget", "--yes")
    with harvester(file):
        told(file, "pump", "--topic", topic, "--ledger", ledger, "--records", "50")
        until(lambda: drained(file))
    assert "All 100 records" in told(file, "audit", "--ledger", ledger, "--exactly-once")
