"""Outboxes that rest: one look for all of a database, which wakes those that have rows.

An outbox that is empty for a while rests: no thread, no connection and no leadership is left of it in this
process. A wake begins as a start does, with an election and a new token of the fence. So what is seen here
decides when a harvest begins and ends, and nothing else.

Each outbox begins once after a start, some at a time, so that what is wrong with it is logged early.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Event as Flag
from time import monotonic
from typing import TypeVar

from outbox_api import Dialect, DriverError, LaneStatus
from outbox_api.election import LeaseTimes
from outbox_api.portable.glance import PortableGlance, RestingLane
from outbox_api.support.context_thread import ContextThread, repeat

from outbox_core.harvest.harvest_thread import HarvestThread
from outbox_core.settings import MIN_HEARTBEAT_SECONDS, HarvestSettings
from outbox_core.status.rivals import leading_among
from outbox_core.status.snapshot import is_silent, longest_silence, present_lanes

log = logging.getLogger("outbox.harvest")

LOOK_SECONDS = 0.1
"""Between two looks at outboxes that rest."""
AWAKE_LOOK_SECONDS = 2.0
"""Between two looks at an outbox that does not rest, to learn whether it is empty."""
TROUBLE_SECONDS = 1.0
"""Between two looks at a database that does not answer."""
AT_ONCE = 50
"""Outboxes that one statement looks at."""
BEGINNERS = 8
"""Outboxes of a database that begin at a time."""
BEGIN_SECONDS = 5.0
"""An outbox that takes longer to begin no longer keeps others from beginning."""
LED_SECONDS = 1.0
"""For how long an outbox is led that has begun and is empty, while others wait to begin."""
RARE_SECONDS = 1800.0
"""An outbox that is woken sooner after it came to rest rests four times later than before."""
LATEST = 16
"""How many times later than ``restAfter`` an outbox rests at most."""
_CLOSE_SECONDS = 1.0
_AT_REST = {"purged_per_second": 0, "in_flight": 0, "waiting": 0, "recent": {}, "resting": True}

Item = TypeVar("Item")
Answer = TypeVar("Answer")


def may_rest(outbox: HarvestSettings) -> bool:
    """Returns whether an outbox may rest, as it then begins again within a fraction of a second.

    An outbox that takes rows of another table in may not, as the look would not see those.
    """
    elector, dialect = outbox.elector, outbox.dialect
    times = elector.options
    return (
        outbox.limits.rest_after > 0
        and outbox.engine.driver == "inline"
        and (elector.driver == "static" or (isinstance(times, LeaseTimes) and times.joins_at_once))
        and not getattr(dialect.options, "intake", None)
    )


def is_led(outbox: HarvestSettings, lanes: Iterable[LaneStatus]) -> bool:
    """Returns whether somebody leads an outbox: one that takes part must not rest before that is decided."""
    present = present_lanes(lanes)
    return bool(present) and not is_silent(present[0], longest_silence(outbox))


@dataclass(slots=True, eq=False)
class _Outbox:
    thread: HarvestThread
    dialect: Dialect
    begun: bool = False  # whether it has begun, and need not again without a row
    beginner: bool = False  # whether it has begun without a row, and had nothing to do since
    busy_at: float = 0.0  # when it was last known to have something to do, or was woken
    done: tuple[int, ...] = (0, 0, 0)  # what its lanes had done then
    rested_at: float = 0.0  # when it came to rest
    later: int = 1
    """How many times later than ``restAfter`` it rests, as it was woken often: each wake is a takeover, and
    costs as much."""
    look_due: float = 0.0  # when to look at it, if it does not rest
    beat_due: float = 0.0  # when the next heartbeat of its resting lanes is due

    def is_due(self, now: float) -> bool:
        """Returns whether to look at it now; not while its lanes do something."""
        if self.thread.rests:
            return True
        metrics = self.thread.totals.metrics()
        done = (metrics.marked, metrics.sent, metrics.purged)
        if done != self.done:
            self.done, self.beginner = done, False
            self.busy_at, self.look_due = now, now + AWAKE_LOOK_SECONDS
        return now >= self.look_due

    def wake(self, now: float, look_again: float, *, beginner: bool = False) -> None:
        """Has it harvested, and looks at it after so many seconds."""
        if self.rested_at and self.thread.rests:
            self.later = min(4 * self.later, LATEST) if now - self.rested_at < RARE_SECONDS else 1
        self.thread.wake()
        self.busy_at, self.look_due = now, now + look_again
        self.begun, self.beginner = True, beginner


class RestThread:
    """Looks at all outboxes of one database, has them begin, rest and wake, on a thread of its own."""

    def __init__(self, threads: Collection[HarvestThread]) -> None:
        self.threads = threads
        self._outboxes: dict[HarvestThread, _Outbox] = {}
        self._glance: PortableGlance | None = None
        self._gone = 0  # outboxes that the glance may still know of
        self._anew = Flag()
        self._stopping = Flag()
        self._thread = ContextThread(target=self._run, name="resting", daemon=True)
        self._thread.start()

    def begin_anew(self) -> None:
        """Has outboxes that rest, and that this process would not lead, begin again: their leader is gone."""
        self._anew.set()

    def stop(self) -> None:
        """Ends, if the database answers at once. Idempotent."""
        self._stopping.set()
        self._thread.join(_CLOSE_SECONDS)

    def _run(self) -> None:
        complaint = "cannot look at outboxes that rest"
        repeat(self._step, self._stopping, LOOK_SECONDS, log, complaint, trouble_seconds=TROUBLE_SECONDS)
        with suppress(DriverError):  # others then learn it by their silence
            self._beat(monotonic(), leaves=True)
        self._close()

    def _step(self) -> None:
        now = monotonic()
        self._learn(now)
        try:
            self._find_lanes()
            self._look(now)
            self._beat(now)
        except BaseException:
            self._close()
            raise
        finally:
            self._begin(now)

    def _learn(self, now: float) -> None:
        known = self._outboxes
        self._outboxes = {
            thread: known.get(thread) or _Outbox(thread, thread.settings.dialect.create(), busy_at=now)
            for thread in self.threads
        }
        self._gone += len(known.keys() - self._outboxes.keys())
        if self._gone > len(self._outboxes):
            self._close()
        if self._anew.is_set():
            self._anew.clear()
            for outbox in self._outboxes.values():
                outbox.begun &= not outbox.thread.rests or bool(outbox.thread.resting_lanes)

    def _find_lanes(self) -> None:
        """Finds the lanes that were led when an outbox was told to rest, unless others lead by now."""
        led = [each for each in self._outboxes.values() if each.thread.rests and each.thread.led is not None]
        for outbox, lanes in self._of_each(_lanes, led):
            thread = outbox.thread
            found = [lane for lane in lanes or () if lane.fence.token == thread.led]
            thread.resting_lanes, thread.led = found, None
            outbox.beat_due = 0.0  # the lanes' last heartbeats say that they have left

    def _look(self, now: float) -> None:
        idle = list[_Outbox]()
        due = [outbox for outbox in self._outboxes.values() if outbox.is_due(now)]
        for outbox, waits in self._of_each(_waiting, due):
            if waits is None:  # its harvest tells what is wrong
                outbox.wake(now, outbox.thread.settings.limits.rest_after)
            elif waits:
                outbox.wake(now, AWAKE_LOOK_SECONDS)
            elif outbox.thread.rests:
                outbox.thread.seen_empty = now
            elif self._may_rest(outbox, now):
                idle.append(outbox)
        for outbox, lanes in self._of_each(_lanes, idle):
            if outbox.thread.leads or is_led(outbox.thread.settings, lanes or ()):
                outbox.thread.rest()
                outbox.beginner, outbox.rested_at = False, now

    def _may_rest(self, outbox: _Outbox, now: float) -> bool:
        """Returns whether an outbox that was found empty has been so for long enough."""
        crowded = not all(each.begun for each in self._outboxes.values())
        patience = outbox.thread.settings.limits.rest_after * outbox.later
        if crowded and outbox.beginner:
            patience = min(patience, LED_SECONDS if outbox.thread.leads else BEGIN_SECONDS)
        outbox.look_due = now + (LOOK_SECONDS if crowded else AWAKE_LOOK_SECONDS)
        return outbox.thread.takes_part and now - outbox.busy_at >= patience

    def _begin(self, now: float) -> None:
        outboxes = self._outboxes.values()
        beginning = sum(each.beginner and now - each.busy_at < BEGIN_SECONDS for each in outboxes)
        waiting = [outbox for outbox in outboxes if not outbox.begun]
        for outbox in waiting[: max(0, BEGINNERS - beginning)]:
            outbox.wake(now, LOOK_SECONDS, beginner=True)

    def _beat(self, now: float, *, leaves: bool = False) -> None:
        """Writes the heartbeats of lanes that rest, so that others see that somebody would harvest them."""
        due = [
            (outbox, RestingLane(outbox.dialect, lane.fence, {**lane.metrics, **_AT_REST, "left": leaves}))
            for outbox in self._outboxes.values()
            if leaves or now >= outbox.beat_due
            for lane in outbox.thread.resting_lanes
        ]
        lost = list[_Outbox]()
        for (outbox, _), held in self._of_each(_beats, due):
            interval = outbox.thread.settings.limits.min_metrics_interval
            outbox.beat_due = now + max(interval, MIN_HEARTBEAT_SECONDS)
            if held is False:
                outbox.thread.resting_lanes, outbox.thread.rests_since = (), now
                lost.append(outbox)
        # Another process has begun to lead, or an operator has raised the fence.
        for outbox, lanes in self._of_each(_lanes, lost):
            if leading_among(lanes or ()) is None:
                outbox.begun = False

    def _of_each(
        self, ask: Callable[[PortableGlance, Sequence[Item]], Sequence[Answer]], items: Sequence[Item]
    ) -> Iterable[tuple[Item, Answer | None]]:
        """Asks about many at a time; where that fails, about each, and ``None`` is the answer that fails."""
        for start in range(0, len(items), AT_ONCE):
            some = items[start : start + AT_ONCE]
            try:
                answers: Sequence[Answer | None] = ask(self._open(), some)
            except DriverError as error:
                log.debug("asks about each outbox that rests: %s", error)
                self._close()
                answers = [self._of_one(ask, item) for item in some]
            yield from zip(some, answers, strict=True)

    def _of_one(
        self, ask: Callable[[PortableGlance, Sequence[Item]], Sequence[Answer]], item: Item
    ) -> Answer | None:
        glance = self._open()
        try:
            return ask(glance, [item])[0]
        except DriverError:
            self._close()
            return None

    def _open(self) -> PortableGlance:
        """Returns the connection; opens it if need be, by the settings of any of the outboxes."""
        if self._glance is None:
            self._glance = next(iter(self._outboxes.values())).dialect.glance()
        return self._glance

    def _close(self) -> None:
        if self._glance is not None:
            self._glance.close()
        self._glance, self._gone = None, 0


def _waiting(glance: PortableGlance, outboxes: Sequence[_Outbox]) -> Sequence[bool]:
    return glance.waiting([outbox.dialect for outbox in outboxes])


def _beats(glance: PortableGlance, lanes: Sequence[tuple[_Outbox, RestingLane]]) -> Sequence[bool]:
    return glance.heartbeats([lane for _, lane in lanes])


def _lanes(glance: PortableGlance, outboxes: Sequence[_Outbox]) -> Sequence[list[LaneStatus]]:
    return glance.lane_statuses([outbox.dialect for outbox in outboxes])
