"""What a check says of the table that an intake reads: what will be wrong without an error."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from outbox_api.base.finding import Finding, Level
from outbox_api.intake import taken
from outbox_api.intake.intake import Intake, parts
from outbox_api.intake.json_path import columns as columns_of
from outbox_api.portable.column_facts import ColumnFacts, Nature
from outbox_api.portable.intake_order import Order
from outbox_api.portable.intake_table import KnownTable

SUBJECT = "intake"
SAMPLE = 1_000
"""So many rows are looked at."""

_NEARLY_FULL = 0.8
_AHEAD_MS = 60_000
_BEHIND_MS = 20 * 60_000
_LEAST_MS = 10**11
"""A number of milliseconds below is before 1973: they are seconds."""

_SENT = re.compile(
    r"(is|was)?(processed|published|sent|dispatched|delivered|completed|completion|acked|acknowledged|relayed|done)"
    r"(at|on|date|time|utc|atutc|onutc)*"
)
_STATE = re.compile(r".*(status|state)(name|code)?")


def findings(intake: Intake, rows: KnownTable) -> Iterator[Finding]:
    """Looks at a table whose rows can be taken in."""
    yield from _state(intake, rows.facts)
    yield _order(intake, rows.order)
    keys = rows.sample(columns_of(intake.key), SAMPLE, waiting=True)
    if not keys:
        yield Finding(
            Level.OK,
            SUBJECT,
            f"no row of table {intake.table} waits; rows that an application deletes in the transaction that "
            "writes them are never seen: let it keep them",
        )
        return
    yield from _keys(intake, keys)
    yield from _topics(intake, rows)
    yield from _nulls(intake, rows)
    yield from _room(intake, rows)
    yield from _clock(intake, rows)


def _state(intake: Intake, columns: Mapping[str, ColumnFacts]) -> Iterator[Finding]:
    if intake.where or intake.done:
        return
    moments = (Nature.MOMENT, Nature.COARSE)  # which must be null to say that a row was not sent
    may = [name for name, facts in columns.items() if not (facts.required and facts.nature in moments)]
    plain = {name: name.lower().replace("_", "") for name in may}
    sent = [name for name, bare in plain.items() if _SENT.fullmatch(bare)]
    state = [name for name, bare in plain.items() if _STATE.fullmatch(bare) and name not in intake.columns]
    for level, names in ((Level.ERROR, sent), (Level.WARNING, state)):
        if names:
            seen = f"{_listed(names)} of table {intake.table} may say that a row was sent"
            cure = f"write intake.where, such as where: {{{names[0]}: null}}; without, all rows go out"
            yield Finding(level, SUBJECT, seen, cure)


def _order(intake: Intake, order: Order) -> Finding:
    seen = f"rows of table {intake.table} can be taken in, in {order.words}"
    if order.doubt:
        return Finding(order.level, SUBJECT, f"{seen}; {order.doubt}", order.cure)
    return Finding(Level.OK, SUBJECT, seen)


def _keys(intake: Intake, rows: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    empty = sum(1 for row in rows if not taken.key_of(intake, row))
    if empty:
        seen = f"{empty} of {len(rows)} rows of table {intake.table} have no key, and go to one partition"
        yield Finding(Level.WARNING, SUBJECT, seen, f"name a column that is not null: key: {intake.key} | …")


def _topics(intake: Intake, rows: KnownTable) -> Iterator[Finding]:
    references = [reference for _, reference in parts(intake.topic) if reference]
    if references:
        sample = rows.sample(columns_of(*references), SAMPLE, waiting=True)
        if problems := [problem for row in sample if (problem := taken.topic_problem(intake, row))]:
            seen = f"{len(problems)} of {len(sample)} rows of table {intake.table}: {problems[0]}"
            yield Finding(
                Level.ERROR, SUBJECT, seen, "write another intake.topic before these rows are moved"
            )


def _nulls(intake: Intake, rows: KnownTable) -> Iterator[Finding]:
    name = intake.order
    if name and not rows.facts[name].required:
        sample = rows.sample([name], SAMPLE, waiting=True)
        if empty := sum(1 for row in sample if row[name] is None):
            seen = f"'{name}' is null in {empty} of {len(sample)} rows of table {intake.table}"
            cure = "fill it, and let the column refuse nulls; until then these rows have no order"
            yield Finding(Level.WARNING, SUBJECT, seen, cure)


def _room(intake: Intake, rows: KnownTable) -> Iterator[Finding]:
    most = rows.facts[intake.id].greatest
    last = rows.greatest(intake.id) if most else None
    if most and last is not None and int(last) >= most * _NEARLY_FULL:
        seen = (
            f"'{intake.id}' of table {intake.table} is at {int(last):,} of {most:,}: {int(last) / most:.0%}"
        )
        cure = "give it eight bytes; behind the last number the application cannot write"
        yield Finding(Level.WARNING, SUBJECT, seen, cure)


def _clock(intake: Intake, rows: KnownTable) -> Iterator[Finding]:
    """Compares the newest moment with the clock; nothing is guessed."""
    name = intake.timestamp
    if not name or (newest := rows.greatest(name)) is None:
        return
    subject = f"the newest '{name}' of table {intake.table}"
    try:
        moment = taken.milliseconds(newest, intake.tz)
    except (ValueError, OverflowError) as error:
        cure = "name a column of moments or of milliseconds, or leave intake.timestamp out"
        yield Finding(Level.ERROR, SUBJECT, f"{subject} is no moment that a message may have: {error}", cure)
        return
    if rows.facts[name].nature is Nature.NUMBER and abs(moment) < _LEAST_MS:
        seen = f"{subject} is {moment}, in milliseconds a day of {_day(moment)}; are these seconds?"
        yield Finding(Level.WARNING, SUBJECT, seen, "write milliseconds, or leave intake.timestamp out")
        return
    ahead = moment - rows.now().timestamp() * 1000
    zone = f"set intake.zone to where they were written, now {intake.zone}"
    if ahead > _AHEAD_MS:
        seen = f"{subject} is {_span(ahead)} ahead of the clock, and Kafka may refuse it"
        yield Finding(Level.ERROR, SUBJECT, seen, zone)
    elif ahead < -_BEHIND_MS:
        seen = f"{subject} is {_span(-ahead)} behind the clock"
        yield Finding(Level.WARNING, SUBJECT, seen, f"if newer rows were written, {zone}")


def _day(milliseconds: int) -> int:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).year


def _span(milliseconds: float) -> str:
    minutes = milliseconds / 60_000
    return f"{minutes / 60:.1f} h" if minutes >= 60 else f"{minutes:.0f} min"  # noqa: PLR2004 - an hour


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
