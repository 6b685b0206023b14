"""The ports of an embedded Spark on the loopback interface: nobody gets anything without its secrets."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

import psutil
import pytest
from outbox_api import Needs, OutboxError
from outbox_spark.engine import SparkEngine
from outbox_spark.options import SparkOptions
from outbox_spark.security import require_authentication

THIEF = Path(__file__).with_name("spark_thief.py")
BLOCKS = 6
"""How many broadcasts of Spark the thief asks for; each job has two."""

PROGRAM = """
import json, sys, time
from pathlib import Path
from threading import Thread
from outbox_spark.application import Application

settings, secret, place = json.loads(sys.stdin.readline())
application = Application("victim", "local[2]", settings)

def task(secret=secret, place=place):
    import time
    from pathlib import Path
    Path(place).touch()
    time.sleep(600)

def run():
    try:
        application.run("job", 1, task)
    except Exception:
        pass  # it ends with its application

job = Thread(target=run, daemon=True)
job.start()
while job.is_alive() and not Path(place).exists():
    time.sleep(0.05)
print("ready", flush=True)
sys.stdin.readline()
application.stop()
"""


@contextmanager
def running(settings: Mapping[str, str], secret: str, place: Path) -> Iterator[psutil.Process]:
    """Runs a Spark whose task carries a secret; the process that has started it."""
    command = [sys.executable, "-P", "-c", PROGRAM]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=place.parent
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps([settings, secret, str(place)]) + "\n")
        process.stdin.flush()
        assert process.stdout.readline() == "ready\n"
        yield psutil.Process(process.pid)
        process.communicate("end\n")


def listening(process: psutil.Process) -> dict[int, str]:
    """Returns the TCP ports that a process and its children listen at, with the name of the process."""
    found: dict[int, str] = {}
    for each in [process, *process.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):  # Spark's own short helpers come and go
            name, ports = each.name(), each.net_connections("tcp")
            found |= {at.laddr.port: name for at in ports if at.status == "LISTEN"}
    return found


@pytest.mark.spark
def test_another_user_gets_nothing_of_an_embedded_spark_at_its_ports_or_through_its_folder(tmp_path):
    secret = uuid4().hex
    for package in ("outbox_spark", "outbox_core", "pyspark"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text(f"open({str(tmp_path / 'taken')!r}, 'w')")
    # As it is the blocks would hide the secret, not keep it.
    with running({"spark.broadcast.compress": "false"}, secret, tmp_path / "running") as victim:
        assert not (tmp_path / "taken").exists(), "code of the working directory ran"
        ports = listening(victim)
        environments = [
            environ
            for each in victim.children(recursive=True)
            if (environ := Path("/proc", str(each.pid), "environ")).exists()
        ]
        asked = json.dumps({"blocks": BLOCKS, "ports": list(ports)})
        done = subprocess.run(
            [sys.executable, "-I", str(THIEF)], input=asked, capture_output=True, text=True, check=False
        )
        assert not done.returncode, done.stderr
        assert list(listening(victim)) == list(ports), "all of it lives still"
        assert all(each.stat().st_mode & 0o077 == 0 for each in environments)
    answered = json.loads(done.stdout)
    assert answered["uid"] != 0
    found = {(ports[int(port)], port): answers for port, answers in answered["found"].items()}
    assert sum(name == "java" for name, _ in found) == 3, "its messages, its blocks, and Py4J"
    assert any(name.startswith("python") for name, _ in found)
    for place, answers in found.items():
        assert not any(secret in each for each in answers), f"{place} hands out the secrets of tasks"
        assert not any("ObjectInputStream" in each for each in answers), f"{place} reads anybody's objects"
        assert not any("PATH" in each for each in answers), f"{place} calls into the JVM"
    refused = [answers for answers in found.values() if any("SaslMessage" in each for each in answers)]
    assert len(refused) == 2, "messages and blocks are for those who know the secret"


@pytest.mark.parametrize("value", ["false", "no"])
@pytest.mark.parametrize("master", [None, "local", "local[4]", "local-cluster[1,1,512]"])
def test_an_embedded_spark_without_authentication_is_refused(master, value):
    engine = SparkEngine(SparkOptions(master=master, settings={"spark.authenticate": value}))
    with pytest.raises(OutboxError, match=r"spark\.authenticate.*every user of this machine"):
        engine.open("shop", 2, Needs("shop", 2))


def test_authentication_is_asked_for_where_nobody_else_sees_to_it():
    require_authentication("local[2]", {})
    require_authentication("local[2]", {"spark.authenticate": "true"})
    require_authentication("spark://master:7077", {"spark.authenticate": "false"})  # what check reports


def test_a_master_among_sparks_settings_counts():
    given = {"spark.master": "local[2]", "spark.authenticate": "false"}
    engine = SparkEngine(SparkOptions(master="spark://m:7077", settings=given))
    with pytest.raises(OutboxError, match=r"spark\.authenticate"):
        engine.open("shop", 2, Needs("shop", 2))
