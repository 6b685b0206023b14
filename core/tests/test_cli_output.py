"""Results that cannot be written: a full disk, a reader that has gone, a stdout that is closed."""

import json
import subprocess
from pathlib import Path

import pytest
from outbox_api import OutboxError
from outbox_audit import Ledger
from outbox_core.cli.command import ExitCode

from .cli_runner import OUTBOX, configure, outbox, told

FULL = Path("/dev/full")
ERROR = "error: cannot write to stdout: No space left on device\n    see: outbox explain OUTBOX-FAILED\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The configuration of an outbox in SQLite, without a broker."""
    path = configure(tmp_path, str(tmp_path / "box.db"), "127.0.0.1:1", dialect="sqlite")
    told(path, "init")
    return path


def told_of_a_full_disk(file: Path | None, command: str) -> str:
    """Returns what stderr says."""
    with FULL.open("w") as full:
        done = outbox(file, *command.split(), stdout=full)
    assert done.returncode == ExitCode.FAILED
    return done.stderr


@pytest.mark.parametrize(
    "command",
    [
        "status",
        "status --json",
        "status --watch",
        "status --watch --json",
        "parked list",
        "fence show",
        "journal",
        "journal --json",
        "init",
        "init --dry-run",
        "migrate",
        "migrate --dry-run",
        "pump --records 1",
    ],
)
def test_a_full_disk(command: str, file: Path):
    assert told_of_a_full_disk(file, command) == ERROR


@pytest.mark.parametrize("command", ["--version", "--help", "status --help", "drivers", "drivers --json"])
def test_a_full_disk_without_a_configuration(command: str):
    assert told_of_a_full_disk(None, command) == ERROR


def test_a_full_disk_and_a_broker(file: Path, kafka_bootstrap: str, topic: str):
    configure(file.parent, str(file.parent / "box.db"), kafka_bootstrap, dialect="sqlite")
    told(file, "init", "--topic", topic)
    ledger = file.with_name("ledger.jsonl")
    ledger.write_text(json.dumps(["key", 0, topic]) + "\n")
    for command in ("check", "health", f"audit --ledger {ledger}"):
        assert told_of_a_full_disk(file, command).endswith(ERROR)


@pytest.mark.parametrize(
    ("redirection", "code", "error"),
    [
        (">/dev/full", ExitCode.FAILED, ERROR),
        (">&-", ExitCode.OK, ""),
        ("2>&- >/dev/full", ExitCode.FAILED, ""),
    ],
)
def test_the_program(redirection: str, code: int, error: str, file: Path):
    command = f"'{OUTBOX}' status -f '{file}' {redirection}"
    done = subprocess.run(["/bin/sh", "-c", command], env={}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, error)


def test_nobody_reads(file: Path):
    command = [OUTBOX, "status", "--watch", "--interval", "1ms", "-f", str(file)]
    with subprocess.Popen(command, env={}, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(60) == ExitCode.FAILED
        assert process.stderr.read() == b""


def test_a_ledger_on_a_full_disk():
    ledger = Ledger(FULL)
    ledger.write([("key", 1)])
    with pytest.raises(OutboxError, match="cannot write ledger /dev/full: No space left on device"):
        ledger.close()
