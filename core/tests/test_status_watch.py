"""`outbox status --watch`: what fits which window, lines where there is none, and a database that is away."""

import io
import json
import re
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import pyte
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from outbox_api import Backlog, ConfigError, DriverError, Parked
from outbox_core.cli import watching
from outbox_core.cli.graphs import NARROWEST_WINDOW, drawn, graphs
from outbox_core.cli.screen import Screen
from outbox_core.cli.snapshot import as_text
from outbox_core.cli.watching import in_brief
from outbox_core.config import HarvestSettings
from outbox_core.history import Point
from outbox_core.snapshot import Snapshot
from rich.console import Console
from rich.live import Live
from rich.text import Text

from .cli_runner import OUTBOX, outbox, told
from .terminals import Terminal
from .test_cli_snapshot import NOON, lane_status, take

STATE = Snapshot("outbox", Backlog(0, exact=True, oldest=None), Parked(0, None), [], 15.0)
AWAY = DriverError("cannot read the fence: connection refused", retryable=True)
LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The configuration of an outbox in SQLite."""
    path = tmp_path / "outbox.yaml"
    harvest = {"engine": "inline", "elector": "static", "dialect": "sqlite"}
    path.write_text(json.dumps({"harvest": {**harvest, "dataSource": str(tmp_path / "box.db")}}))
    told(path, "init")
    return path


def watched(file: Path, *options: str, interval: str = "100ms") -> list[str]:
    return [OUTBOX, "status", "--watch", "--interval", interval, "-f", str(file), *options]


# What is drawn


@pytest.mark.parametrize(
    ("values", "width", "shown"),
    [
        ([], 5, ""),
        ([0, 0], 5, "▁▁"),
        ([0, 1, 4, 7], 5, "▁▂▅█"),
        ([0.0, 0.001, 1000.0], 5, "▁▂█"),
        ([7, None, 7], 5, "█ █"),
        ([None, None], 5, "  "),
        ([7, 0, None, 0, None, None], 3, "█▁ "),
        ([1, 2, 3], 0, "█"),
    ],
)
def test_values_as_blocks(values: list[float | None], width: int, shown: str):
    assert drawn(values, width) == shown


@given(st.lists(st.one_of(st.none(), st.floats(0, 1e12)), max_size=500), st.integers(1, 80))
def test_any_values_fit(values: list[float | None], width: int):
    shown = drawn(values, width)
    assert len(shown) <= width
    assert bool(shown.strip()) == any(value is not None for value in values)


def points(count: int) -> list[Point]:
    return [Point(NOON, number, float(number), 2.0 * number) for number in range(count)]


def printed(renderable: object, width: int = 80, height: int = 24) -> str:
    console = Console(width=width, height=height, highlight=False)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


def test_graphs_say_now_and_most():
    snapshot = replace(STATE, backlog=Backlog(3, exact=True, oldest=75.0))
    backlog, oldest, rate = printed(graphs(points(1001), snapshot)).splitlines()
    assert re.fullmatch(r"backlog  ▂.*█ +now 3 +max 1,000 *", backlog)
    assert re.fullmatch(r"oldest   ▂.*█ +now 1m15s +max 16m40s *", oldest)
    assert re.fullmatch(r"rate     ▂.*█ +now 0/s +max 2,000/s *", rate)
    assert re.search(r"now - +max 5 *\n", printed(graphs(points(6), None)))
    assert printed(graphs([Point(NOON)], None)).count("max -") == 3


@settings(max_examples=30)
@given(
    st.integers(20, 200),
    st.integers(3, 60),
    st.integers(1, 40),
    st.lists(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=300), max_size=20),
    st.booleans(),
)
def test_whatever_the_window_nothing_overflows(
    width: int, height: int, lanes: int, happened: list[str], alone: bool
):
    state = as_text(take(*(lane_status(number, lanes=lanes) for number in range(lanes))))
    drawing = graphs(points(100), STATE) if alone else None
    screen = Screen(state, drawing, [("12:00:00", text) for text in happened])
    lines = printed(screen, width, height).splitlines()
    assert len(lines) <= height
    assert all(len(line) <= width for line in lines)
    assert not alone or sum("max" in line for line in lines) == 3 or width < 30 or height < 9


@pytest.mark.parametrize(
    ("width", "height"), [(20, 5), (20, 8), (30, 6), (47, 9), (80, 5), (200, 5), (80, 8)]
)
def test_in_a_small_window_the_figures_come_before_graphs(width: int, height: int):
    state = replace(take(*(lane_status(number) for number in range(20))), backlog=Backlog(4711, True, 75.0))
    drawing, happened = graphs(points(100), state), [("12:00:00", "an event")] * 20
    brief = Text(in_brief(state))
    shown = printed(Screen(as_text(state), drawing, happened, brief, NARROWEST_WINDOW), width, height)
    assert len(shown.splitlines()) <= height
    for figure in ("backlog", "4,711", "parked", "leader", state.lanes[0].holder):
        assert figure in shown
    assert width >= NARROWEST_WINDOW or "max" not in shown


def test_the_last_happenings_have_room_in_a_usual_window():
    state = as_text(take(*(lane_status(number, lanes=20) for number in range(20))))
    happened = [("12:00:00", f"event {number}") for number in range(20)]
    shown = printed(Screen(state, graphs(points(5), STATE), happened))
    assert re.findall(r"event (\d+)", shown) == ["15", "16", "17", "18", "19"]
    assert "more lines)" in shown
    shown = printed(Screen(state, graphs(points(5), STATE), happened), height=50)
    assert len(re.findall(r"event (\d+)", shown)) > 5
    assert "more lines)" not in shown


def test_a_full_window_is_redrawn_in_place():
    written, screen = io.StringIO(), pyte.Screen(80, 24)
    console = Console(file=written, width=80, height=24, force_terminal=True, highlight=False)
    with Live(console=console, auto_refresh=False) as live:
        for number in range(30):
            lanes = 1 + 7 * number % 30
            state = as_text(take(*(lane_status(lane, lanes=lanes) for lane in range(lanes))))
            happened = [("12:00:00", f"event {each}" * each) for each in range(number + 1)]
            live.update(Screen(state, graphs(points(number), STATE), happened), refresh=True)
        pyte.Stream(screen).feed(written.getvalue().replace("\n", "\r\n"))
    assert screen.display[0].startswith("outbox   shop.outbox")
    shown = "\n".join(screen.display)
    assert (shown.count("shop.outbox"), shown.count("max ")) == (1, 3)
    assert "event 29" in shown


# On a terminal


def insert(file: Path, records: int) -> None:
    with closing(sqlite3.connect(file.with_name("box.db"))) as connection, connection:
        columns = [row[1] for row in connection.execute("PRAGMA table_info(outbox)") if row[3] and not row[5]]
        row = ", ".join("CURRENT_TIMESTAMP" if "time" in name else "'[]'" for name in columns)
        for _ in range(records):
            connection.execute(f"INSERT INTO outbox ({', '.join(columns)}) VALUES ({row})")


def test_a_window_is_redrawn_until_ctrl_c(file: Path):
    with Terminal(watched(file)) as terminal:
        terminal.until(lambda text: re.search(r"now 0 +max 0\n", text) and "nobody has ever led" in text)
        insert(file, 5)
        terminal.until(lambda text: "backlog  5 records" in text and re.search(r"now 5 +max 5\n", text))
        assert "█" in terminal.text
        terminal.resize(60, 12)
        insert(file, 2)
        terminal.until(lambda text: re.search(r"now 7 +max 7\n", text))
        assert b"\x1b[2m" in terminal.raw
        assert terminal.interrupt() == 0
        assert "Traceback" not in terminal.text
        assert "now 7" in terminal.text


def test_a_window_without_colours_and_blocks(file: Path):
    with Terminal(
        watched(file), NO_COLOR="1", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0"
    ) as terminal:
        insert(file, 1)
        terminal.until(lambda text: "now 1" in text)
        assert terminal.interrupt() == 0
        assert not re.search(rb"\x1b\[[0-9;]*3[0-7]", terminal.raw)
        assert terminal.raw.isascii()
        assert re.search(r"backlog +_*# +now 1", terminal.text)


def test_a_dumb_terminal_gets_lines(file: Path):
    with Terminal(watched(file), TERM="dumb") as terminal:
        terminal.until(lambda text: text.count("backlog 0") >= 3)
        assert terminal.interrupt() == 0
        assert b"\x1b" not in terminal.raw


def test_json_stays_one_object_a_line_on_a_terminal(file: Path):
    with Terminal(watched(file, "--json"), columns=4000) as terminal:
        terminal.until(lambda text: text.count('"backlog"') >= 2)
        first = terminal.text.splitlines()[0]
        assert json.loads(first)["outbox"] == "outbox"
        assert terminal.interrupt() == 0


# In a file


def test_a_file_gets_a_line_for_each_look(file: Path, tmp_path: Path):
    shown = tmp_path / "shown"
    with shown.open("w") as output:
        process = subprocess.Popen(watched(file), stdout=output, stderr=subprocess.PIPE, text=True)
        try:
            while len(shown.read_text().splitlines()) < 3:
                assert process.poll() is None
                time.sleep(0.02)
            process.send_signal(signal.SIGINT)
            assert process.communicate(timeout=60)[1] == ""
        finally:
            process.kill()
    assert process.returncode == 0
    lines = shown.read_text().splitlines()
    said = " backlog 0, oldest -, parked 0, records/s 0, leader none yet"
    assert all(re.fullmatch(rf"\S+ \S+{re.escape(said)}", line) for line in lines)


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

        monkeypatch.setattr(watching, "Views", Scripted)

    return script


def in_lines(text: str) -> list[str]:
    """Returns lines without their time."""
    assert all(LINE.match(line) for line in text.splitlines())
    return [line[20:] for line in text.splitlines()]


BRIEF = "backlog 0, oldest -, parked 0, records/s 0, leader none yet"


def test_a_database_that_is_away_is_told_once(file: Path, looks: Callable[[Sequence[Any]], None]):
    looks([STATE, AWAY, AWAY, AWAY, replace(STATE, outbox="last")])
    done = outbox(file, "status", "--watch", "--interval", "1ms")
    assert done.returncode == 0
    assert done.stderr == ""
    first, away, back, last = in_lines(done.stdout)
    assert (first, last) == (BRIEF, BRIEF)
    assert away == f"database-away: the database cannot be queried: {AWAY}"
    assert back.startswith("database-back: the database can be queried again, after ")


def test_a_database_that_is_away_and_json(file: Path, looks: Callable[[Sequence[Any]], None]):
    looks([AWAY, AWAY, STATE, replace(STATE, outbox="last")])
    done = outbox(file, "status", "--watch", "--json", "--interval", "1ms")
    assert done.returncode == 0
    assert [json.loads(line)["outbox"] for line in done.stdout.splitlines()] == ["outbox", "last"]
    away, back = done.stderr.splitlines()
    assert "connection refused" in away
    assert "again" in back


def test_an_error_that_lasts_ends_it(file: Path, looks: Callable[[Sequence[Any]], None]):
    looks([STATE, ConfigError("there is no such table")])
    done = outbox(file, "status", "--watch", "--interval", "1ms")
    assert done.returncode == 78
    assert "no such table" in done.stderr


def test_what_happens_is_a_line(file: Path, looks: Callable[[Sequence[Any]], None]):
    parked = replace(STATE, parked=Parked(2, 1.0))
    looks([STATE, parked, take(lane_status(0, lanes=1))])
    done = outbox(file, "status", "--watch", "--interval", "1ms")
    assert in_lines(done.stdout) == [
        BRIEF,
        "keys-parked: 2 keys were parked",
        BRIEF.replace("parked 0", "parked 2"),
        "leader-changed: host_1_2 leads",
        "keys-freed: 2 keys were freed, none is parked now",
        "problem-began: the oldest record is 1m15s old, more than 1m",
        "backlog about 1,234, oldest 1m15s, parked 0, records/s 100, leader host_1_2",
    ]


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
    with Terminal(watched(file)) as terminal:
        terminal.until(lambda text: "gone: the database cannot be queried" in " ".join(text.split()))
        assert re.search(r"here +0", terminal.text)
        assert terminal.interrupt() == 0
    process = subprocess.Popen(watched(file), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(4)]
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert "gone: database-away: " in lines[0]
    assert all(f" here: {BRIEF}" in line for line in lines[1:])
