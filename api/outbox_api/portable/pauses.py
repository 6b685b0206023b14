"""What operators have paused, as it is noted beside the outbox."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from outbox_api.base.errors import DriverError
from outbox_api.portable.notes import REASON_LENGTH, ensure_identity
from outbox_api.portable.rows import storable
from outbox_api.portable.session import Session
from outbox_api.portable.statements import Statements
from outbox_api.seams.pausing import MAX_PAUSES, Pause

OPERATOR_LENGTH = 200
"""Characters of an operator's name that are kept."""


@dataclass(frozen=True, slots=True)
class Pausing:
    """The pauses of an outbox, in transactions of their own.

    They are noted as JSON: a topic → who has paused it, why, since when and until when; null where there are
    none, so that who looks often reads nothing.
    """

    _session: Session
    _sql: Statements
    _name: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_name", self._sql.name)

    def read(self) -> list[Pause]:
        """Returns those that are on, the whole outbox first and then by topic."""
        session = self._session
        with session.transaction("read what is paused", reads=True):
            rows = session.fetch(self._sql.pauses, name=self._name)
            return self._present(rows[0][0], session.now()) if rows else []

    def pause(self, topic: str, operator: str, reason: str, seconds: float | None) -> Pause:
        """Stores that a topic is paused, see :meth:`outbox_api.OutboxTable.pause`."""
        session = self._session
        # Lanes give the topics of pauses to the database in all that they ask.
        if storable(topic, session.encoding) != topic:
            said = "no record of the outbox has a topic that its database cannot hold"
            raise DriverError(said, retryable=False)
        ensure_identity(session, self._sql)
        with session.transaction("pause"):
            noted, now = self._locked()
            if topic not in noted and len(noted) >= MAX_PAUSES:
                raise DriverError(
                    f"the outbox has {MAX_PAUSES} pauses already; resume some, or pause the whole outbox",
                    retryable=False,
                )
            since = noted[topic].since if topic in noted else now
            until = None if seconds is None else now + timedelta(seconds=seconds)
            who = storable(operator, session.encoding)[:OPERATOR_LENGTH]
            why = storable(reason, session.encoding)[:REASON_LENGTH]
            made = Pause(topic, who, why, since, until, (now - since).total_seconds())
            self._write({**noted, topic: made})
        return made

    def resume(self, topic: str) -> Pause | None:
        """Stores that a topic is paused no longer; returns the pause that was on."""
        with self._session.transaction("resume"):
            noted, _ = self._locked()
            ended = noted.pop(topic, None)
            if ended is not None:
                self._write(noted)
        return ended

    def _locked(self) -> tuple[dict[str, Pause], datetime]:
        rows = self._session.fetch(self._sql.hold_note, name=self._name)
        now = self._session.now()
        return {each.topic: each for each in self._present(rows[0][1], now)} if rows else {}, now

    def _present(self, text: Any, now: datetime) -> list[Pause]:
        """Returns those that have not ended at this moment."""
        noted: Mapping[str, list[Any]] = json.loads(self._session.idiom.read_text(text) or "{}")
        found = []
        for topic, (operator, reason, since, until) in sorted(noted.items()):
            began = datetime.fromisoformat(since)
            end = None if until is None else datetime.fromisoformat(until)
            if end is None or end > now:
                lasted = max(0.0, (now - began).total_seconds())
                found.append(Pause(topic, operator, reason, began, end, lasted))
        return found

    def _write(self, noted: Mapping[str, Pause]) -> None:
        texts = {
            topic: [each.operator, each.reason, each.since.isoformat(), each.until and each.until.isoformat()]
            for topic, each in noted.items()
        }
        text = json.dumps(texts) if texts else None
        self._session.execute(self._sql.set_pauses, name=self._name, pauses=text)
