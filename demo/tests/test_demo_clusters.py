"""The demonstration of several clusters, whole."""

import subprocess
import sys

import pytest


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_each_record_is_delivered_once_whoever_is_lost() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "outbox_demo.clusters"],
        check=False,
        capture_output=True,
        text=True,
        timeout=380,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "GOOD: every record was delivered once, by one cluster" in done.stdout
    assert done.stdout.count("400 records of") == 4
