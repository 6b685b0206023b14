"""How `outbox fence` shows notes about transactions, and removes them."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from outbox_api import Fence, LaneStatus, TransactionalLane
from outbox_core.cli import main
from outbox_core.cli.invocation import Invocation
from outbox_core.config import parse

from .fakes import FakeJournal, FakeTable, Terminal

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Table(FakeTable):
    """A fence of two lanes, after one of three; the driver, the dialect and the connection in one.

    Attributes:
        rivals: How many more times somebody else raises the token right behind ours.
        kept: The journal.
        ended: Lane, lanes and token of each note that was ended.
    """

    def __init__(self) -> None:
        super().__init__()
        self.token = 7
        self.notes = {0: TransactionalLane(2, "box.0", "there"), 2: TransactionalLane(3, "sender", "place")}
        self.kept = FakeJournal()
        self.rivals = 0
        self.ended: list[tuple[int, int, int]] = []

    def create(self) -> "Table":
        return self

    def connect(self) -> "Table":
        return self

    watch = connect

    def journal(self, *, read_only: bool = False) -> FakeJournal:
        return self.kept

    def lane_statuses(self) -> Sequence[LaneStatus]:
        return [
            LaneStatus(Fence(lane, 2, self.token, 1), "host_1_2", NOON, None, None, {}) for lane in (0, 1)
        ]

    def bump(self, lanes: int, holder: str, expected: int | None = None) -> int:
        assert lanes == 2
        assert holder.startswith("operator ")
        ours = super().bump(lanes, holder, expected)
        if self.rivals:
            self.rivals -= 1
            self.token += 1
        return ours

    def set_transactional(self, fence: Fence, noted: TransactionalLane | None) -> None:
        assert noted is None
        super().set_transactional(fence, noted)
        self.ended.append((fence.lane, fence.lanes, fence.token))


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Iterator[Table]:
    made: Any = Table()
    settings = parse("harvest: {outboxTable: shop.outbox}", "f.yaml", {})
    settings = replace(settings, outboxes=(replace(settings.harvest, dialect=made),))
    monkeypatch.setattr(Invocation, "settings", lambda *_: settings)
    yield made
    assert made.closed


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as caught:
        main(["fence", *arguments])
    assert isinstance(caught.value.code, int)
    return caught.value.code, *capsys.readouterr()


def test_notes_are_shown_also_of_lanes_that_are_gone(table: Table, capsys: pytest.CaptureFixture[str]):
    code, out, _ = call(capsys, "show")
    assert code == 0
    cells = [line.split() for line in out.splitlines()]
    assert [(row[0], row[-2:]) for row in cells if row and row[0].isdigit()] == [
        ("0", ["of", "2"]),
        ("1", ["yet", "-"]),
        ("2", ["of", "3"]),
    ]
    data = json.loads(call(capsys, "show", "--json")[1])
    assert [lane["transacting"] for lane in data["lanes"]] == [2, None]
    assert [(lane["sender"], lane["location"]) for lane in data["lanes"]] == [
        ("box.0", "there"),
        (None, None),
    ]
    assert data["former"] == [{"lane": 2, "transacting": 3, "sender": "sender", "location": "place"}]


def test_forgetting_raises_the_token_and_ends_every_note(table: Table, capsys: pytest.CaptureFixture[str]):
    code, out, _ = call(capsys, "forget", "--yes", "--json")
    assert code == 0
    told = json.loads(out)
    assert told.pop("holder").startswith("operator ")
    assert told == {
        "outbox": "shop.outbox",
        "dry_run": False,
        "token": 8,
        "lanes": [
            {"lane": 0, "transacting": 2, "sender": "box.0", "location": "there"},
            {"lane": 2, "transacting": 3, "sender": "sender", "location": "place"},
        ],
    }
    assert table.ended == [(0, 2, 8), (2, 2, 8)]
    assert call(capsys, "forget", "--yes") == (
        0,
        "the fence notes no lane that publishes in transactions\n",
        "",
    )
    assert table.token == 8, "with nothing to forget nobody is fenced"


def test_a_dry_run_changes_nothing(table: Table, capsys: pytest.CaptureFixture[str]):
    code, out, _ = call(capsys, "forget", "--dry-run")
    assert (code, out) == (0, "would be treated as unpublished: the rows of lanes 0, 2\n")
    told = json.loads(call(capsys, "forget", "--dry-run", "--json")[1])
    assert (told["dry_run"], told["token"], told["holder"]) == (True, None, None)
    assert (table.token, table.ended) == (7, [])


def test_nothing_is_forgotten_unasked(table: Table, capsys: pytest.CaptureFixture[str]):
    code, _, err = call(capsys, "forget")
    assert code == 2
    assert "add --yes" in err
    assert table.token == 7


@pytest.mark.parametrize(("answer", "left"), [("y\n\n", []), ("n\n", [0, 2])])
def test_forgetting_asks_on_a_terminal(
    answer: str,
    left: list[int],
    table: Table,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    code, _, err = call(capsys, "forget")
    assert (code, list(table.notes)) == (len(left) > 0, left)
    asked = " ".join(err.split())
    assert "the fence notes transactions of lanes 0, 2." in asked
    assert "perhaps for a second time" in asked


def test_only_the_leader_that_was_shown_is_fenced(
    table: Table, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    terminal = Terminal("y\n\n")
    read = terminal.readline

    def slowly(size: int = -1) -> str:
        table.token = 20  # another process leads by now
        return read(size)

    monkeypatch.setattr(terminal, "readline", slowly)
    monkeypatch.setattr("sys.stdin", terminal)
    code, _, err = call(capsys, "bump")
    assert (code, table.token) == (1, 20)
    said = " ".join(err.split())
    assert "is held by host_1_2, token 7." in said
    assert "nothing was done: the fence has changed meanwhile, and host_1_2, token 20 holds it now" in said
    monkeypatch.setattr("sys.stdin", Terminal("y\n\n"))
    assert call(capsys, "bump")[0] == 0
    assert call(capsys, "bump", "--yes")[0] == 0
    assert table.token == 22


@pytest.mark.parametrize(("rivals", "code"), [(4, 0), (5, 1)])
def test_a_leader_that_begins_again_and_again_is_fenced_again(
    rivals: int, code: int, table: Table, capsys: pytest.CaptureFixture[str]
):
    table.rivals = rivals
    assert call(capsys, "forget", "--yes")[0] == code
    assert (table.notes == {}) is (code == 0)
