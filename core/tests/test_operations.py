"""What operators do is noted before and after, whatever fails; with an outbox in memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from outbox_api import (
    WHOLE,
    AccessDenied,
    Action,
    ConfigError,
    DeadLetter,
    DeadLetterStatus,
    DriverError,
    Fence,
    LaneStatus,
    MarkedRecord,
    Pause,
    RolledBack,
    Seam,
    TransactionalLane,
)
from outbox_core import operations
from outbox_core.config import parse
from outbox_core.operations import Operator, Verb
from outbox_core.operations.erasing import digest
from outbox_core.settings import HarvestSettings
from outbox_core.settings.logs import KeyNames
from outbox_core.text.wording import date_clock_and_zone

from .fakes import (
    NOW,
    FakeClusters,
    FakeDialect,
    FakeErasing,
    FakeJournal,
    FakeLetters,
    FakePlugin,
    FakeTable,
    made,
)

ALICE = Operator("alice at host", "cli", "she knows why")
AWAY = DriverError("the connection was lost", retryable=True)
REFUSED = AccessDenied("may not")
DEEDS: dict[Verb, Callable[[HarvestSettings], Any]] = {
    Verb.RETRY: lambda box: operations.change(box, Verb.RETRY, [2, 1], ALICE),
    Verb.SKIP: lambda box: operations.change(box, Verb.SKIP, [1], ALICE),
    Verb.REDRIVE: lambda box: operations.change(box, Verb.REDRIVE, [3], ALICE),
    Verb.RAISE_FENCE: lambda box: operations.raise_fence(box, ALICE),
    Verb.FORGET: lambda box: operations.forget(box, ALICE),
    Verb.TAKE_OVER: lambda box: operations.change_takeover(box, Verb.TAKE_OVER, 2, ALICE),
    Verb.END_TAKEOVER: lambda box: operations.change_takeover(box, Verb.END_TAKEOVER, 2, ALICE),
    Verb.REVEAL: lambda box: operations.reveal(box, [1, 9], ALICE),
    Verb.ERASE: lambda box: operations.erase(box, "customer-1", ALICE),
    Verb.PAUSE: lambda box: operations.pause(box, "orders", ALICE, 60.0),
    Verb.RESUME: lambda box: operations.resume(box, WHOLE, ALICE),
}
SUBJECTS = {
    Verb.RETRY: "2 records, key 'a' (record 1), key 'b' (record 2)",
    Verb.SKIP: "key 'a' (record 1)",
    Verb.REDRIVE: "key 'c' (record 3)",
    Verb.RAISE_FENCE: "host, token 7",
    Verb.FORGET: "lanes 0, 2",
    Verb.TAKE_OVER: "cluster 2",
    Verb.END_TAKEOVER: "cluster 2",
    Verb.REVEAL: "2 records, key 'a' (record 1), record 9",
    Verb.ERASE: f"key {digest('customer-1')}",
    Verb.PAUSE: "topic orders",
    Verb.RESUME: "the whole outbox",
}
OUTCOMES = {
    Verb.RETRY: "2 changed",
    Verb.SKIP: "1 changed",
    Verb.REDRIVE: "1 changed",
    Verb.RAISE_FENCE: "token 8",
    Verb.FORGET: "token 8",
    Verb.TAKE_OVER: "began, token 8",
    Verb.END_TAKEOVER: "was not on, token 8",
    Verb.REVEAL: "1 shown, 1 gone",
    Verb.ERASE: "1500 kept records, 0 dead letters, 0 journal entries, 3 to be delivered",
    Verb.PAUSE: f"until {date_clock_and_zone(NOW + timedelta(minutes=1))}",
    Verb.RESUME: "was not paused",
}
assert DEEDS.keys() == {*Verb} - {Verb.REPLAY, Verb.GIVE_UP, Verb.ADD_PARTITIONS}
every_verb = pytest.mark.parametrize("verb", DEEDS)
"""But for replays, whose entry in the journal is their progress, and for what needs a broker: tests with real
servers are about those.
"""


class Watched:
    """Sees what the journal holds when something is done.

    Attributes:
        open: Whether the last entry had no outcome, each time.
        failure: What an action ends with.
    """

    def __init__(self, journal: FakeJournal) -> None:
        self.journal = journal
        self.open: list[bool] = []
        self.failure: BaseException | None = None

    def act(self) -> None:
        self.open.append([each.outcome for each in self.journal.entries(1)] == [None])
        if self.failure:
            raise self.failure


class Table(FakeTable):
    """A fence of two lanes, after one of three."""

    def __init__(self, watched: Watched) -> None:
        super().__init__()
        self.watched = watched
        self.token = 7
        self.notes = {0: TransactionalLane(2, "sender", "place"), 2: TransactionalLane(3, "sender", "place")}

    def lane_statuses(self) -> Sequence[LaneStatus]:
        return [LaneStatus(Fence(lane, 2, self.token, 1), "host", NOW, None, None, {}) for lane in (0, 1)]

    def bump(self, lanes: int, holder: str, expected: int | None = None) -> int:
        assert (lanes, holder) == (2, "operator alice at host")
        self.watched.act()
        return super().bump(lanes, holder, expected)

    def pause(self, topic: str, operator: str, reason: str, seconds: float | None = None) -> Pause:
        self.watched.act()
        return super().pause(topic, operator, reason, seconds)

    def resume(self, topic: str) -> Pause | None:
        self.watched.act()
        return super().resume(topic)


class Letters(FakeLetters):
    def __init__(self, watched: Watched) -> None:
        super().__init__(letter(1, "a"), letter(2, "b"), letter(3, "c", DeadLetterStatus.SKIPPED))
        self.watched = watched

    def find(
        self,
        keys: Sequence[str] = (),
        status: DeadLetterStatus | None = None,
        *,
        ids: Collection[int] | None = None,
        whole: bool = True,
    ) -> list[DeadLetter]:
        if whole:
            self.watched.act()
        return super().find(keys, status, ids=ids, whole=whole)

    def _change(self, verb: str, ids: Sequence[int]) -> list[int]:
        self.watched.act()
        return super()._change(verb, ids)


class Left(FakeErasing):
    def __init__(self, watched: Watched) -> None:
        super().__init__()
        self.watched = watched

    def erase_skipped(self, key: str, limit: int) -> int:
        self.watched.act()
        return super().erase_skipped(key, limit)


def letter(number: int, key: str, status: DeadLetterStatus = DeadLetterStatus.PARKED) -> DeadLetter:
    return DeadLetter(MarkedRecord(number, "orders", key, "v"), "too large", 5, NOW, 75.0, status)


@pytest.fixture
def journal() -> FakeJournal:
    return FakeJournal()


@pytest.fixture
def watched(journal: FakeJournal) -> Watched:
    return Watched(journal)


@pytest.fixture
def dialect(watched: Watched) -> FakeDialect:
    made = FakeDialect(Table(watched), letters=Letters(watched), kept=watched.journal)
    made.left = Left(watched)
    return made


@pytest.fixture
def box(dialect: FakeDialect) -> HarvestSettings:
    """The settings of an outbox of three clusters."""
    read = parse("harvest: {outboxTable: shop.outbox}", "f.yaml", {})
    affinity = made(Seam.AFFINITY, FakeClusters())
    return replace(read.harvest, dialect=made(Seam.DIALECT, dialect), affinity=affinity)


def nothing_was_done(dialect: FakeDialect) -> bool:
    table = dialect.table
    return (dialect.letters.asked, table.token, table.taken_over, len(table.notes)) == ([], 7, {}, 2)


@every_verb
def test_a_deed_is_noted_before_it_is_done_and_afterwards(
    verb: Verb, box: HarvestSettings, watched: Watched, journal: FakeJournal, dialect: FakeDialect
):
    done = DEEDS[verb](box)
    assert watched.open == [True]
    assert [(each.action, each.outcome) for each in operations.entries(box)] == [
        (Action("alice at host", "cli", verb, SUBJECTS[verb], "she knows why"), OUTCOMES[verb])
    ]
    assert getattr(done, "unnoted", "") == ""
    assert journal.closed
    assert dialect.letters.closed or dialect.table.closed or dialect.left.closed


@every_verb
@pytest.mark.parametrize("error", [AWAY, REFUSED])
def test_nothing_is_done_that_cannot_be_noted(
    verb: Verb, error: DriverError, box: HarvestSettings, watched: Watched, dialect: FakeDialect
):
    dialect.kept.begins_with = error
    with pytest.raises(type(error), match="nothing was done, as the journal cannot note it") as caught:
        DEEDS[verb](box)
    assert caught.value.retryable is error.retryable
    assert watched.open == []
    assert nothing_was_done(dialect)
    assert dialect.kept.closed


@every_verb
@pytest.mark.parametrize(
    ("failure", "outcome"),
    [
        (REFUSED, "failed: may not"),
        (AWAY, "not known whether it was done: the connection was lost"),
        (ZeroDivisionError("a secret"), "failed: ZeroDivisionError"),
    ],
)
def test_a_deed_that_fails_is_noted_with_its_error(
    verb: Verb, failure: Exception, outcome: str, box: HarvestSettings, watched: Watched
):
    watched.failure = failure
    with pytest.raises(type(failure)):
        DEEDS[verb](box)
    [entry] = operations.entries(box)
    beginning, _, error = outcome.partition(": ")
    assert (entry.outcome or "").startswith(beginning)
    assert (entry.outcome or "").endswith(error)
    assert "secret" not in (entry.outcome or "")


@every_verb
def test_what_the_database_rolled_back_is_certain_if_it_is_one_transaction(
    verb: Verb, box: HarvestSettings, watched: Watched
):
    watched.failure = RolledBack("lock timeout", retryable=True)
    with pytest.raises(DriverError, match="lock timeout") as caught:
        DEEDS[verb](box)
    [entry] = operations.entries(box)
    certain = verb in {
        *(Verb.RETRY, Verb.SKIP, Verb.REDRIVE, Verb.RAISE_FENCE),
        *(Verb.PAUSE, Verb.RESUME),
    }
    assert caught.value.retryable
    assert ("nothing was done: " in str(caught.value)) is certain
    assert ("it may be done" in str(caught.value)) is not certain
    assert (entry.outcome or "").startswith("failed: " if certain else "not known whether it was done: ")


@every_verb
def test_a_deed_that_is_interrupted_has_no_outcome(verb: Verb, box: HarvestSettings, watched: Watched):
    watched.failure = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        DEEDS[verb](box)
    assert [each.outcome for each in operations.entries(box)] == [None]


def test_a_takeover_that_the_leader_does_not_know_of_is_told(box: HarvestSettings, watched: Watched):
    watched.failure = REFUSED
    told = "the takeover began, but the present leader does not know yet; do it again: may not"
    with pytest.raises(AccessDenied, match=told):
        operations.change_takeover(box, Verb.TAKE_OVER, 2, ALICE)
    assert [each.outcome for each in operations.entries(box)] == [f"failed: {told}"]


@every_verb
def test_a_deed_is_done_even_if_its_outcome_cannot_be_noted(
    verb: Verb, box: HarvestSettings, journal: FakeJournal, caplog: pytest.LogCaptureFixture
):
    journal.ends_with = [REFUSED]
    done = DEEDS[verb](box)
    [entry] = operations.entries(box)
    assert entry.outcome is None
    told = f"the journal lacks the outcome ({OUTCOMES[verb]}): may not"
    if verb is Verb.REVEAL:
        assert [each.record.value for each in done] == ["v"]
        assert told in caplog.text
    else:
        assert done.unnoted == told


def test_an_outcome_is_noted_on_a_new_connection_if_the_first_was_lost(
    box: HarvestSettings, journal: FakeJournal
):
    journal.ends_with = [AWAY]
    assert operations.change(box, Verb.SKIP, [1], ALICE).unnoted == ""
    journal.ends_with = [AWAY, AWAY]
    assert "the connection was lost" in operations.change(box, Verb.SKIP, [1], ALICE).unnoted
    assert [each.outcome for each in operations.entries(box)] == [None, "1 changed"]


def test_the_error_of_a_deed_is_raised_although_it_cannot_be_noted(
    box: HarvestSettings, watched: Watched, journal: FakeJournal
):
    watched.failure = DriverError("no such column", retryable=False)
    journal.ends_with = [REFUSED]
    with pytest.raises(DriverError, match="no such column"):
        operations.raise_fence(box, ALICE)


def test_letters_that_are_gone_are_told(box: HarvestSettings, dialect: FakeDialect):
    dialect.letters.gone = {2}
    done = operations.change(box, Verb.RETRY, [2, 1, 1, 17], ALICE)
    assert (done.changed, done.gone) == ((1, 17), (2,)), "the fake changes what it does not know"
    [entry] = operations.entries(box)
    assert entry.action.subject == "3 records, key 'a' (record 1), key 'b' (record 2), record 17"
    assert entry.outcome == "2 changed, 1 gone"


def test_what_is_about_nothing_is_not_noted(box: HarvestSettings, dialect: FakeDialect, journal: FakeJournal):
    dialect.table.notes.clear()
    assert operations.forget(box, ALICE) == operations.Forgotten()
    assert operations.change(box, Verb.RETRY, [], ALICE).changed == ()
    assert (dialect.table.token, journal.noted) == (7, {})


def test_keys_are_called_what_log_lines_call_them(box: HarvestSettings):
    hashed = replace(box, key_names=KeyNames("secret"))
    operations.change(hashed, Verb.SKIP, [1], ALICE)
    assert operations.entries(box)[0].action.subject == f"key {KeyNames('secret').of('a')} (record 1)"


def test_looking_is_not_noted(box: HarvestSettings, journal: FakeJournal):
    assert [each.record.id for each in operations.letters(box, DeadLetterStatus.PARKED)] == [1, 2]
    assert {each.record.value for each in operations.letters(box)} == {None}
    assert [operations.waiting(box, number) for number in (1, 9)] == [3, 0]
    assert journal.noted == {}


def test_clusters_that_cannot_be_taken_over_are_refused_before_anything_is_noted(
    box: HarvestSettings, dialect: FakeDialect, journal: FakeJournal
):
    for cluster in (1, 7):
        with pytest.raises(operations.UnknownCluster):
            operations.change_takeover(box, Verb.TAKE_OVER, cluster, ALICE)
        with pytest.raises(operations.UnknownCluster):
            operations.change_takeover(box, Verb.END_TAKEOVER, cluster, ALICE)
    alone = replace(box, affinity=made(Seam.AFFINITY, FakePlugin()))
    with pytest.raises(ConfigError, match="has one cluster only"):
        operations.change_takeover(alone, Verb.TAKE_OVER, 2, ALICE)
    assert nothing_was_done(dialect)
    assert journal.noted == {}


@pytest.mark.parametrize("verb", Verb)
def test_each_verb_says_what_it_does_to_the_order(verb: Verb):
    assert verb.effect().endswith(".")
    assert "{" not in verb.effect()
    assert ("cluster 12" in verb.effect(12)) is (verb in {Verb.TAKE_OVER, Verb.END_TAKEOVER})
