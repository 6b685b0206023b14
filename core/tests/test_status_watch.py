"""`outbox status --watch`: in place on a terminal, one below the other elsewhere; databases that are away."""

import json
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import psycopg
import pytest
from outbox_api import Backlog, ConfigError, DriverError, Parked
from outbox_core.cli import status
from outbox_core.settings import HarvestSettings
from outbox_core.status.snapshot import Snapshot

from .cli_runner import OUTBOX, outbox, told
from .terminals import Terminal

STATE = Snapshot("outbox", Backlog(0, exact=True, oldest=None), Parked(0, None), [], 15.0)
AWAY = DriverError("cannot read the fence: connection refused", retryable=True)
TIME = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\n", re.MULTILINE)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The configuration of an outbox in SQLite."""
    path = tmp_path / "outbox.yaml"
    harvest = {"engine": "inline", "elector": "static", "dialect": "sqlite"}
    path.write_text(json.dumps({"harvest": {**harvest, "dataSource": str(tmp_path / "box.db")}}))
    told(path, "init")
    return path


WITHOUT_KEYS = """
import sys
sys.modules["textual"] = None
from outbox_core.cli import main
main(sys.argv[1:])
"""


def watched(file: Path, *options: str, interval: str = "100ms", keys: bool = True) -> list[str]:
    """Returns the command; without ``keys`` as where textual is not installed."""
    program = [OUTBOX] if keys else [sys.executable, "-c", WITHOUT_KEYS]
    return [*program, "status", "--watch", "--interval", interval, "-f", str(file), *options]


# On a terminal


def insert(file: Path, records: int) -> None:
    with closing(sqlite3.connect(file.with_name("box.db"))) as connection, connection:
        columns = [row[1] for row in connection.execute("PRAGMA table_info(outbox)") if row[3] and not row[5]]
        row = ", ".join("CURRENT_TIMESTAMP" if "time" in name else "'[]'" for name in columns)
        for _ in range(records):
            connection.execute(f"INSERT INTO outbox ({', '.join(columns)}) VALUES ({row})")


def test_a_window_is_redrawn_until_ctrl_c(file: Path):
    with Terminal(watched(file, keys=False)) as terminal:
        terminal.until(lambda text: "backlog  0 records" in text and "nobody has ever led" in text)
        assert terminal.text.startswith("for keys: pip install 'outbox-harvester[watch]'\n")
        insert(file, 5)
        terminal.until(lambda text: "backlog  5 records" in text)
        terminal.resize(60, 12)
        insert(file, 2)
        terminal.until(lambda text: "backlog  7 records" in text)
        assert terminal.text.count("backlog") == 1
        assert b"\x1b[2m" in terminal.raw
        assert terminal.interrupt() == 0
        assert "Traceback" not in terminal.text
        assert "7 records" in terminal.text


def test_a_window_without_colours(file: Path):
    with Terminal(
        watched(file), NO_COLOR="1", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0"
    ) as terminal:
        insert(file, 1)
        terminal.until(lambda text: "backlog  1 records" in text)
        assert terminal.interrupt() == 0
        assert not re.search(rb"\x1b\[[0-9;]*3[0-7]", terminal.raw)
        assert terminal.raw.isascii()


def test_a_dumb_terminal_gets_one_below_the_other(file: Path):
    with Terminal(watched(file), TERM="dumb", lines=60) as terminal:
        terminal.until(lambda text: text.count("backlog  0") >= 3)
        assert terminal.interrupt() == 0
        assert b"\x1b" not in terminal.raw


def test_json_stays_one_object_a_line_on_a_terminal(file: Path):
    with Terminal(watched(file, "--json"), columns=4000) as terminal:
        terminal.until(lambda text: text.count('"backlog"') >= 2)
        first = terminal.text.splitlines()[0]
        assert json.loads(first)["outbox"] == "outbox"
        assert terminal.interrupt() == 0


# With keys


@pytest.mark.parametrize("end", ["q", "\x03", signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_keys_until_the_end(end: str | signal.Signals, file: Path):
    with Terminal(watched(file)) as terminal:
        assert not terminal.is_raw()
        terminal.until(lambda text: "backlog  0 records" in text and "0 keys parked" in text)
        assert terminal.is_raw()
        terminal.press("?")
        terminal.until(lambda text: "q, Ctrl-C" in text)
        insert(file, 5)
        terminal.resize(60, 12)
        terminal.press("\x1b")
        terminal.until(lambda text: "backlog  5 records" in text)
        if isinstance(end, str):
            terminal.press(end)
            assert terminal.ended() == 0
        else:
            assert terminal.interrupt(end) == 0
        assert not terminal.is_raw()
        assert b"\x1b[?1049l" in terminal.raw.rpartition(b"\x1b[?1049h")[2]  # the window as it was before
        assert not re.search(
            rb"\x1b\[>\d+u", terminal.raw
        )  # which a session that breaks off would leave behind
        assert "Traceback" not in terminal.text
        last = terminal.raw.rpartition(b"\x1b[?1049l")[2].decode()
        assert "backlog  5 records" in re.sub(r"\x1b\[[0-9;]*m", "", last)


def test_keys_without_colours(file: Path):
    with Terminal(watched(file), NO_COLOR="1") as terminal:
        terminal.until(lambda text: "0 keys parked" in text)
        terminal.press("q")
        assert terminal.ended() == 0
        sent = {
            int(each)
            for codes in re.findall(rb"\x1b\[([0-9;]+)m", terminal.raw)
            for each in codes.split(b";")
        }
        assert sent <= {0, 1, 2, 7, 39, 49}


def test_the_chosen_line_is_seen_without_colours(tmp_path: Path):
    data = {
        "harvest": {"engine": "inline", "elector": "static", "dialect": "sqlite"},
        "outboxes": {
            name: {"dataSource": str(tmp_path / "none.db"), "outboxTable": name} for name in ("one", "two")
        },
    }
    file = tmp_path / "outbox.yaml"
    file.write_text(json.dumps(data))
    with Terminal(watched(file), NO_COLOR="1") as terminal:
        terminal.until(
            lambda text: (
                all(re.search(rf"{name} +Database away", text) for name in ("one", "two")) and "quit" in text
            )
        )
        lines = terminal.text.splitlines()
        reversed_ = [terminal.screen.buffer[lines.index(line)][2].reverse for line in lines if "away" in line]
        assert reversed_ == [True, False]


def test_a_terminal_that_is_gone_ends_it(file: Path):
    with Terminal(watched(file)) as terminal:
        terminal.until(lambda text: "backlog  0 records" in text)
        terminal.vanish()
        terminal.process.wait(30)


def test_it_ends_while_a_database_hangs(postgres_dsn: str, tmp_path: Path):
    file = tmp_path / "outbox.yaml"
    times = {"lockTimeout": "1h", "statementTimeout": "1h"}
    dialect = {"driver": "postgres", "dataSource": postgres_dsn, **times}
    file.write_text(json.dumps({"harvest": {"engine": "inline", "elector": "static", "dialect": dialect}}))
    told(file, "init")
    with psycopg.connect(postgres_dsn) as connection, Terminal(watched(file)) as terminal:
        terminal.until(lambda text: "0 keys parked" in text and "backlog  0 records" in text)
        connection.execute("LOCK TABLE outbox_fence IN ACCESS EXCLUSIVE MODE")
        terminal.until(lambda text: re.search(r"as of +20.* ago", text))
        terminal.press("q")
        assert terminal.ended() == 0, "and not only once the lock is released"


def test_an_error_that_lasts_ends_it_with_keys_as_without(postgres_dsn: str, tmp_path: Path):
    file = tmp_path / "outbox.yaml"
    harvest = {"engine": "inline", "elector": "static", "dataSource": postgres_dsn}
    file.write_text(json.dumps({"harvest": harvest}))
    for keys in (True, False):
        with Terminal(watched(file, keys=keys), columns=200) as terminal:
            assert terminal.ended() == 1
            assert "outbox init" in terminal.text
            assert not terminal.is_raw()


@pytest.mark.parametrize("stream", ["</dev/null", "2>/dev/null"])
def test_streams_that_are_no_terminal_take_no_keys(stream: str, file: Path):
    command = ["/bin/sh", "-c", f'exec "$@" {stream}', "sh", *watched(file)]
    with Terminal(command) as terminal:
        terminal.until(lambda text: "backlog  0 records" in text)
        assert terminal.interrupt() == 0
        assert b"1049" not in terminal.raw


# In a file


def test_a_file_gets_what_status_prints_again_and_again(file: Path, tmp_path: Path):
    shown = tmp_path / "shown"
    with shown.open("w") as output:
        process = subprocess.Popen(watched(file), stdout=output, stderr=subprocess.PIPE, text=True)
        try:
            while shown.read_text().count("outbox") < 3:
                assert process.poll() is None
                time.sleep(0.02)
            process.send_signal(signal.SIGINT)
            assert process.communicate(timeout=60)[1] == ""
        finally:
            process.kill()
    assert process.returncode == 0
    _, *states = TIME.split(shown.read_text())
    assert set(states) == {told(file, "status")}


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Callable[[Sequence[Any]], None]:
    """Has the next looks return what is given, or raise it; then a signal ends them."""

    def script(states: Sequence[Snapshot | Exception]) -> None:
        coming = iter(states)

        class Scripted:
            def __enter__(self) -> Self:
                return self

            def __exit__(self, *_: object) -> None:
                pass

            def snapshot(self, _: HarvestSettings) -> Snapshot:
                state = next(coming)
                if len(states) and state is states[-1]:
                    signal.raise_signal(signal.SIGINT)
                if isinstance(state, Exception):
                    raise state
                return state

        monkeypatch.setattr(status, "Views", Scripted)

    return script


def test_a_database_that_is_away_is_told(file: Path, looks: Callable[[Sequence[Any]], None]):
    looks([STATE, AWAY, AWAY, replace(STATE, outbox="last")])
    done = outbox(file, "status", "--watch", "--interval", "1ms")
    assert done.returncode == 0
    assert done.stderr == ""
    _, first, away, still, last = TIME.split(done.stdout)
    assert "nobody has ever led" in first
    assert away == still == f"{AWAY}\n"
    assert last.startswith("outbox   last")


def test_a_database_that_is_away_and_json(file: Path, looks: Callable[[Sequence[Any]], None]):
    looks([AWAY, STATE, replace(STATE, outbox="last")])
    done = outbox(file, "status", "--watch", "--json", "--interval", "1ms")
    assert done.returncode == 0
    assert [json.loads(line)["outbox"] for line in done.stdout.splitlines()] == ["outbox", "last"]
    assert done.stderr.startswith(f"error: {AWAY}\n")


def test_an_error_that_lasts_ends_it(file: Path, looks: Callable[[Sequence[Any]], None]):
    looks([STATE, ConfigError("there is no such table")])
    done = outbox(file, "status", "--watch", "--interval", "1ms")
    assert done.returncode == 78
    assert "no such table" in done.stderr


def test_several_outboxes(tmp_path: Path):
    data = {
        "harvest": {"engine": "inline", "elector": "static"},
        "outboxes": {
            "here": {"dialect": {"driver": "sqlite", "dataSource": str(tmp_path / "here.db")}},
            "gone": {"dialect": {"driver": "sqlite", "dataSource": str(tmp_path / "no" / "folder.db")}},
        },
    }
    file = tmp_path / "outbox.yaml"
    file.write_text(json.dumps(data))
    told(file, "init", "--outbox", "here")
    with Terminal(watched(file, keys=False)) as terminal:
        terminal.until(lambda text: "gone: " in text)
        assert re.search(r"here +0", terminal.text)
        assert re.search(r"gone +- +- +- +- +not known", terminal.text)
        assert terminal.interrupt() == 0
