"""A server process ends with its interpreter; the error says why it ended by itself."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from outbox_servers.services import ServiceError, free_port
from outbox_servers.services.process import PORTS, ServerProcess, descendants
from outbox_servers.services.thread_states import has_ended, is_free

_MANY_THREADS = """
import sys, threading
from pathlib import Path

def count(file, number):
    while True:
        file.seek(0)
        file.write(f"{number}\\n")
        number += 1

if len(sys.argv) > 2:
    import subprocess
    subprocess.Popen([sys.executable, __file__, sys.argv[1]], start_new_session=True)
for each in range(10):
    file = (Path(sys.argv[1]) / f"{len(sys.argv)}-{each}").open("w", buffering=1)
    threading.Thread(target=count, args=(file, 0)).start()
"""
"""Ten threads that change a file each, and a child in a session of its own that does the same."""

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


@pytest.mark.parametrize("late", [0.0, 0.3])
def test_it_is_paused_resumed_and_dead_when_the_method_returns(
    tmp_path: Path, late: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "counters.py"
    program.write_text(_MANY_THREADS)
    (counts := tmp_path / "counts").mkdir()
    command = [sys.executable, str(program), str(counts), "with a child"]
    server = ServerProcess("counters", command, log=tmp_path / "log")
    server.wait_until_ready(lambda: len(_read(counts)) == 20, timeout=60)
    family = [server.pid, *descendants(server.pid)]
    assert len(family) == 2
    if late:  # signals that have their effect later, as on a busy machine
        kill = os.kill
        monkeypatch.setattr(os, "kill", lambda *of: threading.Timer(late, _quietly, (kill, *of)).start())
    server.pause()
    held = _read(counts)
    time.sleep(0.1)
    assert _read(counts) == held
    server.resume()
    assert all(map(is_free, family))
    _wait_for(lambda: not _read(counts).items() & held.items())
    server.kill()
    assert all(map(has_ended, family))


def _quietly(kill: Callable[[int, int], None], pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        kill(pid, number)


def _read(folder: Path) -> dict[str, str]:
    return {each.name: text for each in folder.iterdir() if (text := each.read_text())}


def test_killing_it_takes_its_descendants_along_and_closes_their_ports(tmp_path: Path) -> None:
    # setsid takes the grandchild out of the group, as PostgreSQL and PySpark do with theirs.
    port = free_port()
    child = f"""
import os, socket, time
os.setsid()
server = socket.create_server(("127.0.0.1", {port}))
time.sleep(600)
"""
    # The shell that starts the last one ends at once.
    script = f"{sys.executable} -c '{child.replace(chr(39), chr(34))}' & (sleep 600 &); sleep 600"
    server = ServerProcess("family", ["sh", "-c", script], log=tmp_path / "log")
    server.wait_until_ready(lambda: _listens(port), timeout=60)
    _wait_for(lambda: len(descendants(server.pid)) == 3)
    family = descendants(server.pid)
    server.kill()
    assert not _listens(port)
    assert all(map(has_ended, family))


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_server_that_was_paused_can_be_stopped(tmp_path: Path) -> None:
    script = "trap 'echo bye; exit' TERM; echo up; while :; do sleep 0.05; done"
    server = ServerProcess("frozen", ["sh", "-c", script], log=tmp_path / "log")
    server.wait_until_ready(lambda: "up" in server.log_tail(), timeout=30)
    server.pause()
    server.stop()
    assert "bye" in server.log_tail()


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


def test_free_ports_are_below_the_ephemeral_range_and_nobody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    assert PORTS.start == 20000
    assert PORTS.stop == 32768
    monkeypatch.setattr("outbox_servers.services.process.PORTS", range(20000, 20100))
    mine = {free_port() for _ in range(20)}
    assert len(mine) == 20
    script = (
        "from outbox_servers.services import process; process.PORTS = range(20000, 20100);"
        "print(*(process.free_port() for _ in range(20)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    theirs = set(map(int, done.stdout.split()))
    assert len(theirs) == 20
    assert mine.isdisjoint(theirs)


@pytest.mark.parametrize("interrupted", [1, 2], ids=["the server", "its guard"])
def test_an_interrupt_while_a_server_is_started_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interrupted: int
) -> None:
    started: list[subprocess.Popen[bytes]] = []

    class Popen(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            if "start_new_session" in options:
                started.append(self)
                if len(started) == interrupted:
                    signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(subprocess, "Popen", Popen)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            ServerProcess("sleeper", ["sleep", "600"], log=tmp_path / "log")
    finally:
        signal.signal(signal.SIGINT, before)
    assert [each.wait(60) is None for each in started] == [False, False]
