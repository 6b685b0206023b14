"""The example of a lakehouse runs unchanged: tables are right, though the driver is killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]

DEMO = Path(__file__).parent.parent / "examples" / "lakehouse" / "demo.py"
SECONDS = 450


def demonstrate(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(DEMO), *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=SECONDS)


def test_tables_are_the_shops_though_the_driver_is_killed():
    done = demonstrate("--changes", "40000", "--rate", "1000", "--kills", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "lost 0, twice 0, overtaken 0" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("GOOD: the driver was killed once")


def test_a_pipeline_that_fails_ends_the_demonstration(tmp_path: Path):
    for file in DEMO.parent.iterdir():
        if file.is_file():
            (tmp_path / file.name).write_bytes(file.read_bytes())
    orders = tmp_path / "orders.py"
    orders.write_text(orders.read_text().replace("SHOP_DATABASE", "NO_SUCH_VARIABLE"))
    command = [sys.executable, str(tmp_path / "demo.py"), "--changes", "100", "--kills", "0"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 1
    assert "NO_SUCH_VARIABLE" in done.stdout
