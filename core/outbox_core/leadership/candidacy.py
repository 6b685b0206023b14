"""What a harvest decides when leadership changes, without I/O.

    standby --acquired--> raise the fence --> lanes run --revoked--> drain --> standby
                                                 |---fenced, or a lane finds a newer token--> stop --> standby
                                                 |---lanes are silent, or do not end--> leave the election,
                                                 |   replace the engine, join again --> standby
                                                 |---given up--> drain, leave the election, let another
                                                 |   process lead, join again --> standby
                                                 |---nothing is acknowledged--> the same, and join again when
                                                     database and broker can be reached

It is plain code over :class:`.Actions`, which :mod:`outbox_core.harvest` carries out; the simulation does so
in virtual time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from math import inf
from uuid import UUID, uuid4

from outbox_api import DriverError, EngineLost, LeadershipLost, OutboxError
from outbox_api.election import RefusalTimeout

from outbox_core.control.protocol import REPORT_SECONDS
from outbox_core.events import LeaderAcquired, LeaderFenced, LeaderRevoked, MeterRead
from outbox_core.events.metrics import Meter
from outbox_core.leadership.actions import Actions
from outbox_core.leadership.leader import Leadership, Totals
from outbox_core.leadership.timeouts import Patience, Timeouts

log = logging.getLogger("outbox.leadership")


class Candidacy:
    """One process as a candidate in an election, and its leadership.

    The elector's thread calls :meth:`acquired`, :meth:`fenced`, :meth:`failed` and :meth:`revoked`; another
    thread calls :meth:`run`. They block in actions only.
    """

    def __init__(
        self,
        timeouts: Timeouts,
        actions: Actions,
        *,
        new_leader_id: Callable[[], UUID] = uuid4,
        totals: Totals | None = None,
    ) -> None:
        self.elected = False  # whether the elector says that this process leads
        self.ending = False  # whether the process is to end
        self.error: Exception | None = None
        self.leadership: Leadership | None = None
        self._timeouts = timeouts
        self._actions = actions
        self._new_leader_id = new_leader_id
        self._resigned = self._defective = False
        self._giving_up = self._cut_off = False
        self._patience = Patience(timeouts.unacknowledged, timeouts.unacknowledged_again, timeouts.forgiven)
        self._yielding = Patience(timeouts.retry, timeouts.yielded, 10 * timeouts.yielded)
        self._idle = True  # is not raising the fence and has no lanes
        self.aside = ""  # why this process takes no part in the election for a while; empty if it does
        self._totals = totals or Totals()
        self._meter = Meter(timeouts.metrics, actions.clock())

    # --- what the elector reports -------------------------------------------------------------------

    def acquired(self) -> None:
        """Handles that this process was elected."""
        self.elected = True
        self._actions.changed()

    def revoked(self) -> None:
        """Drains the lanes, for a limited time, and then announces that leadership is handed over."""
        self.elected = False
        leadership = self.leadership
        if leadership is not None:
            leadership.drain()
        # Also without a leadership: a fence that is being raised must not come after the successor's.
        if not self._actions.wait(lambda: self._idle, self._timeouts.drain):
            log.warning("lanes did not drain within %.1f s", self._timeouts.drain)
            if leadership is not None:
                leadership.stop()
        self._actions.announce(LeaderRevoked(self._ended_with))

    def fenced(self) -> None:
        """Handles the loss of leadership."""
        self._lose("leadership was not confirmed in time")

    def failed(self, error: Exception) -> None:
        """Handles an error that ends the process."""
        self.error = self.error or error
        self._lose(f"the harvest ends: {error}")
        self.end()

    def give_up(self) -> None:
        """Hands leadership to another process that stands by; does nothing without leadership.

        This process joins the election again soon, and leads again if nobody else does.
        """
        self._giving_up = self.leadership is not None

    @property
    def takes_part(self) -> bool:
        """Whether this process leads or stands by, and neither ends nor leaves the election for a while."""
        return not (self.ending or self._resigned)

    @property
    def _ended_with(self) -> str:
        error = self.error  # of other errors than ours the text may quote what is secret
        return str(error) if isinstance(error, OutboxError) else "" if error is None else type(error).__name__

    def _lose(self, reason: str) -> None:
        self.elected = False
        if self.leadership is not None:
            self.leadership.fence(reason)

    def end(self) -> None:
        """Makes :meth:`run` return soon; lanes that still run end at once. Idempotent."""
        self.ending = True
        if self.leadership is not None:
            self.leadership.stop()
        self._actions.changed()

    # --- standing by and leading --------------------------------------------------------------------

    def run(self) -> None:
        """Leads whenever this process is elected, until it is to end."""
        while not self.ending:
            try:
                self._actions.check_engine()  # a standby whose engine has died could not lead
                self._actions.wait(lambda: self.elected or self.ending, self._timeouts.check)
                if self._leads():
                    self._lead()
            except EngineLost as error:
                log.warning("cannot lead: %s", error)
                self._resigned = self._defective = True
            if self._resigned:
                self._stand_by_anew()

    def _lead(self) -> None:
        """Leads once: raises the fence, starts the lanes, and waits until they have ended."""
        self._idle = False
        try:
            leadership = self._begin()
            if leadership is not None:
                self._watch(leadership)
        finally:
            if self.leadership is not None and not self.leadership.over:
                self.leadership.stop()  # ends all lanes, also after a start that failed halfway
            self.leadership = None
            self._totals.end()
            self._giving_up = False
            self._idle = True
            self._actions.changed()

    def _begin(self) -> Leadership | None:
        """Takes over and starts the lanes; returns ``None`` if leadership is lost meanwhile."""
        refusals = RefusalTimeout(self._timeouts.refused)
        elected_at = unreached_since = self._actions.clock()
        while self._leads():
            if self._actions.lease() <= 0:  # this process was suspended: another may lead by now
                self._pause(REPORT_SECONDS)
                continue
            try:
                token = self._actions.become_leader()
            except LeadershipLost as error:
                log.info("another process has raised the fence: %s", error)
                self._pause(self._timeouts.retry)
                continue
            except DriverError as error:
                now = self._actions.clock()
                if error.retryable:
                    refusals.permitted()
                else:
                    refusals.refused(now)
                    unreached_since = now
                if self._has_run_out(now - unreached_since):
                    self._resign_cut_off(f"cannot begin to lead: {error}")
                    return None
                if refusals.has_expired(now):
                    raise  # another process may be able to
                log.warning("cannot begin to lead, trying again: %s", error)
                self._pause(self._timeouts.retry)
                continue
            self.leadership = leadership = self._new_leadership(token)
            self._totals.begin(leadership, self._actions.clock() - elected_at)
            if not self._leads():
                return None  # leadership was lost while the fence was raised
            self._actions.announce(LeaderAcquired(self._new_leader_id(), token))
            self._actions.start_lanes(leadership)
            return leadership
        return None

    def _watch(self, leadership: Leadership) -> None:
        """Announces the events of the lanes, until all have ended or cannot be ended."""
        cancel_at = inf
        while not self._actions.join_lanes(REPORT_SECONDS):
            self._announce(leadership)
            self._actions.check_engine()
            if not leadership.over:
                self._resign_if_need_be(leadership)
            if leadership.stopped and cancel_at == inf:
                cancel_at = self._actions.clock() + self._timeouts.stop
                if leadership.lost:
                    self._actions.announce(LeaderFenced(leadership.lost, self._ended_with))
            if self._actions.clock() > cancel_at + self._timeouts.cancel:
                self._resign(leadership, "lanes do not end")
                break
            if self._actions.clock() > cancel_at:
                self._actions.cancel_lanes()
        self._announce(leadership)
        if leadership.refusal is not None:
            raise leadership.refusal
        if leadership.lost:
            if cancel_at == inf:  # the lanes ended before this thread noticed the loss
                self._actions.announce(LeaderFenced(leadership.lost, self._ended_with))
            self._let_lead()

    def _let_lead(self) -> None:
        """Lets another process lead that has raised the fence, although the elector may still name this one.

        If two elections name a leader each, they take the fence from each other more and more rarely.
        """
        is_named, now = self._leads(), self._actions.clock()
        self._pause(self._timeouts.retry)
        if not (is_named and self._leads()):
            return
        rival = self._actions.find_rival()
        if rival is None:  # an operator has raised the fence
            return
        seconds = self._yielding.seconds(now)
        self._yielding.ended(now)
        if rival:
            log.error("%s: each takes the fence from the other, this one again in %.3g s", rival, seconds)
        self._actions.wait(lambda: not self._leads(), seconds - self._timeouts.retry)

    def _resign_if_need_be(self, leadership: Leadership) -> None:
        if silent := leadership.silent():
            reason = f"lane groups {silent} have not been heard for {self._timeouts.silent:.0f} s"
            self._resign(leadership, reason)
        elif self._giving_up:
            self._resign(leadership)
        elif self._has_run_out(seconds := leadership.unacknowledged()):
            reason = f"nothing was acknowledged for {seconds:.0f} s, though records are due"
            self._resign_cut_off(reason, leadership)

    def _resign(self, leadership: Leadership, defect: str = "") -> None:
        if defect:
            log.warning("cannot lead: %s", defect)
        self._defective = bool(defect)
        self._resigned = True
        leadership.drain()
        self._actions.resign(leadership.stop)

    def _has_run_out(self, seconds: float) -> bool:
        return seconds >= self._patience.seconds(self._actions.clock())

    def _resign_cut_off(self, reason: str, leadership: Leadership | None = None) -> None:
        """Lets another process lead, which may reach what this one cannot."""
        log.warning("%s; another process may lead", reason)
        self._patience.ended(self._actions.clock())
        self._cut_off = True
        if leadership is None:
            self._resigned, self._defective = True, False
            self._actions.resign(lambda: None)
        else:
            self._resign(leadership)

    def _stand_by_anew(self) -> None:
        """Leaves the election, replaces the engine if it is defective, and joins the election again."""
        self._actions.leave_election()
        self.elected = False
        if self._defective:
            self._actions.close_engine()
        else:
            self._pause(self._timeouts.aside)
        while self._cut_off and not self.ending:
            try:
                self._actions.reach_servers()
            except OutboxError as error:
                self.aside = str(error)
                log.warning("stands aside, trying again in %.0f s: %s", self._timeouts.join, error)
                self._pause(self._timeouts.join)
            else:
                self._cut_off = False
        self._resigned = False
        while not self.ending:
            try:
                self._actions.warm_engine()
                self._actions.join_election()
            except OutboxError as error:
                self.aside = str(error)
                log.warning("cannot stand by, trying again in %.0f s: %s", self._timeouts.join, error)
                self._actions.close_engine()
                self._pause(self._timeouts.join)
            else:
                self.aside = ""
                if not self.ending:
                    log.info("joined the election again")
                return

    def _new_leadership(self, token: int) -> Leadership:
        timeouts = self._timeouts
        return Leadership(token, self._lease, self._actions.clock, timeouts.silent, timeouts.start)

    def _announce(self, leadership: Leadership) -> None:
        for event in leadership.take_events():
            self._actions.announce(event)
        if stats := self._meter.read(self._actions.clock(), [self._totals.metrics()]):
            self._actions.announce(MeterRead(stats))

    def _leads(self) -> bool:
        return self.elected and not self.ending

    def _lease(self) -> float:
        return self._actions.lease() if self.elected else 0.0

    def _pause(self, seconds: float) -> None:
        self._actions.wait(lambda: self.ending, seconds)
