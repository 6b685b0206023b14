"""The processes of the Spark engine, without Spark: a script in the JVM's place, and PySpark's own daemon."""

from __future__ import annotations

import math
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import psutil
import pyspark
import pytest
from outbox_api import OutboxError
from outbox_spark import jvm
from outbox_spark.daemon import SERVICE_SIGNALS, is_copy
from outbox_spark.engine import refuse_shrinking
from outbox_spark.jvm import Jvm
from outbox_spark.workers import SparkWorkers, reason
from pyspark import SparkConf


@pytest.fixture
def script(tmp_path, monkeypatch):
    """Writes what runs in the JVM's place."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setattr(jvm, "_find_spark_home", lambda: str(tmp_path))

    def write(text):
        file = tmp_path / "bin" / "spark-submit"
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(0o755)

    return write


def test_what_a_jvm_says_when_it_does_not_start_is_told_without_frames(script):
    script(r"""
printf 'Exception in thread "main" java.lang.IllegalArgumentException: basedir must be absolute\n' >&2
printf '\tat org.apache.ivy.util.Checks.checkAbsolute(Checks.java:48)\n' >&2
printf 'Caused by: java.lang.NullPointerException: invalid null input: name\n\t... 31 more\n' >&2
exit 3""")
    with pytest.raises(OutboxError) as raised:
        Jvm(SparkConf())
    assert str(raised.value).splitlines() == [
        "the JVM ended with 3",
        '  Exception in thread "main" java.lang.IllegalArgumentException: basedir must be absolute',
        "  Caused by: java.lang.NullPointerException: invalid null input: name",
    ]


def test_a_jvm_that_ends_well_without_a_word_did_not_start_either(script):
    script("exit 0")
    with pytest.raises(OutboxError, match="the JVM ended with 0"):
        Jvm(SparkConf())


def test_a_jvm_that_does_not_get_ready_is_ended(script, monkeypatch, tmp_path):
    pid = tmp_path / "pid"
    first = iter([0.0])  # however early the JVM has started
    monkeypatch.setattr(jvm, "monotonic", lambda: next(first, math.inf if pid.exists() else 0.0))
    monkeypatch.setattr(jvm, "EXIT_SECONDS", 0.3)
    script(f"echo still thinking; echo $$ > {tmp_path}/written; mv {tmp_path}/written {pid}; exec sleep 60")
    with pytest.raises(OutboxError, match="does not get ready\n  still thinking"):
        Jvm(SparkConf())
    assert not psutil.pid_exists(int(pid.read_text()))


def test_a_jvm_does_not_heed_what_ends_a_service(script):
    names = " ".join(number.name.removeprefix("SIG") for number in SERVICE_SIGNALS)
    script(f"for name in {names}; do kill -$name $$; done; echo lives; exit 3")
    with pytest.raises(OutboxError, match="ended with 3\n  lives"):
        Jvm(SparkConf())


@pytest.fixture
def daemon() -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "PYTHON_WORKER_FACTORY_SECRET": "secret"}
    command = [sys.executable, "-m", "outbox_spark.daemon", "pyspark.worker"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
        yield process
        process.kill()


def gone(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_workers_and_their_daemon_live_until_spark_ends_them(daemon):
    port = int.from_bytes(daemon.stdout.read(4))
    with socket.create_connection(("127.0.0.1", port), 60) as spark:
        worker = psutil.Process(int.from_bytes(spark.recv(4, socket.MSG_WAITALL)))
        assert worker.ppid() == daemon.pid
        for number in SERVICE_SIGNALS:
            worker.send_signal(number)
            daemon.send_signal(number)
        time.sleep(0.3)  # for what must not happen
        assert not gone(worker)
        assert daemon.poll() is None
        daemon.stdin.write(worker.pid.to_bytes(4))  # Spark's order to kill it
        daemon.stdin.flush()
        give_up = time.monotonic() + 60
        while not gone(worker):
            assert time.monotonic() < give_up
            time.sleep(0.01)
    daemon.stdin.close()  # Spark's order to exit
    assert daemon.wait(60) in (0, 1)


def test_dynamic_allocation_has_to_keep_a_slot_for_each_group():
    conf = SparkConf(loadDefaults=False)
    refuse_shrinking(conf, groups=6, slots=2)
    conf.set("spark.dynamicAllocation.enabled", "true")
    for too_few in (None, "0", "2"):
        if too_few is not None:
            conf.set("spark.dynamicAllocation.minExecutors", too_few)
        with pytest.raises(OutboxError, match=r"spark\.dynamicAllocation\.minExecutors to 3.* 6 lane groups"):
            refuse_shrinking(conf, groups=6, slots=2)
    refuse_shrinking(conf.set("spark.dynamicAllocation.minExecutors", "3"), groups=6, slots=2)


class Hanging:
    """An application in a JVM that does not answer."""

    def __init__(self):
        self.master, self.context, self.address = "local[2]", self, None
        self.asked = 0
        self.hears, self.resumed = Event(), Event()

    def cancelJobGroup(self, _key: str):  # noqa: N802 - PySpark's name
        self.asked += 1
        self.hears.set()
        assert self.resumed.wait(60)


def test_a_jvm_that_hangs_holds_up_nobody_who_cancels():
    application: Any = Hanging()
    workers: Any = SparkWorkers(application, "shop", 2, lambda: None)
    for _ in range(3):
        workers.cancel()
    assert application.hears.wait(60)
    assert application.asked == 1, "it is asked once"
    application.resumed.set()
    workers._cancelling.join(60)
    workers.cancel()
    workers._cancelling.join(60)
    assert application.asked == 2, "and again when it has answered"


def test_the_reason_of_a_lost_job_is_the_workers_or_the_jvms():
    worker = """Job aborted due to stage failure: org.apache.spark.api.python.PythonException: Traceback:
  File "task.py", line 57, in run
ConnectionError: cannot reach the leader at 10.0.0.7:4711: timed out

\tat org.apache.spark.api.python.BasePythonRunner"""
    assert reason(Exception(worker)).startswith("ConnectionError: cannot reach the leader")
    jvm = """An error occurred while calling o208.save.
: org.apache.spark.SparkException: Job 0 cancelled as part of cancellation of all jobs
\tat org.apache.spark.scheduler.DAGScheduler"""
    assert reason(Exception(jvm)).startswith("org.apache.spark.SparkException: Job 0 cancelled")
    assert reason(ConnectionError("the lanes lost touch")) == "the lanes lost touch"
    assert reason(EOFError()) == "EOFError"


def test_the_zips_inside_an_installed_pyspark_are_copies(tmp_path, monkeypatch):
    zips = tmp_path / "pyspark" / "python" / "lib"
    zips.mkdir(parents=True)
    entry = str(zips / "pyspark.zip")
    monkeypatch.setattr(sys, "path", [entry, str(tmp_path)])
    assert not is_copy(entry)  # of a Spark that is no Python package
    (tmp_path / "pyspark" / "daemon.py").touch()
    assert is_copy(entry)
    assert not is_copy(str(tmp_path))
    monkeypatch.setattr(sys, "path", [entry])  # without it there would be no PySpark
    assert not is_copy(entry)


def test_the_daemon_does_not_take_pyspark_from_a_zip():
    package = Path(pyspark.__file__).parent
    zips = sorted(map(str, package.glob("python/lib/*.zip")))
    program = """
from outbox_spark import daemon
daemon.drop_copies()
import py4j, pyspark
print(pyspark.__file__, py4j.__file__)
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(zips)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    assert zips
    assert ".zip" not in done.stdout
