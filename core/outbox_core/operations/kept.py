"""What an operator does with kept records: counts, finds and shows them."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import date, datetime

from outbox_api.base.errors import ConfigError, OutboxError
from outbox_api.portable.kept import PortableKept
from outbox_api.seams.kept import COMPARED, OPERATORS, Chosen, Condition, Kept, KeptRecord

from outbox_core.operations.journalled import Operator, journalled
from outbox_core.operations.reason import check_text
from outbox_core.operations.verbs import Verb
from outbox_core.settings import HarvestSettings
from outbox_core.settings.logs import KeyNames
from outbox_core.text.moment import parse_moment, parse_time

log = logging.getLogger("outbox.operations")

_CONDITION = re.compile(r"\s*(\w+)\s*([=!<>]+)\s*(.*?)\s*", re.DOTALL)
_NUMBERS = range(-(2**63), 2**63)
_MOST = 500
"""Patterns and conditions at once: with thousands a database plans for longer than it reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which kept records are meant, as an operator has written it; all conditions hold together.

    Attributes:
        key: The key, whole; ``None`` for any.
        topics: Patterns of topics with ``*`` and ``?``, of which one matches; none for any topic.
        since: Delivered then or later: a time or a duration back from now; empty for any.
        until: Delivered before then; likewise.
        where: Conditions of columns, such as ``id >= 4711``.
    """

    key: str | None = None
    topics: tuple[str, ...] = ()
    since: str = ""
    until: str = ""
    where: tuple[str, ...] = ()

    def chosen(self, now: datetime) -> Chosen:
        """Returns it for the database.

        Raises:
            ConfigError: It cannot be read; the message says what is expected.
        """
        if len(self.topics) + len(self.where) > _MOST:
            raise ConfigError(f"these are more than {_MOST} topics and conditions")
        if any("\0" in pattern for pattern in self.topics):
            raise ConfigError("no topic has the character NUL")
        for text in filter(None, (self.key, *self.topics, *self.where)):
            check_text(text)
        return Chosen(
            key=self.key,
            topics=self.topics,
            since=_moment("since", self.since, now),
            until=_moment("until", self.until, now),
            where=[condition(text) for text in self.where],
        )

    def named(self, names: KeyNames) -> str:
        """Returns it for people, with keys as log lines name them."""
        named = [] if self.key is None else [f"key {names.of(self.key)}"]
        named += [f"topic {pattern}" for pattern in self.topics]
        named += [f"{name} {text}" for name, text in (("since", self.since), ("until", self.until)) if text]
        for each in map(condition, self.where):
            value = names.of(str(each.value)) if each.column == "kafka_key" else each.value
            named.append(f"{each.column} {each.operator} {value}")
        return ", ".join(named) or "all that is kept"


def condition(text: str) -> Condition:
    """Reads a condition: column, operator and value.

    Raises:
        ConfigError: It is none; the message lists columns and operators.
    """
    found = _CONDITION.fullmatch(text)
    if not found or found[1] not in COMPARED or found[2] not in OPERATORS:
        raise ConfigError(
            f"'{text}' is no condition: write a column, an operator and a value, such as 'id >= 4711'. "
            f"Columns are {', '.join(COMPARED)}; operators are {' '.join(OPERATORS)}"
        )
    column, operator, value = found.groups()
    return Condition(column, operator, _value(column, value))


def _value(column: str, text: str) -> str | int | datetime:
    if COMPARED[column] is str:
        return text
    try:
        if COMPARED[column] is datetime:
            return parse_time(text)
        if (number := int(text)) in _NUMBERS:
            return number
    except ValueError as error:
        wanted = str(error) if COMPARED[column] is datetime else "expected a whole number"
        raise ConfigError(f"{column} is compared with '{text}': {wanted}") from None
    raise ConfigError(f"{column} is compared with '{text}', which no column can hold")


def _moment(name: str, text: str, now: datetime) -> datetime | None:
    try:
        return parse_moment(text, now) if text else None
    except ValueError as error:
        raise ConfigError(f"{name} is '{text}': {error}") from None


def kept_days(settings: HarvestSettings) -> list[tuple[date, Kept]]:
    """Returns how much is kept of each day in UTC, ordered. May read the whole table."""
    with closing(settings.dialect.create().kept(read_only=True)) as kept:
        return list(kept.days())


def kept_records(
    settings: HarvestSettings, choice: Choice, limit: int, after: int = 0
) -> Sequence[KeptRecord]:
    """Returns kept records without values and headers, ordered by position, ``limit`` at most.

    Those with a higher position than ``after``; of keys and topics as lists of dead letters have them.

    Raises:
        ConfigError: The choice cannot be read.
    """
    with closing(settings.dialect.create().kept(read_only=True)) as kept:
        return kept.find(choice.chosen(kept.now()), after, limit, whole=False)


def kept_record(settings: HarvestSettings, position: int) -> KeptRecord:
    """Returns a kept record as :func:`kept_records` does; raises as :func:`reveal_kept`."""
    with closing(settings.dialect.create().kept(read_only=True)) as kept:
        return _at(kept, position, whole=False)


def reveal_kept(settings: HarvestSettings, position: int, operator: Operator) -> KeptRecord:
    """Returns all of a kept record. The journal notes it, as values may be confidential.

    Raises:
        OutboxError: There is none at this position.
    """
    with closing(settings.dialect.create().kept(read_only=True)) as kept:
        key = settings.key_names.of_listed(_at(kept, position, whole=False).record.key)
        named = f", key {key}" if key else ""
        with journalled(settings, Verb.REVEAL, f"kept record {position}{named}", operator) as outcome:
            record = _at(kept, position, whole=True)
            outcome.text = "1 shown"
    if outcome.unnoted:
        log.warning("%s", outcome.unnoted)
    return record


def _at(kept: PortableKept, position: int, *, whole: bool) -> KeptRecord:
    if found := kept.find(Chosen(through=position), position - 1, 1, whole=whole):
        return found[0]
    raise OutboxError(f"no record is kept at position {position}; see 'outbox kept list'")
