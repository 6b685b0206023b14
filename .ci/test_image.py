"""The images that `make image` builds, run as any user, with nothing to write to and no right of root."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import docker  # type: ignore[import-untyped]  # as in outbox_servers.containers
import psycopg
import pytest
from outbox_servers import finding

OUTBOX = Path(sys.executable).with_name("outbox")
FILE = "/etc/outbox/outbox.yaml"
BARE = {
    "user": "12345",
    "read_only": True,
    "tmpfs": {"/tmp": ""},
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges"],
}
RECORDS = 1000
LABELS = ("source", "revision", "version", "title", "licenses", "description")


class Site(NamedTuple):
    """An outbox in a database of its own, and a topic."""

    dsn: str
    topic: str
    settings: Path

    def start(self, image: str, *command: str) -> Any:
        """Starts a container that reaches the servers."""
        mounts = {str(self.settings): {"bind": FILE, "mode": "ro"}}
        options = {"network_mode": "host", "volumes": mounts, "labels": [self.topic]}
        return docker.from_env().containers.run(image, command, detach=True, **options, **BARE)

    def waiting(self) -> int:
        """Returns how many records the outbox has."""
        with psycopg.connect(self.dsn) as connection:
            return connection.execute("SELECT count(*) FROM outbox").fetchone()[0]  # type: ignore[index]

    def outbox(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Starts a command, outside of a container."""
        return subprocess.Popen([OUTBOX, *arguments, "-f", self.settings])


@pytest.fixture
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    name = f"image_{secrets.token_hex(4)}"
    with finding.open_postgres() as postgres, finding.open_kafka() as kafka:
        harvest = {
            "dataSource": (dsn := postgres.create_database(name)),
            "baseKafkaConfig": {"bootstrap.servers": kafka.bootstrap},
            **request.param,
        }
        settings = tmp_path / "outbox.yaml"
        settings.write_text(json.dumps({"harvest": harvest}))
        yield Site(dsn, name, settings)
        for container in docker.from_env().containers.list(all=True, filters={"label": name}):
            container.remove(force=True)


def until(condition: Any) -> None:
    give_up = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.1)


def leads(container: Any) -> bool:
    """Returns whether the harvester in a container has become the leader; it must not have ended."""
    container.reload()
    assert container.status == "running", container.logs().decode()
    return "leader acquired" in container.logs().decode()


def end(container: Any) -> tuple[int, str]:
    """Stops a container as Docker does, and returns its exit code and its log."""
    container.stop(timeout=30)
    return container.wait()["StatusCode"], container.logs().decode()


@pytest.mark.parametrize(
    ("image", "site"),
    [
        ("outbox:inline", {"engine": "inline", "delivery": "at-least-once"}),
        ("outbox:spark", {"engine": "spark", "delivery": "exactly-once"}),
    ],
    indirect=["site"],
)
def test_a_container_ends_amid_its_records_and_another_delivers_the_rest(
    image: str, site: Site, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger"
    made = site.start(image, "init", "--topic", site.topic)
    assert made.wait()["StatusCode"] == 0, made.logs().decode()
    first = site.start(image)
    until(lambda: leads(first))
    assert "Health" not in first.attrs["State"], "a supervisor would restart harvesters for a parked key"
    assert first.top()["Processes"][0][-1].startswith("tini")
    writer = site.outbox(
        "pump", "--records", str(RECORDS), "--interval", "8ms", "--topic", site.topic, "--ledger", str(ledger)
    )
    until(lambda: ledger.exists() and ledger.read_bytes().count(b"\n") > RECORDS // 3)
    code, log = end(first)
    assert code == 0, log
    assert writer.poll() is None
    assert writer.wait(120) == 0
    assert 0 < site.waiting() < RECORDS
    second = site.start(image)
    until(lambda: site.waiting() == 0)
    code, log = end(second)
    assert code == 0, log
    assert "archive of class data" not in log
    exactly = ["--exactly-once"] if "spark" in image else []
    assert site.outbox("audit", "--ledger", str(ledger), *exactly).wait(120) == 0


def test_the_image_without_java_has_none() -> None:
    probe = "import importlib.util, shutil; print(importlib.util.find_spec('pyspark'), shutil.which('java'))"
    answer = docker.from_env().containers.run(
        "outbox:inline", ["-c", probe], entrypoint="python", remove=True, **BARE
    )
    assert answer == b"None None\n"


def test_the_archive_of_class_data_is_there_for_every_user() -> None:
    # It could not be made here: nothing can be written.
    run = docker.from_env().containers.run
    answer = run("outbox:spark", ["-m", "outbox_spark.training"], entrypoint="python", remove=True, **BARE)
    assert answer.startswith(b"/var/cache/outbox/spark-")


@pytest.mark.parametrize("image", ["outbox:inline", "outbox:spark"])
def test_an_image_says_where_it_is_from(image: str) -> None:
    labels = docker.from_env().images.get(image).labels
    assert {f"org.opencontainers.image.{name}" for name in LABELS} <= labels.keys()
    revision = subprocess.run(["git", "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout
    assert labels["org.opencontainers.image.revision"] == revision.strip()
