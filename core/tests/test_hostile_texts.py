"""Texts of others in log lines and on terminals: they forge no line, drive no terminal and are no markup."""

from __future__ import annotations

import io
import json
import logging
import re
import sqlite3
import sys
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from outbox_core.cli.console import PlainConsole
from outbox_core.cli.logs import configure_logging
from outbox_core.settings.logs import LogFormat, LogLevel
from outbox_core.text.printable import printable, printable_json
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from .cli_runner import outbox, told
from .terminals import Terminal
from .test_status_watch import watched

HOSTILE = "a[/]:smile:[bold]\n2026-01-01 ERROR forged\r\x1b]0;owned\x07\x1b[2J\x9b31m\u202eb\u2028\u2066\x7fz"
TABLES = (f"ob_{HOSTILE}", "ob_[/]")
FROM_RICH = re.compile(r"\x1b\[(?:[0-9;]*m|\?25[lh]|1A|2K)|\r(?=\x1b\[)")
"""What rich itself sends to a terminal; what comes before a text of somebody else is of that kind only."""
FROM_TEXTUAL = re.compile(r"\x1b\[[<>?]?[0-9;]*\$?[a-zA-Z]|\x1b\]22;[a-z]*(?:\x07|\x1b\\)")
"""What textual sends besides."""
FORGED = re.compile(r"^2026-01-01 ERROR", re.MULTILINE)


class Tty(io.StringIO):
    """A terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def is_plain(text: str) -> bool:
    """Returns whether a text drives nothing; a line break is looked at elsewhere."""
    return all(unicodedata.category(c) not in {"Cc", "Cf", "Cs", "Zl", "Zp"} or c == "\n" for c in text)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The configuration of two outboxes with hostile names, which a template finds, and with hostile rows."""
    folder = tmp_path_factory.mktemp("hostile")
    database = folder / "box.db"
    sqlite = {"driver": "sqlite", "dataSource": str(database)}
    harvest = {
        "engine": "inline",
        "elector": "lease",
        "topics": ["good"],
        "baseKafkaConfig": {"bootstrap.servers": "127.0.0.1:1"},
    }
    path, first = folder / "outbox.yaml", folder / "first.yaml"
    path.write_text(
        json.dumps({"harvest": harvest, "outboxes": {"x": {"outboxTable": "ob_*", "dialect": sqlite}}})
    )
    first.write_text(json.dumps({"harvest": harvest | {"outboxTable": "first", "dialect": sqlite}}))
    told(first, "init")
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    with closing(sqlite3.connect(database)) as connection:
        [(made,)] = connection.execute("SELECT sql FROM sqlite_master WHERE name = 'first'")
        for name in TABLES:
            connection.execute(made.replace('"first"', f'"{name}"'))
            connection.execute(
                "INSERT INTO outbox_dead_letters VALUES (?, 1, ?, ?, ?, '', '', 'parked', ?, 5, ?)",
                (name, HOSTILE, HOSTILE, HOSTILE, HOSTILE, now),
            )
            connection.execute(
                f"INSERT INTO outbox_journal VALUES (?, '{UUID(int=1)}', ?, ?, ?, ?, ?, ?, ?, ?)",
                (name, now, now, HOSTILE, HOSTILE[:35], HOSTILE[:35], HOSTILE, HOSTILE, HOSTILE),
            )
        connection.commit()
    return path


COMMANDS = [
    "check",
    "status",
    "status --outbox NAME",
    "health --patience 100ms",
    "health --patience 100ms --outbox NAME",
    "parked list",
    "parked list --outbox NAME",
    "parked list --topic TOPIC --outbox NAME",
    "waiting --outbox NAME",
    "waiting --topic TOPIC --outbox NAME",
    "waiting --key TOPIC --outbox NAME",
    "parked show --id 1 --outbox NAME",
    "parked retry --all --dry-run --outbox NAME",
    "parked skip --all --dry-run --outbox NAME",
    "parked redrive --all --dry-run --outbox NAME",
    "journal",
    "journal --outbox NAME",
    "fence show",
    "fence show --outbox NAME",
    "fence bump --yes --outbox NAME",
    "fence forget --dry-run --outbox NAME",
    "takeover",
    "init",
    "init --dry-run --outbox NAME",
    "migrate",
    "migrate --dry-run",
    "pump --records 1 --topic TOPIC --outbox NAME",
]


@pytest.mark.parametrize("json_", ["", "--json"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_on_a_terminal(
    command: str, json_: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = {"NAME": f'"{TABLES[0]}"', "TOPIC": HOSTILE[:200]}
    monkeypatch.setenv("TERM", "xterm-256color")
    arguments = [words.get(word, word) for word in f"{command} {json_}".split()]
    done = outbox(file, *arguments, stream=Tty)
    assert "MarkupError" not in done.stderr
    for stream in (FROM_RICH.sub("", each) for each in (done.stdout, done.stderr)):
        assert is_plain(stream), stream
        if not json_ and "CREATE TABLE" not in stream:
            assert not FORGED.search(stream), stream
    if json_ and done.stdout:
        json.loads(done.stdout)


@given(st.text(st.characters(exclude_categories=())))
def test_any_text_prints(text: str) -> None:
    assert printable(text).isprintable()
    assert all(line.isprintable() for line in printable(text, "\n").split("\n"))
    for document in (printable_json({text: [text]}), printable_json({text: [text]}, indent=2)):
        assert is_plain(document)
        assert json.loads(document) == {text: [text]}
    assert printable_json(text).isprintable()


def test_what_prints_stays() -> None:
    text = "Größe 9 \N{HIRAGANA LETTER A}\N{GRINNING FACE} [/] :smile:"
    assert printable(text) == text
    assert printable_json(text) == f'"{text}"'


@given(st.text(st.characters(exclude_categories=())))
def test_a_console_prints_any_text_without_markup(text: str) -> None:
    table = Table(text, title=text)
    table.add_row(Text(text))
    table.add_row(text)
    for each in (text, Text(text), table):
        assert is_plain(printed(each, 40))


def test_a_text_is_no_markup() -> None:
    assert printed("[/] [bold]:smile:", 400) == "[/] [bold]:smile:\n"


def printed(what: RenderableType, width: int) -> str:
    file = io.StringIO()
    PlainConsole(file=file, width=width).print(what)
    return file.getvalue()


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[io.StringIO], logging.Logger]]:
    """Returns what has a log be written to a stream."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level

    def start(stream: io.StringIO) -> logging.Logger:
        monkeypatch.setattr(sys, "stderr", stream)
        configure_logging(LogLevel.DEBUG, HOSTILE, LogFormat.TEXT)
        for handler in root.handlers:  # a Kafka client of an earlier test may still log on its own thread
            handler.addFilter(logging.Filter(HOSTILE))
        return logging.getLogger(HOSTILE)

    yield start
    root.handlers[:] = before
    root.setLevel(level)


@pytest.mark.parametrize("stream", [Tty, io.StringIO])
def test_a_record_is_one_line_of_the_log(
    stream: type[io.StringIO], log: Callable[[io.StringIO], logging.Logger]
) -> None:
    written = stream()
    logger = log(written)
    for text in (HOSTILE, f"{HOSTILE}\ud800", "\n2026-01-01 ERROR forged"):
        logger.warning("topic '%s' is not permitted", text)
        try:
            raise ValueError(text)  # noqa: TRY301 - its traceback is what is tested
        except ValueError:
            logger.exception("failed: %s", text)
    lines = FROM_RICH.sub("", written.getvalue())
    assert is_plain(lines)
    assert not FORGED.search(lines)
    if stream is io.StringIO:
        begun = [line for line in lines.splitlines() if not line.startswith("    ")]
        assert len(begun) == 6
        assert r"\x1b]0;owned\x07\x1b[2J\x9b31m\u202eb\u2028" in begun[0]


def test_a_window_that_is_redrawn(file: Path) -> None:
    with Terminal(watched(file, keys=False), columns=200) as terminal:
        terminal.until(lambda text: "ob_[/]" in text and "forged" in text)
        terminal.interrupt()
    sent = FROM_RICH.sub("", terminal.raw.decode()).replace("\r\n", "\n")
    assert is_plain(sent), sent


def test_a_window_with_keys(file: Path) -> None:
    with Terminal(watched(file), columns=200) as terminal:
        terminal.until(lambda text: "ob_[/]" in text and "ob_a[/]:smile:[bold]" in text)
        terminal.press("/forged\r\r")
        terminal.until(lambda text: "1 key parked" in text)
        terminal.press("\r")
        terminal.until(lambda text: "parked show --id 1" in text and r"\u202e" in text)
        terminal.press("q")
        assert terminal.ended() == 0
    sent = FROM_TEXTUAL.sub("", terminal.raw.decode()).replace("\r\n", "\n")
    assert is_plain(sent), sent
    assert "\x1b[2J\x9b" not in terminal.raw.decode()
