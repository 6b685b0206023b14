"""How `outbox journal` lists what operators have done, and how their commands ask for the reason."""

from __future__ import annotations

import json
import os
import pwd
import socket
from collections.abc import Sequence
from dataclasses import replace
from io import BytesIO, TextIOWrapper

import pytest
from outbox_api import (
    AccessDenied,
    Action,
    DeadLetter,
    DeadLetterStatus,
    MarkedRecord,
    Seam,
    TransactionalLane,
)
from outbox_core.cli import main
from outbox_core.cli.confirmation import operator
from outbox_core.cli.invocation import Invocation
from outbox_core.config import parse
from outbox_core.operations import Verb

from .fakes import NOW, FakeClusters, FakeDialect, FakeJournal, FakeLetters, FakeTable, Terminal, made

VERBS = {
    Verb.RETRY: ("parked", "retry", "a"),
    Verb.SKIP: ("parked", "skip", "a"),
    Verb.REDRIVE: ("parked", "redrive", "b"),
    Verb.RAISE_FENCE: ("fence", "bump"),
    Verb.FORGET: ("fence", "forget"),
    Verb.TAKE_OVER: ("takeover", "--from", "2"),
    Verb.END_TAKEOVER: ("takeover", "--end", "2"),
    Verb.PAUSE: ("pause", "--topic", "orders", "--wait", "0s"),
    Verb.RESUME: ("resume", "--topic", "orders"),
}
UNASKED = {Verb.RETRY, Verb.RESUME}
"""They need no confirmation."""
every_verb = pytest.mark.parametrize("verb", VERBS)


@pytest.fixture(autouse=True)
def journal(monkeypatch: pytest.MonkeyPatch) -> FakeJournal:
    """The journal of an outbox with something to do for each verb."""
    letters = FakeLetters(
        *(
            DeadLetter(MarkedRecord(number, "orders", key, "v"), "too large", 5, NOW, 75.0, status)
            for number, (key, status) in enumerate(zip("ab", DeadLetterStatus, strict=True))
        )
    )
    dialect = FakeDialect(FakeTable(), letters=letters)
    dialect.table.notes = {0: TransactionalLane(2, "sender", "place")}
    read = parse("harvest: {outboxTable: shop.outbox}", "f.yaml", {})
    affinity = made(Seam.AFFINITY, FakeClusters())
    box = replace(read.harvest, dialect=made(Seam.DIALECT, dialect), affinity=affinity)
    monkeypatch.setattr(Invocation, "settings", lambda *_: replace(read, outboxes=(box,)))
    return dialect.kept


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert isinstance(caught.value.code, int)
    out, err = capsys.readouterr()
    return caught.value.code, out, " ".join(err.split())


def test_whose_deed_it_was_does_not_depend_on_the_environment(
    journal: FakeJournal, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "bob")
    monkeypatch.setattr(FakeJournal, "user", lambda _: "outbox_operator")
    assert call(capsys, "parked", "retry", "a", "--reason", "why")[0] == 0
    (entry,) = journal.entries()
    own = pwd.getpwuid(os.getuid()).pw_name
    host = socket.gethostname()
    assert entry.action.operator == f"{own} at {host}, database user outbox_operator"


def test_who_has_become_root_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 0)
    monkeypatch.setenv("SUDO_USER", "carol")
    assert operator("why").name.startswith("root (sudo by carol) at ")
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000)
    assert operator("why").name.startswith("uid 4000000 at ")


def noted(journal: FakeJournal) -> Sequence[tuple[str, str]]:
    return [(each.action.verb, each.action.reason) for each in journal.entries()]


def agreed(verb: Verb) -> Sequence[str]:
    return () if verb in UNASKED else ("--yes",)


@pytest.mark.parametrize("encoding", ["ascii", "iso-8859-1", "utf-8"])
def test_what_an_encoding_lacks_is_written_as_escapes(
    encoding: str, journal: FakeJournal, monkeypatch: pytest.MonkeyPatch
):
    journal.begin(Action("Jürgen 🌍", "http", "retry", reason="half \udc80"))
    for arguments in (("journal",), ("journal", "--json")):
        stream = TextIOWrapper(BytesIO(), encoding=encoding)
        monkeypatch.setattr("sys.stdout", stream)
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        stream.seek(0)
        told = stream.read()
        assert caught.value.code == 0
    [entry] = json.loads(told)["entries"]
    assert (entry["operator"], entry["reason"]) == ("Jürgen 🌍", "half \udc80")


def test_entries_are_listed_the_newest_first(journal: FakeJournal, capsys: pytest.CaptureFixture[str]):
    assert call(capsys, "journal") == (0, "no operator has done anything yet\n", "")
    actions = [
        Action("me at host", "cli", "skip", "key 'a'\x1b[2J", "sold out"),
        Action("alice", "http", "retry"),
    ]
    first, second = map(journal.begin, actions)
    journal.end(first, "1 changed")
    code, out, _ = call(capsys, "journal", "--json")
    assert code == 0
    assert json.loads(out)["entries"] == [
        {
            "id": str(second),
            "at": "2026-03-01T12:00:01+00:00",
            "operator": "alice",
            "via": "http",
            "verb": "retry",
            "subject": "",
            "reason": "",
            "outcome": None,
        },
        {
            "id": str(first),
            "at": "2026-03-01T12:00:00+00:00",
            "operator": "me at host",
            "via": "cli",
            "verb": "skip",
            "subject": "key 'a'\x1b[2J",
            "reason": "sold out",
            "outcome": "1 changed",
        },
    ]
    lines = call(capsys, "journal")[1].splitlines()
    found = [" ".join(line.split()[3:]) for line in lines if "2026-" in line]
    assert found == [
        "alice http retry not known: interrupted",
        "me at host cli skip key 'a'\\x1b[2J sold out 1 changed",
    ]
    assert len(json.loads(call(capsys, "journal", "--limit", "1", "--json")[1])["entries"]) == 1
    assert call(capsys, "journal", "--limit", "0")[0] == 2


def test_long_texts_are_cut_for_people_only(journal: FakeJournal, capsys: pytest.CaptureFixture[str]):
    long = "x" * 5000
    journal.end(journal.begin(Action("me", "cli", "skip", long, long)), long)
    [entry] = json.loads(call(capsys, "journal", "--json")[1])["entries"]
    assert entry["subject"] == entry["reason"] == entry["outcome"] == long
    out = call(capsys, "journal")[1]
    assert out.count("x") == 3 * 200
    assert "5,000" in out


@every_verb
def test_a_reason_has_an_end(verb: Verb, journal: FakeJournal, capsys: pytest.CaptureFixture[str]):
    code, _, err = call(capsys, *VERBS[verb], *agreed(verb), "--reason", "x" * 1001)
    assert code == 2
    assert "1,001" in err
    assert noted(journal) == []
    assert call(capsys, *VERBS[verb], *agreed(verb), "--reason", "x" * 1000)[0] == 0


@every_verb
def test_a_script_may_give_a_reason(verb: Verb, journal: FakeJournal, capsys: pytest.CaptureFixture[str]):
    assert call(capsys, *VERBS[verb], *agreed(verb), "--reason", " as agreed ")[0] == 0
    assert call(capsys, "fence", "bump", "--yes")[0] == 0
    assert noted(journal) == [("raise-fence", ""), (verb, "as agreed")]
    assert all(" at " in each.action.operator for each in journal.entries())


@every_verb
@pytest.mark.parametrize("reason", ["as agreed", ""])
def test_a_terminal_is_told_the_effect_and_asked_for_the_reason(
    verb: Verb,
    reason: str,
    journal: FakeJournal,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("sys.stdin", Terminal(f"{reason}\n" if verb in UNASKED else f"y\n{reason}\n"))
    code, _, err = call(capsys, *VERBS[verb])
    assert code == 0
    assert verb.effect(2) in err
    assert err.index(verb.effect(2)) < err.index("Why?")
    assert noted(journal) == [(verb, reason)]


@every_verb
def test_a_terminal_is_not_asked_for_a_reason_that_is_given_or_not_wanted(
    verb: Verb, journal: FakeJournal, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("sys.stdin", Terminal("" if verb in UNASKED else "y\n"))
    code, _, err = call(capsys, *VERBS[verb], "--reason", "")
    assert (code, "Why?" in err, noted(journal)) == (0, False, [(verb, "")])
    if verb not in UNASKED:
        assert "Why?" not in call(capsys, *VERBS[verb], "--yes")[2]


@every_verb
def test_who_ends_the_program_at_the_question_for_the_reason_has_done_nothing(
    verb: Verb, journal: FakeJournal, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("sys.stdin", Terminal("" if verb in UNASKED else "y\n"))
    assert call(capsys, *VERBS[verb])[0] == 1
    assert journal.noted == {}


@pytest.mark.parametrize("verb", [Verb.RETRY, Verb.SKIP, Verb.REDRIVE, Verb.FORGET])
def test_a_dry_run_tells_no_effect_and_notes_nothing(
    verb: Verb, journal: FakeJournal, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("sys.stdin", Terminal(""))
    assert call(capsys, *VERBS[verb], "--dry-run")[::2] == (0, "")
    assert journal.noted == {}


@every_verb
def test_a_deed_that_cannot_be_noted_is_refused_and_one_that_is_done_is_done(
    verb: Verb, journal: FakeJournal, capsys: pytest.CaptureFixture[str]
):
    journal.ends_with = [AccessDenied("may not")]
    code, _, err = call(capsys, *VERBS[verb], *agreed(verb))
    assert code == 0
    assert "done, but the journal lacks the outcome (" in err
    if verb is not Verb.FORGET:  # which has nothing to forget any more
        journal.begins_with = AccessDenied("may not")
        code, _, err = call(capsys, *VERBS[verb], *agreed(verb))
        assert code == 77
        assert "nothing was done, as the journal cannot note it: may not" in err
        assert len(journal.noted) == 1
