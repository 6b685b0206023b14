"""Copies dead letters to topics while this process leads, on a thread of its own.

It reads them from their table. So a leader that is lost between the two leaves its successor all that is not
copied yet, and lanes neither wait for it nor know of it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import count
from threading import Event as Flag
from time import monotonic

from outbox_api import DriverError, Failure, MarkedRecord, Sender
from outbox_api.base.bounds import is_unread
from outbox_api.base.record import ID_HEADER, Header
from outbox_api.portable.dead_letters import PortableDeadLetters
from outbox_api.seams.parking import (
    LONGEST_KEY,
    DeadLetter,
    DeadLetterStatus,
    FailureClass,
    failure_class,
)
from outbox_api.support.context_thread import ContextThread, repeat

from outbox_core.events.metrics import COPIED
from outbox_core.leadership.leader import Leadership, Totals
from outbox_core.settings import HarvestSettings

log = logging.getLogger("outbox.harvest")

STEP_SECONDS = 1.0
"""The pause between two steps: whether the lanes have parked a key, and whether the leadership is over."""
TROUBLE_SECONDS = 5.0
"""The same while the database or the broker does not answer."""
LOOK_SECONDS = 60.0
"""The longest time between two looks at the table, if the lanes tell of nothing."""
OVERLAP = timedelta(seconds=60)
"""What was parked so shortly before the former leader's last look is copied again: commits have no order."""
EARLIEST = datetime.min.replace(tzinfo=UTC)
SEND_SECONDS = 30.0
"""How long one copy may take; then it is tried again."""
END_SECONDS = 1.0
"""How long the end of a harvest waits for a copy."""


class DeadLetterCopies:
    """The copies of one leadership; ends with it.

    Args:
        settings: The outbox.
        leadership: The leadership.
        totals: Counts what cannot be copied.
        identity: The outbox's identity.
        copied_until: What the former leader's heartbeats said; empty to copy all that is parked.
    """

    def __init__(
        self,
        settings: HarvestSettings,
        leadership: Leadership,
        totals: Totals,
        identity: str,
        copied_until: str,
    ) -> None:
        self._settings = settings
        self._leadership = leadership
        self._totals = totals
        self._identity = identity
        self._until = copied_until
        self._from = datetime.fromisoformat(copied_until) - OVERLAP if copied_until else None
        self._done: dict[int, datetime] = {}  # by id, since when they were parked
        self._parked, self._due = 0, 0.0
        self._said: set[str] = set()  # topics of which the log says that they fail
        self._sender: Sender | None = None
        self._numbers = count()
        self._stopping = Flag()
        leadership.reporters.append(self._about)
        self._thread = ContextThread(target=self._run, name="dead-letters", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def join(self) -> None:
        """Waits a little for the end of the thread, once the leadership is over."""
        self._stopping.set()  # ends a pause
        self._thread.join(END_SECONDS)

    def _about(self) -> Mapping[str, object]:
        return {COPIED: self._until} if self._until else {}

    def _run(self) -> None:
        what = "cannot copy dead letters"
        try:
            repeat(self._step, self._stopping, STEP_SECONDS, log, what, trouble_seconds=TROUBLE_SECONDS)
        finally:
            self._close()

    def _step(self) -> None:
        parked, now = self._leadership.metrics().parked, monotonic()
        if self._leadership.over:
            self._stopping.set()
        elif parked != self._parked or now >= self._due:
            with closing(self._settings.dialect.create().dead_letters(read_only=True)) as table:
                left = self._copy_new(table)
            self._parked, self._due = parked, now + (TROUBLE_SECONDS if left else LOOK_SECONDS)

    def _copy_new(self, table: PortableDeadLetters) -> bool:
        """Copies what is not copied yet; returns whether some of it is left for the next look."""
        listed = table.find(whole=False)
        if self._from is None:  # nobody has copied any: what was skipped before is of no interest
            old = (each for each in listed if each.status is DeadLetterStatus.SKIPPED)
            self._done = {each.record.id: each.since for each in old}
            self._from = EARLIEST
        left, failing = list[DeadLetter](), set[str]()
        for letter in listed:
            if not self._is_new(letter, self._from):
                continue
            topic = self._settings.failures.topic_of(failure_class(letter.reason))
            if topic in failing or self._leadership.over:
                left.append(letter)
            elif (failure := self._copy(table, letter, topic)) and failure.retryable:
                failing.add(topic)
                left.append(letter)
            else:
                self._done[letter.record.id] = letter.since
        ids = {each.record.id for each in listed}
        self._done = {number: since for number, since in self._done.items() if number in ids}
        if listed:
            now = listed[0].since + timedelta(seconds=listed[0].age)
            self._until = min([now, *(each.since for each in left)]).isoformat()
        return bool(left)

    def _is_new(self, letter: DeadLetter, since: datetime) -> bool:
        """Returns whether a letter is not copied; also one that was skipped before anybody looked."""
        done = self._done.get(letter.record.id)
        if done is None:
            return letter.since > since
        return done != letter.since and letter.status is DeadLetterStatus.PARKED  # it is parked again

    def _copy(self, table: PortableDeadLetters, letter: DeadLetter, topic: str) -> Failure | None:
        """Copies a letter; returns why it could not be, which the log has once."""
        about = self._about_letter(letter)
        less = [*about, ("dead-letter-without", "value, headers")]
        if is_unread(letter.reason):
            failure = self._send(MarkedRecord(0, topic, letter.record.key[:LONGEST_KEY], None, less))
        elif found := table.find(ids=[letter.record.id]):
            record = found[0].record
            whole = MarkedRecord(0, topic, record.key, record.value, [*record.headers, *about])
            lean = whole._replace(value=None, headers=less)
            # Transforms may take something out that no topic may have, and they have not seen the letter.
            failure = self._send(lean if self._settings.transforms else whole)
            if failure is not None and failure_class(failure.reason) is FailureClass.TOO_LARGE:
                failure = self._send(lean)
        else:  # an operator has freed the key
            return None
        if failure is None:
            self._said.discard(topic)
            return None
        self._totals.uncopied += not failure.retryable
        if topic not in self._said and not self._leadership.over:
            self._said.add(topic)
            log.warning(
                "dead letters are in their table only ('outbox parked list'), not in the topic '%s': %s",
                topic,
                failure.reason,
            )
        return failure

    def _about_letter(self, letter: DeadLetter) -> list[Header]:
        return [
            (ID_HEADER, f"{self._identity}:{letter.record.id}"),
            ("dead-letter-class", failure_class(letter.reason)),
            ("dead-letter-reason", letter.reason),
            ("dead-letter-topic", letter.record.topic[:LONGEST_KEY]),
            ("dead-letter-attempts", str(letter.attempts)),
            ("dead-letter-since", letter.since.isoformat()),
        ]

    def _send(self, message: MarkedRecord) -> Failure | None:
        """Sends a message, and waits for the broker; returns the failure, if it is one."""
        message = message._replace(id=next(self._numbers))
        try:
            if self._sender is None:
                publisher = self._settings.publisher.create()
                self._sender = publisher.open(f"{self._settings.outbox}.dead-letters")
            self._sender.send([message])
            end = monotonic() + SEND_SECONDS
            while monotonic() < end and not self._leadership.over:
                reports = self._sender.poll(STEP_SECONDS)
                if any(each.id == message.id for each in reports.delivered):
                    return None
                for failure in reports.failed:
                    if failure.record.id == message.id:
                        return failure
        except DriverError:
            self._close()
            raise
        return Failure(message, "nothing was heard of it in time", retryable=True)

    def _close(self) -> None:
        sender, self._sender = self._sender, None
        if sender is not None:
            sender.close(0.0)
