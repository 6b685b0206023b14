"""`outbox status --watch` with keys: outboxes of a real PostgreSQL, one that hangs, one that is away."""

import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
import pytest
from outbox_api import ConfigError, DriverError
from outbox_core.cli.invocation import StopRequest
from outbox_core.cli.outboxes import Chosen
from outbox_core.cli.watching import app as app_module
from outbox_core.cli.watching.app import Watch, watch
from outbox_core.cli.watching.known import Watched
from outbox_core.cli.watching.lines import Lines
from outbox_core.config import load
from psycopg.conninfo import make_conninfo
from rich.text import Text
from textual.app import App, ComposeResult
from textual.pilot import Pilot

from .cli_runner import outbox, told

HOSTILE = "[red]stop[/] [@click=app.quit]me[/]\x1b[2J\u202e"
LONG = f"long-{'x' * 3000}"
LED = """
    INSERT INTO outbox_fence (name, lane, lanes, token, epoch, holder, identity, since, heartbeat_at)
    VALUES (%s, 0, 1, 1, 1, 'somebody', '', clock_timestamp(), clock_timestamp() + interval '1 hour')
"""
PARKED = """
    INSERT INTO outbox_dead_letters
        (name, id, kafka_topic, kafka_key, kafka_value, status, reason, attempts, since)
    VALUES (%s, %s, 'orders', %s, 'secret', 'parked', %s, 3, clock_timestamp())
"""


@pytest.fixture
def database(postgres_dsn: str, tmp_path: Path) -> Iterator[psycopg.Connection]:
    """Outboxes: ``fine`` is led, nobody leads ``lonely``, and ``sick`` has keys that are parked."""
    several = {name: {"outboxTable": f"{name}_box"} for name in ("fine", "lonely", "sick")}
    harvest = {"engine": "inline", "elector": "static", "dataSource": postgres_dsn}
    file = tmp_path / "outbox.yaml"
    file.write_text(json.dumps({"harvest": harvest, "outboxes": several}))
    told(file, "init")
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        for name in ("public.fine_box", "public.sick_box"):
            connection.execute(LED, (name,))
        for number, key in enumerate(("order-1", HOSTILE, LONG), 1):
            connection.execute(PARKED, ("public.sick_box", number, key, f"too large: {key[:40]}"))
        yield connection


class Keys:
    """Presses keys, and reads the window."""

    def __init__(self, app: Watch, pilot: Pilot[None], stop: StopRequest) -> None:
        self.app, self.pilot, self.stop = app, pilot, stop
        self.press = pilot.press

    @property
    def text(self) -> str:
        strips = self.app.screen._compositor.render_strips()
        return "\n".join("".join(each.text for each in strip).rstrip() for strip in strips)

    async def until(self, shown: Callable[[str], object], seconds: float = 20.0) -> str:
        for _ in range(int(seconds / 0.05)):
            if shown(self.text):
                return self.text
            await self.pilot.pause(0.05)
        raise AssertionError(self.text)


@asynccontextmanager
async def watching(
    folder: Path, outbox: str | None = None, size: tuple[int, int] = (80, 24)
) -> AsyncIterator[Keys]:
    stop = StopRequest()
    app = Watch(Watched(Chosen.by_user(load(folder / "outbox.yaml", {}), outbox), 0.1), stop)
    async with app.run_test(size=size) as pilot:
        yield Keys(app, pilot, stop)


def cursor(keys: Keys) -> str:
    table = keys.app.screen.query_one(Lines)
    return str(table.ordered_rows[table.cursor_row].key.value)


async def test_from_all_outboxes_to_one_key_and_back(database: psycopg.Connection, tmp_path: Path):
    async with watching(tmp_path) as keys:
        text = await keys.until(lambda text: "2 of 3 outboxes need attention." in text)
        assert re.findall(r"^ (\w+) +(\d problem|All is well)", text, re.MULTILINE) == [
            ("lonely", "1 problem"),
            ("sick", "1 problem"),
            ("fine", "All is well"),
        ]
        await keys.press("j", "down", "k")
        assert cursor(keys) == "sick"
        await keys.press("enter")
        text = await keys.until(lambda text: "sick: 3 keys parked" in text)
        assert "parked   3 keys" in text
        assert "leader   somebody" in text
        await keys.press("enter")
        text = await keys.until(lambda text: "parked show --id 1" in text)
        assert re.search(r"key +order-1\n.*id +1\n.*topic +orders\n", text)
        assert re.search(r"parked +since 20.*, .* ago, after 3 attempts", text)
        assert "secret" not in text
        database.execute("DELETE FROM outbox_dead_letters WHERE id = 1")
        await keys.until(lambda text: "It is not parked any more." in text and "order-1" in text)
        await keys.press("escape")
        await keys.until(lambda text: "sick: 2 keys parked" in text)
        await keys.press("question_mark")
        await keys.until(lambda text: "q, Ctrl-C" in text)
        await keys.press("question_mark", "escape", "escape", "escape")
        await keys.until(lambda text: "3 of 3 shown" in text)
        assert cursor(keys) == "sick"
        await keys.press("q")
    assert keys.app.return_code == 0


async def test_problems_alone_and_a_text(database: psycopg.Connection, tmp_path: Path):
    async with watching(tmp_path) as keys:
        await keys.until(lambda text: "2 of 3 outboxes need attention." in text)
        await keys.press("p")
        assert "fine" not in await keys.until(lambda text: "2 of 3 shown, those with problems" in text)
        await keys.press("slash", *"JqSK"[2:], "ctrl+u", *"SICK")
        text = await keys.until(lambda text: "1 of 3 shown" in text)
        assert "lonely" not in text
        await keys.press("enter", "enter")
        await keys.until(lambda text: "sick: 3 keys parked" in text)
        await keys.press("slash", *"order-1")
        await keys.until(lambda text: "sick: 1 key parked" in text)
        await keys.press("escape")
        await keys.until(lambda text: "sick: 3 keys parked" in text)
        await keys.press("escape", "escape", "p")
        await keys.until(lambda text: "3 of 3 shown\n" in text)


async def test_keys_of_others_are_no_markup_and_are_cut(database: psycopg.Connection, tmp_path: Path):
    escaped = r"[red]stop[/] [@click=app.quit]me[/]\x1b[2J\u202e"
    async with watching(tmp_path, "sick") as keys:
        text = await keys.until(lambda text: "3 keys parked" in text)
        assert escaped[:39] + "…" in text
        assert f"long-{'x' * 34}…" in text
        await keys.press("j", "enter")
        text = await keys.until(lambda text: "--id 2" in text)
        assert escaped in text
        await keys.press("escape", "j", "enter")
        text = await keys.until(lambda text: "--id 3" in text)
        assert 245 <= text.count("x") - text.count("partition") <= 300
        await keys.press("escape")
        await keys.pilot.resize_terminal(30, 8)
        await keys.until(lambda text: "sick" in text and "quit" not in text.splitlines()[0])
        await keys.pilot.resize_terminal(200, 60)
        await keys.until(lambda text: rf"too large: {escaped[:40]}" in text)


async def test_the_cursor_stays_on_its_line(database: psycopg.Connection, tmp_path: Path):
    for number in range(10, 60):
        database.execute(PARKED, ("public.sick_box", number, f"key-{number}", "no topic"))
    async with watching(tmp_path, "sick") as keys:
        await keys.until(lambda text: "53 keys parked" in text)
        await keys.press(*["j"] * 40)
        chosen = cursor(keys)
        top = keys.app.screen.query_one(Lines).scroll_y
        database.execute("DELETE FROM outbox_dead_letters WHERE id = 1")
        await keys.until(lambda text: "52 keys parked" in text)
        assert cursor(keys) == chosen
        await keys.pilot.pause(0.5)
        assert keys.app.screen.query_one(Lines).scroll_y == top > 0


async def test_a_cell_that_grows_is_whole():
    class Table(App[None]):
        def compose(self) -> ComposeResult:
            yield Lines([Text("leader")])

    async with Table().run_test(size=(80, 5)) as pilot:
        for text in ("-", "none yet", "x", "somebody else", "-"):
            pilot.app.query_one(Lines).fill([("one", [Text(text)])])
            await pilot.pause()
            shown = "".join(each.text for each in pilot.app.screen._compositor.render_strips()[1])
            assert shown.strip() == text


async def test_what_is_paused(database: psycopg.Connection, tmp_path: Path):
    outbox(
        tmp_path / "outbox.yaml", "pause", "--outbox", "sick", "--topic", "orders", "--yes", "--wait", "0s"
    )
    async with watching(tmp_path, "sick", (120, 24)) as keys:
        await keys.until(lambda text: re.search(r"topic orders +20", text))
        await keys.until(lambda text: re.search(r"paused +since +until +in effect", text))


async def test_a_database_that_hangs_and_one_that_is_away(
    database: psycopg.Connection, postgres_dsn: str, tmp_path: Path
):
    async with watching(tmp_path) as keys:
        await keys.until(lambda text: "All is well" in text)
        with database.transaction():
            database.execute("LOCK TABLE outbox_fence IN ACCESS EXCLUSIVE MODE")
            text = await keys.until(lambda text: text.count("Database away") == 3)
            assert re.search(r"sick +Database away, \d+\S* ago +0 +- +3 +0 +somebody", text)
            await keys.press("enter")
            text = await keys.until(lambda text: re.search(r"as of +20.* ago", text))
            assert "database-unreachable" in text
            await keys.press("escape", "j", "k", "j")
            assert cursor(keys) == "lonely"
        await keys.until(lambda text: "2 of 3 outboxes need attention." in text)
        name = database.info.dbname
        with psycopg.connect(make_conninfo(postgres_dsn, dbname="postgres"), autocommit=True) as other:
            other.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
            other.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,)
            )
            await keys.until(lambda text: text.count("Database away") == 3)
            await keys.press("enter")
            await keys.until(lambda text: re.search(r"not currently\s+accepting", text))
            other.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')
            await keys.press("escape")
            await keys.until(lambda text: "2 of 3 outboxes need attention." in text)


async def test_a_signal_ends_it(database: psycopg.Connection, tmp_path: Path):
    async with watching(tmp_path) as keys:
        keys.stop.set()
        while keys.app.is_running:
            await keys.pilot.pause(0.05)
    assert keys.app.return_code == 0


@pytest.fixture
def headless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has it run without a terminal."""
    monkeypatch.setattr(app_module.Watch, "run", lambda self, mouse: App.run(self, headless=True))


@pytest.mark.parametrize("failure", [ConfigError("no table"), DriverError("no table", retryable=False)])
def test_an_error_that_lasts_ends_it(
    failure: Exception,
    headless: None,
    database: psycopg.Connection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    def fail(*_: object) -> None:
        raise failure

    monkeypatch.setattr("outbox_core.cli.watching.known.Views.snapshot", fail)
    chosen = Chosen.by_user(load(tmp_path / "outbox.yaml", {}), "sick")
    with pytest.raises(type(failure), match="no table"):
        watch(chosen, 0.1, StopRequest())


def test_a_defect_is_told_without_variables(
    headless: None,
    database: psycopg.Connection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
):
    async def fail(_: object) -> None:
        password = "swordfish"
        raise RuntimeError(f"defect of {len(password)}")

    monkeypatch.setattr(Watched, "look", fail)
    with pytest.raises(Exception, match="defect of 9"):
        watch(Chosen.by_user(load(tmp_path / "outbox.yaml", {}), None), 0.1, StopRequest())
    assert "swordfish" not in "".join(capfd.readouterr())
