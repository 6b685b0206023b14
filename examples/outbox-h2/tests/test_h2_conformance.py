"""The driver 'h2' keeps the contract of a dialect."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import uuid4

import pytest
from outbox_servers.services.cache import cached_folder
from outbox_servers.services.java import find_java
from outbox_servers.services.maven import fetch_jars
from outbox_testkit.conformance import DialectConformance, OutboxUnderTest

VERSION = "2.3.232"


def h2_jar() -> Path:
    """Fetches H2 from Maven Central, once."""
    java = find_java()
    os.environ.setdefault("JAVA_HOME", str(java.executable.parents[1]))
    wanted = [("com.h2database", "h2", VERSION)]
    checksums = Path(__file__).with_name("jars.sha256")
    folder = cached_folder(
        f"h2-{VERSION}", lambda folder: fetch_jars(wanted, folder, java, checksums=checksums)
    )
    return folder / f"h2-{VERSION}.jar"


class TestH2(DialectConformance):
    """The suite asks for an outbox that does not exist yet, and nothing else."""

    @pytest.fixture
    def outbox(self, tmp_path_factory: pytest.TempPathFactory) -> OutboxUnderTest:
        """A table of its own for each test, in a file that stays open."""
        place = f"{tmp_path_factory.getbasetemp() / 'h2'};DB_CLOSE_DELAY=-1"
        options = {"data_source": place, "table": f"outbox_{uuid4().hex[:8]}", "jar": str(h2_jar())}
        restart = ["TRUNCATE TABLE {table} RESTART IDENTITY"]
        return OutboxUnderTest("h2", options, bytes_values={"value_type": "bytes"}, restart=restart)
