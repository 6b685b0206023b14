"""How `outbox takeover` begins, ends and lists deliberate takeovers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from outbox_api import MAX_CLUSTER, Fence, LaneStatus, OriginBacklog, Seam, Takeover
from outbox_core.cli import main
from outbox_core.cli.invocation import Invocation
from outbox_core.config import parse
from outbox_core.settings import Settings

from .fakes import NOW, FakeClusters, FakeDialect, FakePlugin, FakeTable, Terminal, made


class Table(FakeTable):
    """A fence of two lanes, whose present token is 7.

    Attributes:
        led: Whether anybody has ever led.
        at_bump: The clusters that were taken over when the token was raised last.
    """

    def __init__(self, *origins: OriginBacklog) -> None:
        super().__init__(origins=origins)
        self.token = 7
        self.led = True
        self.at_bump: list[int] | None = None

    def lane_statuses(self) -> Sequence[LaneStatus]:
        lanes = (0, 1) if self.led else ()
        return [LaneStatus(Fence(lane, 2, self.token, 1), "host", NOW, None, None, {}) for lane in lanes]

    def bump(self, lanes: int, holder: str, expected: int | None = None) -> int:
        assert lanes == 2
        assert holder.startswith("operator ")
        self.at_bump = sorted(self.taken_over)
        return super().bump(lanes, holder, expected)


def settings(table: FakeTable, affinity: object) -> Settings:
    read = parse("harvest: {outboxTable: shop.outbox}", "f.yaml", {})
    dialect = made(Seam.DIALECT, FakeDialect(table))
    harvest = replace(read.harvest, dialect=dialect, affinity=made(Seam.AFFINITY, affinity))
    return replace(read, outboxes=(harvest,))


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Iterator[Table]:
    found = Table()
    monkeypatch.setattr(Invocation, "settings", lambda *_: settings(found, FakeClusters()))
    yield found
    assert found.closed


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Table:
    """An outbox without clusters."""
    found = Table()
    monkeypatch.setattr(Invocation, "settings", lambda *_: settings(found, FakePlugin()))
    return found


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as caught:
        main(["takeover", *arguments])
    code = caught.value.code
    assert isinstance(code, int)
    out, err = capsys.readouterr()
    return code, out, " ".join(err.replace("│", " ").split())


def test_a_takeover_is_stored_before_the_fence_is_raised(table: Table, capsys: pytest.CaptureFixture[str]):
    code, out, err = call(capsys, "--from", "2", "--reason", "moving", "--yes")
    assert (code, out) == (0, "the records of cluster 2 are taken over at once from now on\n")
    assert "The token is 8 now" in err
    assert table.taken_over == {2: Takeover(2, "moving", NOW)}
    assert (table.at_bump, table.token) == ([2], 8)


def test_a_takeover_ends_before_the_fence_is_raised(table: Table, capsys: pytest.CaptureFixture[str]):
    table.begin_takeover(2, "moving")
    code, out, _ = call(capsys, "--end", "2", "--yes")
    assert (code, out) == (0, "the takeover of cluster 2 has ended\n")
    assert (table.taken_over, table.at_bump, table.token) == ({}, [], 8)


def test_a_repeated_call_changes_nothing_and_raises_the_fence(
    table: Table, capsys: pytest.CaptureFixture[str]
):
    begun = [json.loads(call(capsys, "--from", "2", "--yes", "--json")[1]) for _ in range(2)]
    assert begun == [
        {"outbox": "shop.outbox", "began": 2, "ended": None, "changed": True, "token": 8},
        {"outbox": "shop.outbox", "began": 2, "ended": None, "changed": False, "token": 9},
    ]
    ended = [json.loads(call(capsys, "--end", "2", "--yes", "--json")[1]) for _ in range(2)]
    assert [(each["ended"], each["changed"], each["token"]) for each in ended] == [
        (2, True, 10),
        (2, False, 11),
    ]
    assert call(capsys, "--end", "2", "--yes")[1] == "there was no takeover of cluster 2\n"
    assert table.taken_over == {}


def test_before_the_first_leader_there_is_no_fence_to_raise(table: Table, capsys: pytest.CaptureFixture[str]):
    table.led = False
    assert json.loads(call(capsys, "--from", "2", "--yes", "--json")[1])["token"] is None
    assert list(table.taken_over) == [2]
    assert table.token == 7


def test_the_takeovers_are_listed(table: Table, capsys: pytest.CaptureFixture[str]):
    assert call(capsys) == (0, "no deliberate takeover is on\n", "")
    table.begin_takeover(3, "fire")
    table.begin_takeover(2, "moving")
    assert json.loads(call(capsys, "--json")[1]) == {
        "outbox": "shop.outbox",
        "takeovers": [
            {"cluster": 2, "reason": "moving", "since": "2026-03-01T12:00:00+00:00"},
            {"cluster": 3, "reason": "fire", "since": "2026-03-01T12:00:00+00:00"},
        ],
    }
    lines = [line.split() for line in call(capsys)[1].splitlines()]
    assert [(line[0], line[-1]) for line in lines if line and line[0].isdigit()] == [
        ("2", "moving"),
        ("3", "fire"),
    ]
    assert table.token == 7


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--from", "1"), "this is cluster 1: it takes its own records in any case"),
        (("--from", "7"), "there is no cluster 7; the others are 2, 3"),
        (("--end", "7"), "there is no cluster 7; the others are 2, 3"),
    ],
)
def test_the_own_cluster_and_unknown_ones_are_refused(
    arguments: Sequence[str], told: str, table: Table, capsys: pytest.CaptureFixture[str]
):
    code, _, err = call(capsys, *arguments, "--yes")
    assert code == 2
    assert told in err
    assert (table.taken_over, table.token) == ({}, 7)


def test_orphans_can_be_taken_over(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    table = Table(*(OriginBacklog(cluster, 2, exact=True, oldest=60.0) for cluster in (7, MAX_CLUSTER + 1)))
    monkeypatch.setattr(Invocation, "settings", lambda *_: settings(table, FakeClusters()))
    assert call(capsys, "--from", "7", "--yes")[0] == 0
    assert list(table.taken_over) == [7]
    assert call(capsys, "--from", str(MAX_CLUSTER + 1), "--yes")[0] == 2
    assert call(capsys, "--from", "8", "--yes")[0] == 2, "no record of it is here"


def test_a_takeover_of_a_cluster_that_is_known_no_longer_can_be_ended(
    table: Table, capsys: pytest.CaptureFixture[str]
):
    table.begin_takeover(7, "gone")
    assert call(capsys, "--end", "7", "--yes")[0] == 0
    assert table.taken_over == {}


@pytest.mark.parametrize("arguments", [("--from", "2", "--yes"), ()])
def test_an_outbox_without_clusters_is_refused(
    arguments: Sequence[str], alone: Table, capsys: pytest.CaptureFixture[str]
):
    code, _, err = call(capsys, *arguments)
    assert code == 78
    assert "has one cluster only" in err
    assert alone.token == 7


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--from", "2", "--end", "3"), "give either --from or --end"),
        (("--reason", "x"), "--reason is for --from and --end"),
    ],
)
def test_options_that_do_not_go_together(
    arguments: Sequence[str], told: str, alone: Table, capsys: pytest.CaptureFixture[str]
):
    code, _, err = call(capsys, *arguments)
    assert code == 2
    assert told in err
    assert alone.token == 7


def test_nothing_is_taken_over_unasked(table: Table, capsys: pytest.CaptureFixture[str]):
    code, _, err = call(capsys, "--from", "2")
    assert code == 2
    assert "add --yes" in err
    assert (table.taken_over, table.token) == ({}, 7)


@pytest.mark.parametrize(("answer", "on"), [("y\n\n", [2]), ("n\n", [])])
def test_a_terminal_is_told_what_it_does_and_asked(
    answer: str,
    on: list[int],
    table: Table,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    code, _, err = call(capsys, "--from", "2")
    assert (code, list(table.taken_over)) == (0 if on else 1, on)
    assert "Stop the harvesters of cluster 2 first" in err
    assert "delivered twice" in err
