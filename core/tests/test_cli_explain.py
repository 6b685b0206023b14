"""``outbox explain``: codes of errors, health problems and alarms lead to a section of the documents."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from outbox_core.cli.command import ExitCode
from outbox_core.cli.explain import topics
from outbox_core.status.health import Code

from deploy.alerts import alarms

from .cli_runner import OUTBOX, outbox
from .terminals import Terminal

ROOT = Path(__file__).parents[2]
SOURCES = [path for folder in ("*/outbox_*", "plugins/*/*outbox*") for path in ROOT.glob(f"{folder}/**/*.py")]
TOPICS = topics()
ERRORS = {topic.title: topic.text for topic in TOPICS.values() if topic.title.startswith("OUTBOX-")}
OF_OTHERS = {
    "refused", "timed out", "could not translate host name", "Name or service not known", "certificate",
    "SSL", "TLS", "SASL", "AUTHORIZATION_FAILED", "Access denied", "does not exist", "lock timeout",
    "deadlock", "statement timeout", "could not serialize", "remaining connection slots",
    "unable to open database file", "Unknown database",
}  # fmt: skip
"""What servers and the system say, and our errors quote."""


def texts(node: ast.AST) -> Iterator[str]:
    """Returns all strings of a source, those in parts as one."""
    for each in ast.iter_child_nodes(node):
        if isinstance(each, ast.Constant) and isinstance(each.value, str):
            yield each.value
        elif isinstance(each, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in each.values)
            yield from texts(each)
        else:
            yield from texts(each)


SAID = [text for path in SOURCES for text in texts(ast.parse(path.read_text("utf-8")))]


def test_every_code_of_an_error_has_a_section_and_no_section_has_another():
    assert {text for text in SAID if re.fullmatch("OUTBOX-[A-Z-]+", text)} == set(ERRORS)


@pytest.mark.parametrize("code", ERRORS)
def test_a_section_quotes_messages_as_they_are(code: str):
    phrases = re.findall(r"(?<!\w)\*([^*\n]+)\*", ERRORS[code])
    said = "\n".join(SAID)
    parts = {part.strip() for phrase in phrases for part in phrase.split("…")} - OF_OTHERS
    assert [part for part in parts if part not in said] == []


@pytest.mark.parametrize("code", [*Code, *(alarm.name for alarm in alarms())])
def test_every_problem_and_every_alarm_is_explained(code: str):
    assert TOPICS[code.lower()].text


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("outbox-denied", "authentication failed"),
        ("no-leader", "has no leader"),
        ("OUTBOXNOLEADER", "has no leader"),
        ("broker-refuses", "`outbox check` says what to do"),
        ("Parked keys", "An operator decides"),
    ],
)
def test_a_section_is_printed_with_links_that_need_no_site(code: str, said: str):
    done = outbox(None, "explain", *code.split())
    assert (done.returncode, done.stderr) == (0, "")
    assert said in done.stdout
    assert "](" not in done.stdout
    assert "\x1b" not in done.stdout


def test_without_a_code_all_are_listed_one_a_line():
    lines = outbox(None, "explain").stdout.splitlines()
    listed = [line.split()[0] for line in lines]
    assert sorted(listed) == sorted([*ERRORS, *Code, *(alarm.name for alarm in alarms())])


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        ("OUTBOX-DENIDE", "OUTBOX-DENIED"),
        ("password authentication failed for user", "OUTBOX-DENIED"),
        ("the Spark engine needs Java, and there is none", "OUTBOX-ENGINE"),
        ("user 'me' sees no table 'outbox' in schema 'public'", "OUTBOX-NO-TABLE"),
        ('FATAL: database "nowhere" does not exist', "OUTBOX-REFUSED"),
        ("disk full", "nearest: OUTBOX-UNREACHABLE"),
        ("could not extend file", "nearest: OUTBOX-UNREACHABLE"),
        ("53100", "nearest: OUTBOX-UNREACHABLE"),
        ("xyzzy", ""),
        ("\033[31mxyzzy", ""),
    ],
)
def test_another_text_names_the_nearest(text: str, nearest: str):
    done = outbox(None, "explain", text)
    assert (done.returncode, done.stdout) == (ExitCode.USAGE, "")
    said = re.sub(r"[\s│]+", " ", done.stderr)
    assert "there is no code" in said
    assert nearest in said
    assert ("; nearest:" in said) == bool(nearest)
    assert "\033" not in said


def test_a_terminal_shows_no_markdown():
    with Terminal([OUTBOX, "explain", "OUTBOX-PLUGIN"], lines=50) as terminal:
        terminal.until(lambda text: "install on executors" in text)
        assert "**" not in terminal.text
        assert "```" not in terminal.text
        assert "|---" not in terminal.text
