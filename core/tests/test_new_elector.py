"""``outbox new-elector``: what it writes is an elector that keeps the contract."""

import subprocess
import sys
from pathlib import Path

import pytest

from .new_drivers import assert_good_style, install


@pytest.mark.slow
def test_it_keeps_the_contract_as_it_is_written(tmp_path: Path) -> None:
    written = install(tmp_path, "new-elector", "my_lock")
    quick = "sole or wrong or drains or killed"  # the others take a minute
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-k", quick, str(written / "tests")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=written, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout


@pytest.mark.slow
def test_what_is_written_is_typed_and_in_good_style(tmp_path: Path) -> None:
    assert_good_style(install(tmp_path, "new-elector", "my_lock"), "outbox_my_lock")
