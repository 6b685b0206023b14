"""``outbox new-engine`` and ``new-publisher``: what they write keeps the contract at once."""

import subprocess
import sys
from pathlib import Path

import pytest

from .new_drivers import assert_good_style, install

WRITTEN = {"new-engine": "my_cluster", "new-publisher": "my_broker"}
TESTS = {"new-engine": 11, "new-publisher": 9}


@pytest.mark.slow
@pytest.mark.parametrize("command", WRITTEN)
def test_it_keeps_the_contract_as_it_is_written(tmp_path: Path, command: str) -> None:
    written = install(tmp_path, command, WRITTEN[command])
    run = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(written / "tests")]
    done = subprocess.run(run, capture_output=True, text=True, cwd=written, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{TESTS[command]} passed" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("command", WRITTEN)
def test_what_is_written_is_typed_and_in_good_style(tmp_path: Path, command: str) -> None:
    assert_good_style(install(tmp_path, command, WRITTEN[command]), f"outbox_{WRITTEN[command]}")
