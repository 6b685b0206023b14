"""How `outbox parked` shows dead letters, and acts on them."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from outbox_api import DeadLetter, DeadLetterStatus, MarkedRecord, Seam
from outbox_core.cli import main
from outbox_core.cli.invocation import Invocation
from outbox_core.config import parse

from .fakes import FakeDialect, FakeJournal, FakeLetters, Terminal, made

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def letter(
    number: int, key: str, status: DeadLetterStatus = DeadLetterStatus.PARKED, **parts: Any
) -> DeadLetter:
    record = MarkedRecord(number, "orders", key, "v")._replace(**parts)
    return DeadLetter(record, "too large", 5, NOON, 75.0, status)


@pytest.fixture
def journal() -> FakeJournal:
    return FakeJournal()


@pytest.fixture
def dead(journal: FakeJournal, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeLetters]:
    """Letters of three keys: two are parked, one was skipped twice."""
    letters = FakeLetters(
        letter(1, "a"),
        letter(2, "b"),
        letter(3, "c", DeadLetterStatus.SKIPPED),
        letter(4, "c", DeadLetterStatus.SKIPPED),
    )
    read = parse("harvest: {outboxTable: shop.outbox}", "f.yaml", {})
    harvest = replace(read.harvest, dialect=made(Seam.DIALECT, FakeDialect(letters=letters, kept=journal)))
    monkeypatch.setattr(Invocation, "settings", lambda *_: replace(read, outboxes=(harvest,)))
    yield letters
    assert letters.closed


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as caught:
        main(["parked", *arguments])
    assert isinstance(caught.value.code, int)
    return caught.value.code, *capsys.readouterr()


def outcomes(out: str) -> dict[int, str]:
    return {told["id"]: told["outcome"] for told in json.loads(out)["letters"]}


def test_what_is_parked_is_listed(dead: FakeLetters, capsys: pytest.CaptureFixture[str]):
    code, out, err = call(capsys, "list")
    assert (code, err) == (0, "")
    assert [line.split() for line in out.splitlines() if "orders" in line] == [
        [key, number, "orders", "5", "1m15s", "too", "large"] for key, number in [("a", "1"), ("b", "2")]
    ]
    _, out, _ = call(capsys, "list", "--json")
    assert json.loads(out)["letters"][0] == {
        "key": "a",
        "id": 1,
        "topic": "orders",
        "status": "parked",
        "attempts": 5,
        "since": "2026-03-01T12:00:00+00:00",
        "age_seconds": 75.0,
        "reason": "too large",
    }


def test_what_was_skipped_is_listed_apart(dead: FakeLetters, capsys: pytest.CaptureFixture[str]):
    _, out, _ = call(capsys, "list", "--skipped", "--json")
    assert [told["id"] for told in json.loads(out)["letters"]] == [3, 4]


def test_nothing_is_parked(dead: FakeLetters, capsys: pytest.CaptureFixture[str]):
    dead.kept.clear()
    assert call(capsys, "list") == (0, "nothing is parked\n", "")
    assert call(capsys, "retry", "--all") == (0, "nothing is parked\n", "")
    assert call(capsys, "redrive", "--all") == (0, "nothing is skipped\n", "")
    assert dead.asked == []


def test_a_letter_is_shown_whole_to_programs_and_cut_for_people(
    dead: FakeLetters, capsys: pytest.CaptureFixture[str]
):
    headers = (("h", "1"), ("h", b"\xff"), ("none", None))
    dead.kept = [letter(1, "a", value="x" * 5000, headers=headers, partition=2, timestamp_ms=9)]
    _, out, _ = call(capsys, "show", "a", "--json")
    told = json.loads(out)
    assert told["waiting"] == 3
    assert told["letters"][0]["value"] == "x" * 5000
    assert told["letters"][0]["headers"] == [["h", "1"], ["h", {"base64": "/w=="}], ["none", None]]
    assert (told["letters"][0]["partition"], told["letters"][0]["timestamp_ms"]) == (2, 9)
    assert json.loads(call(capsys, "show", "--id", "1", "--json")[1]) == told
    assert call(capsys, "show", "a", "--id", "1")[0] == call(capsys, "show")[0] == 2
    _, out, _ = call(capsys, "show", "a")
    assert out.count("x") < 1100
    assert "and 4,000 more characters" in out
    assert "h: ff" in out
    assert "3 rows of this key in the outbox" in out


def test_values_of_any_kind_are_shown(dead: FakeLetters, capsys: pytest.CaptureFixture[str]):
    dead.kept = [letter(1, "a", value=b"\x00\x01"), letter(2, "a", value=None, fault="arrays differ")]
    _, out, _ = call(capsys, "show", "a")
    assert "00 01" in out
    assert "a tombstone" in out
    assert "arrays differ" in out
    _, out, _ = call(capsys, "show", "a", "--json")
    assert [told["value"] for told in json.loads(out)["letters"]] == [{"base64": "AAE="}, None]


def test_strangers_data_do_not_steer_the_terminal(dead: FakeLetters, capsys: pytest.CaptureFixture[str]):
    dead.kept = [letter(1, "a\x1b[2J[red]", value="two\nlines\x1b[1m")]
    for arguments in (["list"], ["show", "a\x1b[2J[red]"], ["retry", "--all"], ["retry", "\x1b[2J"]):
        _, out, err = call(capsys, *arguments)
        assert "\x1b" not in out + err
        assert "\\x1b[2J" in out + err
    assert "[red]" in call(capsys, "list")[1]


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        (["retry", "b"], ("retry", [2])),
        (["retry", "b", "--yes"], ("retry", [2])),
        (["retry", "--all"], ("retry", [1, 2])),
        (["skip", "b", "a", "--yes"], ("skip", [1, 2])),
        (["redrive", "c", "--yes"], ("redrive", [3, 4])),
        (["redrive", "--id", "4", "--yes"], ("redrive", [4])),
        (["retry", "--id", "2", "--id", "1"], ("retry", [1, 2])),
    ],
)
def test_a_verb_is_for_the_letters_that_were_listed(
    arguments: list[str], asked: tuple[str, list[int]], dead: FakeLetters, capsys: pytest.CaptureFixture[str]
):
    code, out, _ = call(capsys, *arguments, "--dry-run", "--json")
    assert (code, dead.asked) == (0, [])
    assert outcomes(out) == dict.fromkeys(asked[1], "would change")
    code, out, _ = call(capsys, *arguments, "--json")
    assert (code, dead.asked) == (0, [asked])
    assert outcomes(out) == dict.fromkeys(asked[1], "changed")
    assert "changed" in call(capsys, *arguments)[1]


def test_a_letter_that_is_gone_is_told(dead: FakeLetters, capsys: pytest.CaptureFixture[str]):
    dead.gone = {2}
    code, out, _ = call(capsys, "retry", "a", "b", "--json")
    assert (code, outcomes(out)) == (1, {1: "changed", 2: "gone"})
    code, out, err = call(capsys, "retry", "a", "b")
    assert code == 1
    assert "gone" in out
    assert "1 of 2 did not exist any more" in err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["retry", "a", "nobody"], "not parked: key 'nobody'; nothing was done"),
        (["skip", "c", "--yes"], "not parked: key 'c'; nothing was done"),
        (["redrive", "a"], "not skipped: key 'a'; nothing was done. See 'outbox parked list --skipped'"),
        (["show", "nobody"], "key 'nobody' is neither parked nor skipped"),
        (["retry", "--id", "1", "--id", "77"], "not parked: record 77; nothing was done"),
        (["skip", "--id", "3", "--yes"], "not parked: record 3; nothing was done"),
        (["show", "--id", "77"], "record 77 is neither parked nor skipped"),
    ],
)
def test_a_key_that_is_unknown_stops_it_all(
    arguments: list[str], told: str, dead: FakeLetters, capsys: pytest.CaptureFixture[str]
):
    code, _, err = call(capsys, *arguments)
    assert (code, dead.asked) == (1, [])
    assert told in err


def test_skipping_asks_first(dead: FakeLetters, capsys: pytest.CaptureFixture[str]):
    code, _, err = call(capsys, "skip", "a")
    assert (code, dead.asked) == (2, [])
    assert "add --yes" in err
    assert call(capsys, "skip", "a", "--dry-run")[0] == 0


@pytest.mark.parametrize(("answer", "asked"), [(True, [("skip", [1])]), (False, [])])
def test_the_answer_counts(
    answer: bool,
    asked: list[tuple[str, list[int]]],
    dead: FakeLetters,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("sys.stdin", Terminal("y\n\n" if answer else "n\n"))
    code, _, err = call(capsys, "skip", "a")
    assert (code, dead.asked) == (0 if answer else 1, asked)
    assert "Give up these records, undelivered?" in err
    assert "too large" in err


def test_all_keys_or_some_have_to_be_named(capsys: pytest.CaptureFixture[str]):
    for arguments in ([], ["a", "--all"], ["--id", "1", "--all"], ["a", "--id", "1"]):
        code, _, err = call(capsys, "retry", *arguments)
        assert code == 2
        assert "name keys, or ids with --id, or give --all" in err


def test_conditions_choose_keys(dead: FakeLetters, capsys: pytest.CaptureFixture[str]):
    dead.kept.append(replace(letter(5, "d"), age=7200.0))
    other = letter(6, "e")
    dead.kept.append(replace(other, record=other.record._replace(topic="bills"), reason="No such topic"))
    for conditions, found in (
        (["--topic", "bills"], [6]),
        (["--error", "SUCH topic"], [6]),
        (["--older-than", "1h"], [5]),
        (["--younger-than", "1h", "--topic", "orders"], [1, 2]),
        (["--topic", "order"], []),
    ):
        _, out, _ = call(capsys, "list", "--json", *conditions)
        assert [told["id"] for told in json.loads(out)["letters"]] == found
        code, out, _ = call(capsys, "retry", "--json", "--dry-run", *conditions)
        assert (code, list(outcomes(out))) == (0, found)
    call(capsys, "retry", "--topic", "orders", "--older-than", "1h")
    assert dead.asked == [("retry", [5])]
    assert call(capsys, "skip", "--topic", "none")[1] == "nothing is parked that matches\n"
    assert call(capsys, "retry", "a", "--topic", "orders")[0] == 2
    assert "older_than" in call(capsys, "retry", "--older-than", "soon")[2]
