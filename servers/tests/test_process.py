"""A server process ends with its interpreter; the error says why it ended by itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from outbox_servers.services import ServiceError, free_port
from outbox_servers.services.process import ServerProcess, descendants

_PARENT = """
import sys, time
from pathlib import Path
from outbox_servers.services.process import ServerProcess

folder = Path(sys.argv[1]) / "data"
folder.mkdir()
command = ["sh", "-c", "sleep 600 & sleep 600"]
server = ServerProcess("sleeper", command, log=folder / "log", orphan_folder=folder)
print(server.pid, flush=True)
time.sleep(600)
"""


def _alive(pid: int) -> bool:
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _wait_for(condition: Callable[[], bool], timeout: float = 60) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_it_dies_with_a_killed_interpreter_and_leaves_no_folder(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _PARENT, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        group = int(parent.stdout.readline())
        assert _alive(group)
        parent.kill()
    _wait_for(lambda: not _alive(group))
    _wait_for(lambda: not (tmp_path / "data").exists())


def test_it_outlives_the_thread_that_started_it(tmp_path: Path) -> None:
    started: list[ServerProcess] = []
    thread = threading.Thread(
        target=lambda: started.append(ServerProcess("sleeper", ["sleep", "600"], log=tmp_path / "log"))
    )
    thread.start()
    thread.join()
    server = started[0]
    with pytest.raises(ServiceError, match=r"not ready after 0\.3 seconds"):
        server.wait_until_ready(lambda: False, timeout=0.3)
    assert server.running
    server.kill()
    assert not server.running


def test_killing_it_takes_its_descendants_along(tmp_path: Path) -> None:
    # setsid takes the grandchild out of the group, as PostgreSQL and PySpark do with theirs.
    script = f"{sys.executable} -c 'import os, time; os.setsid(); time.sleep(600)' & sleep 600"
    server = ServerProcess("family", ["sh", "-c", script], log=tmp_path / "log")
    _wait_for(lambda: any(os.getsid(pid) == pid for pid in descendants(server.pid)))
    family = descendants(server.pid)
    assert len(family) == 2
    server.kill()
    # They are orphans now: another process reaps them, perhaps a little later.
    _wait_for(lambda: all(_gone(pid) for pid in family))


def _gone(pid: int) -> bool:
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return state.stdout.strip()[:1] in ("", "Z")


def test_a_server_that_ends_early_shows_its_own_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("an earlier run\n")
    server = ServerProcess("broken", ["sh", "-c", "echo no such setting; exit 3"], log=log)
    with pytest.raises(ServiceError, match="exit code 3") as caught:
        server.wait_until_ready(lambda: False, timeout=30)
    assert "no such setting" in str(caught.value)
    assert "an earlier run" not in str(caught.value)
    server.kill()


def test_stop_falls_back_to_kill(tmp_path: Path) -> None:
    server = ServerProcess("stubborn", ["sh", "-c", "trap '' TERM; echo up; sleep 600"], log=tmp_path / "log")
    server.wait_until_ready(lambda: "up" in server.log_tail(), timeout=30)
    server.stop(signal.SIGTERM, timeout=0.3)
    assert not server.running
    server.stop()


def test_free_ports_are_below_the_ephemeral_range() -> None:
    ports = {free_port() for _ in range(20)}
    assert len(ports) > 1
    assert all(20000 <= port < 32768 for port in ports)
