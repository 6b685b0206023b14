"""Moves rows of other tables into an outbox while this process leads, on a thread of its own.

Lanes wait for none of it, wherever they run: the thread has a connection of its own, in the leader's process.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict
from threading import Event as Flag
from time import monotonic

from outbox_api import Capability, Intakes, IntakeState, LeadershipLost
from outbox_api.support.context_thread import ContextThread, repeat

from outbox_core.leadership.leader import Leadership
from outbox_core.settings import HarvestSettings

log = logging.getLogger("outbox.harvest")

END_SECONDS = 1.0
"""How long the end of a harvest waits for a portion that is being moved."""


def intakes_of(settings: HarvestSettings) -> Intakes | None:
    """Returns what moves rows into an outbox; ``None`` if nothing does."""
    dialect = settings.dialect
    return dialect.create().intakes() if getattr(dialect.options, "intake", None) else None


def start_intakes(settings: HarvestSettings, leadership: Leadership) -> IntakeThread | None:
    """Starts the move for a leadership, if there is anything to move."""
    if (intakes := intakes_of(settings)) is None:
        return None
    alone = Capability.CONCURRENT_WRITERS not in settings.dialect.create().capabilities
    thread = IntakeThread(intakes, leadership, settings, alone=alone)
    thread.start()
    return thread


class IntakeThread:
    """The move for one leadership; ends with it.

    ``alone``: nobody else can write into the database meanwhile, so that others need pauses.
    """

    def __init__(
        self, intakes: Intakes, leadership: Leadership, settings: HarvestSettings, *, alone: bool = False
    ) -> None:
        self._intakes = intakes
        self._leadership = leadership
        self._limits = settings.limits
        self._stopping = Flag()
        self._held: set[str] = set()
        self._alone = alone
        leadership.reporters.append(self._about)
        self._thread = ContextThread(target=self._run, name="intake", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def join(self) -> None:
        """Waits a little for the end of the thread, once the leadership is over."""
        self._stopping.set()  # ends a pause
        self._thread.join(END_SECONDS)

    def _run(self) -> None:
        limits = self._limits
        try:
            repeat(
                self._step,
                self._stopping,
                limits.max_mark_backoff,
                log,
                "cannot take rows in",
                trouble_seconds=max(limits.io_error_backoff, limits.max_mark_backoff),
            )
        finally:
            self._intakes.close()

    def _step(self) -> None:
        # As of a mark, whose records have half of a lane's bytes at most.
        most, goes_on = self._limits.max_lane_bytes // 2, True
        try:
            while goes_on and not self._leadership.over:
                began = monotonic()
                goes_on = self._intakes.take(self._leadership.token, most)
                self._say()
                if self._alone:
                    self._stopping.wait(min(monotonic() - began, 1.0))
        except LeadershipLost as error:  # which the lanes find, too
            log.info("takes no more rows in: %s", error)
            self._stopping.set()
        finally:
            self._say()
            if self._leadership.over:
                self._stopping.set()

    def _about(self) -> Mapping[str, object]:
        """Returns what heartbeats say; called in any thread."""
        return {"intakes": [_as_data(state) for state in self._intakes.states()]}

    def _say(self) -> None:
        """Logs once that a table has a row that cannot be moved, and that it has none any more."""
        held = {state.table: state for state in self._intakes.states() if state.held}
        for table, state in held.items():
            if table not in self._held:
                log.warning("table %s: a row waits, and later ones of its key: %s", table, state.reason)
        for table in self._held - held.keys():
            log.info("table %s: no row is held back any more", table)
        self._held = set(held)


def _as_data(state: IntakeState) -> dict[str, object]:
    return {
        **asdict(state),
        "stuck": round(state.stuck, 1),
        "held_for": round(state.held_for, 1),
    }
