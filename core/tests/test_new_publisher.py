"""``outbox new-publisher``: what it writes is a publisher that keeps the contract."""

import subprocess
import sys
from pathlib import Path

from .new_drivers import assert_good_style, install


def test_it_keeps_the_contract_as_it_is_written(tmp_path: Path) -> None:
    written = install(tmp_path, "new-publisher", "my_broker")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(written / "tests")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=written, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "9 passed" in done.stdout


def test_what_is_written_is_typed_and_in_good_style(tmp_path: Path) -> None:
    assert_good_style(install(tmp_path, "new-publisher", "my_broker"), "outbox_my_broker")
