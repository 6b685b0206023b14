"""What the log of a sink says, and what follows from it for a task and for the driver. No I/O."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any, Final, NamedTuple

from outbox_api import DriverError

from pyspark_outbox_kafka.sums import NO_ROWS, Sums

_MAX_RUNS: Final = 50
"""How many runs are remembered: a task of an older one would be taken for one of a new run, and end it."""


class Part(NamedTuple):
    """What one task publishes of a batch; a run is the life of a query from start to end."""

    query: str
    run: str
    batch: int
    task: int


class Outcome(Enum):
    """What became of a task's rows."""

    PUBLISHED = auto()
    KNOWN = auto()
    """They had been published; or there are none."""
    WITHHELD = auto()
    """They were only counted: whether they may be published is for the driver to say."""


class Report(NamedTuple):
    """What a task tells the driver."""

    part: Part
    outcome: Outcome
    sums: Sums


class Kind(Enum):
    """What an entry of the log is about."""

    STANDING = "standing"
    OPENED = "opened"
    """A task is about to publish: whoever takes over must end it first."""
    PUBLISHED = "published"
    COMPARED = "compared"
    """A task has counted rows that an earlier run had published."""
    WITHHELD = "withheld"
    """A task has published nothing, as it waited in vain for others to compare: so would the next."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A record of the log."""

    kind: Kind
    part: Part
    offset: int = -1
    sums: Sums = NO_ROWS
    standing: Standing | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a sink is: written by a new run, and once a batch is whole.

    Attributes:
        query: The query.
        runs: Its runs, and those before; the last one goes on.
        batch: The batch.
        whole: Whether all of it is published; ``sums`` and ``tasks`` are then those of all of it.
        committed: What earlier runs have published of a batch that is not whole, by task.
        expected: What each task has of it, once the driver has compared that with ``committed``.
    """

    query: str
    runs: Sequence[str]
    batch: int
    whole: bool = False
    sums: Sums = NO_ROWS
    tasks: int = 0
    committed: Mapping[int, Sums] = field(default_factory=dict)
    expected: Mapping[int, Sums] = field(default_factory=dict)

    def partly(self, part: Part) -> bool:
        """Returns whether it is about the batch of a part, and that is not whole."""
        return not self.whole and (self.query, self.batch) == (part.query, part.batch)


@dataclass
class Ledger:
    """The last standing, and what has happened since."""

    standing: Standing | None = None
    runs: list[str] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Ledger:
        """Reads entries in the order of the log, from the last standing on."""
        ledger = cls()
        for entry in entries:
            if entry.standing is not None:
                ledger.standing, ledger.entries = entry.standing, []
                ledger.runs = list(entry.standing.runs)
            else:
                ledger.entries.append(entry)
                if entry.part.run not in ledger.runs:
                    ledger.runs.append(entry.part.run)
        return ledger

    def of_batch(self, kind: Kind, part: Part) -> list[Entry]:
        """Returns the entries of a kind about the batch of a part, of any run."""
        wanted = part.query, part.batch
        return [
            each
            for each in self.entries
            if each.kind is kind and (each.part.query, each.part.batch) == wanted
        ]

    def others(self, part: Part) -> set[int]:
        """Returns the tasks that other runs have opened since the standing."""
        return {
            each.part.task for each in self.entries if each.kind is Kind.OPENED and each.part.run != part.run
        }

    def leader(self, run: str) -> int | None:
        """Returns the first task of a run since the standing."""
        return next((each.part.task for each in self.entries if each.part.run == run), None)


class Step(Enum):
    """What a task does next."""

    PUBLISH = auto()
    TAKE_OVER = auto()
    WAIT = auto()
    """A sibling takes over."""
    OPEN = auto()
    """It opens its part again: who takes over from this run does not see what is before a standing."""
    COUNT = auto()
    """The batch is whole: the rows are only counted."""


def check(ledger: Ledger, part: Part, name: str, replaces: str | None) -> None:
    """Refuses a run that is not the newest, another query, and an older copy of a checkpoint.

    Raises:
        DriverError: As above.
    """
    if ledger.runs and ledger.runs[-1] != part.run and part.run in ledger.runs:
        raise _refused(
            f"another run of the sink '{name}' has begun ({ledger.runs[-1]}), and this one "
            f"({part.run}) ends: two copies of a query write into it"
        )
    standing = ledger.standing
    if standing is None:
        return
    if standing.query != part.query:
        if replaces != standing.query:
            raise _refused(
                f"the sink '{name}' is that of query {standing.query}, and this is query {part.query}, as "
                "with a new checkpoint: what that one has published may come again. Name another sinkName; "
                f"or, if that query is over and repeats do not matter, set replacesQuery to {standing.query}"
            )
        return
    newest = max(
        [standing.batch, *(each.part.batch for each in ledger.entries if each.part.query == part.query)]
    )
    if newest > part.batch:
        raise _refused(
            f"the sink '{name}' has published batch {newest}, and this is batch {part.batch}: the query's "
            "checkpoint is an older copy, or this task is of the past. Restore the newest checkpoint"
        )


def step(ledger: Ledger, part: Part) -> Step:
    """Returns what a task does, of a run that :func:`check` permits and that has opened its part."""
    standing = ledger.standing
    if standing is not None and standing.query == part.query and standing.runs[-1] == part.run:
        if not any(each.kind is Kind.OPENED and each.part == part for each in ledger.entries):
            return Step.OPEN
        return Step.COUNT if standing.whole and standing.batch == part.batch else Step.PUBLISH
    return Step.TAKE_OVER if ledger.leader(part.run) == part.task else Step.WAIT


def taken_over(ledger: Ledger, part: Part, committed: Iterable[Entry]) -> Standing:
    """Returns the standing of a new run, given the entries of earlier ones that are committed."""
    runs = [*(each for each in ledger.runs if each != part.run), part.run][-_MAX_RUNS:]
    standing = ledger.standing
    if standing is not None and standing.query == part.query and standing.batch == part.batch:
        if standing.whole:
            return replace(standing, runs=runs)
        before, expected = standing.committed, standing.expected
    else:
        before, expected = {}, {}
    found = {each.part.task: each.sums for each in committed}
    return Standing(part.query, runs, part.batch, committed={**before, **found}, expected=expected)


def compared(ledger: Ledger, part: Part) -> bool | None:
    """Returns whether all tasks of earlier runs have the same rows in this one; ``None`` if not known yet."""
    standing = ledger.standing
    earlier = standing.committed if standing is not None and standing.partly(part) else {}
    found = {
        each.part.task: each.sums
        for each in ledger.of_batch(Kind.COMPARED, part)
        if each.part.run == part.run
    }
    if any(sums != earlier[task] for task, sums in found.items() if task in earlier):
        return False
    if any(each.part.run == part.run for each in ledger.of_batch(Kind.WITHHELD, part)):
        return False
    return True if found.keys() >= earlier.keys() else None


def settle(ledger: Ledger, part: Part, reports: Sequence[Report], name: str) -> tuple[Standing | None, str]:
    """Returns the standing at the end of a batch, and why the query has to end there, or nothing.

    The standing is the present one if nothing changes.

    Raises:
        DriverError: The rows are not those that were published.
    """
    total = sum((each.sums for each in reports), NO_ROWS)
    standing = ledger.standing
    if standing is not None and standing.whole and (standing.query, standing.batch) == part[::2]:
        if standing.sums != total:
            raise _differs(name, part, (standing.sums, standing.tasks), (total, len(reports)))
        return standing, ""
    partly = standing if standing is not None and standing.partly(part) else None
    earlier = dict(partly.committed) if partly else {}
    if not total.count:  # no task has looked into the log
        published = [each for each in ledger.of_batch(Kind.PUBLISHED, part) if each.part.run != part.run]
        before = sum((each.sums for each in published), sum(earlier.values(), NO_ROWS))
        if before.count:
            raise _differs(name, part, (before, 1), (total, len(reports)))
        return standing, ""
    logged = earlier | {
        each.part.task: each.sums
        for each in reports
        if each.outcome is not Outcome.WITHHELD and each.sums.count
    }
    runs = standing.runs if standing is not None else (part.run,)
    there = sum(logged.values(), NO_ROWS)
    if there == total:
        return Standing(part.query, runs, part.batch, whole=True, sums=total, tasks=len(reports)), ""
    own = {each.part.task: each.sums for each in reports}
    others = any(own.get(task) != sums for task, sums in earlier.items())
    if others or (partly is not None and partly.expected and partly.expected != own):
        then = sum(earlier.values(), NO_ROWS), max(earlier, default=0) + 1
        raise _differs(name, part, then, (total, len(reports)))
    verified = Standing(part.query, runs, part.batch, committed=logged, expected=own)
    return verified, (
        f"batch {part.batch} was published in part before a crash, and its tasks could not all be compared "
        "while others waited, as fewer run at a time now. They are now: start the query again, and it goes on"
    )


def _differs(name: str, part: Part, then: tuple[Sums, int], now: tuple[Sums, int]) -> DriverError:
    return _refused(
        f"the rows of batch {part.batch} of the sink '{name}' are not those that were published before: "
        f"{then[0].count} rows of at least {then[1]} tasks then, {now[0].count} rows of {now[1]} tasks now. "
        "Restore what divided them (the number of partitions, spark.sql.shuffle.partitions, "
        "spark.sql.adaptive.enabled), and see that the query gives the same rows for the same input (no "
        "rand(), current_timestamp() or uuid()); nothing more of the batch was published"
    )


def _refused(message: str) -> DriverError:
    return DriverError(message, retryable=False)


def encoded(entry: Entry) -> str:
    """Returns what a record of the log contains."""
    body: dict[str, Any] = {"query": entry.part.query, "run": entry.part.run, "batch": entry.part.batch}
    if entry.standing is not None:
        standing = entry.standing
        body |= {"runs": list(standing.runs), "whole": standing.whole, "tasks": standing.tasks}
        body |= {"sums": standing.sums.written()}
        body |= {
            name: {str(task): sums.written() for task, sums in each.items()}
            for name, each in (("committed", standing.committed), ("expected", standing.expected))
        }
    elif entry.kind is not Kind.OPENED:
        body["sums"] = entry.sums.written()
    return json.dumps(body, separators=(",", ":"))


def decoded(kind: Kind, task: int, offset: int, text: bytes) -> Entry:
    """Reads what a record of the log contains."""
    body = json.loads(text)
    part = Part(body["query"], body["run"], body["batch"], task)
    if kind is not Kind.STANDING:
        return Entry(kind, part, offset, Sums.of(body.get("sums", [0, "0"])))
    by_task = {
        name: {int(each): Sums.of(sums) for each, sums in body[name].items()}
        for name in ("committed", "expected")
    }
    standing = Standing(
        part.query, body["runs"], part.batch, body["whole"], Sums.of(body["sums"]), body["tasks"], **by_task
    )
    return Entry(kind, part, offset, standing=standing)
