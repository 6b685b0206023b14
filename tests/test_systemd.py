"""The unit for systemd, as systemd itself reads it; no systemd runs it here."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .test_documents import ROOT

UNIT = (ROOT / "deploy" / "systemd" / "outbox.service").read_text("utf-8")
PROGRAM = "/opt/outbox/bin/outbox"

pytestmark = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="there is no systemd-analyze")


@pytest.fixture
def unit(tmp_path: Path) -> str:
    """The unit, with a program that is here."""
    assert PROGRAM in UNIT
    file = tmp_path / "outbox.service"
    file.write_text(UNIT.replace(PROGRAM, sys.executable))
    return str(file)


def analyze(*arguments: str) -> str:
    done = subprocess.run(["systemd-analyze", *arguments], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_systemd_takes_all_of_it(unit: str) -> None:
    assert "outbox.service" not in analyze("verify", unit)


def test_it_may_do_little(unit: str) -> None:
    analyze("security", "--offline=true", "--threshold=20", unit)
