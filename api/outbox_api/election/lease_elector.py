"""An elector over anything that grants a lease: a database, etcd, ZooKeeper, Kubernetes."""

from __future__ import annotations

import logging
import os
import queue
import socket
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from threading import Event, Lock, Thread, current_thread
from typing import Protocol, runtime_checkable
from uuid import uuid4

from outbox_api.base.errors import DriverError
from outbox_api.base.finding import Finding
from outbox_api.election.leadership import (
    ErrorLog,
    Leadership,
    LeadershipEvent,
    LeaseTimes,
    RefusalTimeout,
    elapsed,
    notify,
)
from outbox_api.seams.elector import Candidate
from outbox_api.seams.lease import Lease
from outbox_api.support.context_thread import ContextThread, as_exception

log = logging.getLogger("outbox.election")

_STANDBY_SECONDS = 0.4
"""How often a standby asks for the lease, unless the coordinator tells it that it may be free."""

_CLOSE_SECONDS = 10.0
"""How long the end waits for a coordinator that does not answer; its session expires instead."""


@runtime_checkable
class WatchedLease(Lease, Protocol):
    """A lease whose coordinator tells when it may be free."""

    def wait(self, seconds: float) -> None:
        """Waits until the lease may be free, or it is lost, or ``seconds`` have passed.

        Raises:
            DriverError: The coordinator cannot be reached.
        """
        ...


@runtime_checkable
class SessionLease(WatchedLease, Protocol):
    """A lease that ends with a session, which survives a broken connection.

    It reconnects by itself, so it is closed at the end only: closing it would end the session, and a leader
    would lose the lease by a single failed request.
    """

    def recover(self) -> None:
        """Prepares for the next request after an error, in the same session if that may still live.

        Never raises.
        """
        ...


class LeaseElector:
    """Takes part in an election; whoever holds the lease leads. See :class:`outbox_api.Elector`.

    One thread asks the coordinator, another calls the candidate. So the lease is renewed while the candidate
    drains, and the candidate hears of a lease that has run out while the coordinator does not answer.
    """

    def __init__(
        self,
        connect: Callable[[], Lease],
        times: LeaseTimes,
        election: str,
        *,
        check: Callable[[], Sequence[Finding]] = tuple,
        clock: Callable[[], float] = elapsed,
    ) -> None:
        """Does not connect.

        Args:
            connect: Connects to the lease. Each connection is used by one thread at a time.
            times: The times.
            election: What the processes compete for; for log lines.
            check: Looks at everything that could be wrong; never raises.
            clock: Returns seconds; never goes back.
        """
        self._connect = connect
        self._times = times
        self._election = election
        self._check = check
        self._clock = clock
        self._holder = f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex}"
        self._lease: Lease | None = None
        self._leadership = Leadership(times.lease_duration)
        self._changing = Lock()
        """Held while the leadership changes, and until its events are in the queue."""
        self._number: int | None = None
        self._refusal_timeout = RefusalTimeout(times.stop_after)
        self._errors = ErrorLog(log, election)
        self._events: queue.SimpleQueue[LeadershipEvent | None] = queue.SimpleQueue()
        self._failure: Exception | None = None
        self._stopping = Event()
        self._drained = Event()
        self._teller: Thread | None = None
        self._asker: Thread | None = None

    def start(self, candidate: Candidate) -> None:
        """Connects and takes part; see :meth:`outbox_api.Elector.start`."""
        self._lease = self._connect()
        teller = ContextThread(target=self._tell, args=(candidate,), name="lease-events", daemon=True)
        asker = ContextThread(target=self._ask, name="lease", daemon=True)
        teller.start()
        self._teller = teller
        asker.start()
        self._asker = asker

    def lease(self) -> float:
        """Returns the seconds left of the lease; see :meth:`outbox_api.Elector.lease`."""
        return max(0.0, self._leadership.lease(self._clock()))

    def stop(self) -> None:
        """Drains, then releases the lease; see :meth:`outbox_api.Elector.stop`."""
        self._stopping.set()
        self._events.put(None)
        if current_thread() is self._teller:
            return
        if self._teller is not None:
            self._teller.join()
        if self._asker is None:
            self._disconnect()
            return
        self._asker.join(_CLOSE_SECONDS)
        if self._asker.is_alive():
            log.warning(
                "election '%s': could not release the lease within %g s; it runs out instead",
                *(self._election, _CLOSE_SECONDS),
            )

    def check(self) -> Sequence[Finding]:
        """Looks at everything that could be wrong; see :meth:`outbox_api.Elector.check`."""
        return self._check()

    # --- the thread that asks the coordinator ---------------------------------------------------------

    def _ask(self) -> None:
        try:
            while not self._drained.is_set() and self._failure is None:
                self._wait(self._confirm())
        except BaseException as error:  # noqa: BLE001 - the candidate receives it
            self._fail(as_exception(error))
        self._leave()

    def _confirm(self) -> bool:
        """Asks for the lease once; returns whether the coordinator has answered."""
        sent = self._clock()
        try:
            self._lease = self._lease or self._connect()
            number = self._lease.take(self._holder, self._times.session_timeout)
        except DriverError as error:
            self._unanswered(error)
            return False
        self._refusal_timeout.permitted()
        self._errors.answered()
        self._change(lambda leadership, now: self._answered(leadership, number, sent, now))
        return True

    def _answered(
        self, leadership: Leadership, number: int | None, sent: float, now: float
    ) -> Iterable[LeadershipEvent]:
        if self._drained.is_set():
            return []
        former, self._number = self._number, number
        events: list[LeadershipEvent] = []
        if number != former:  # in between somebody else may have had it
            events += leadership.lost(now)
        if number is not None:
            events += leadership.assigned(now)
            events += leadership.confirmed(leadership.assignment, sent, now)
        return events

    def _unanswered(self, error: DriverError) -> None:
        """Handles an error: a refusal is tolerated for a while, anything else for ever."""
        self._errors.failed(error)
        if isinstance(self._lease, SessionLease):
            self._lease.recover()
        else:
            self._disconnect()
        if error.retryable:
            return
        self._refusal_timeout.refused(self._clock())
        if self._refusal_timeout.has_expired(self._clock()):
            self._fail(error)

    def _wait(self, answered: bool) -> None:
        """Waits until the coordinator is to be asked again."""
        if self._stopping.is_set():  # nothing else may delay the release once the candidate has drained
            self._drained.wait(self._times.confirm_interval)
        elif self._leadership.owns or not answered or not isinstance(self._lease, WatchedLease):
            seconds = self._times.confirm_interval if self._leadership.owns else _STANDBY_SECONDS
            self._stopping.wait(seconds)
        else:
            try:
                self._lease.wait(_STANDBY_SECONDS)
            except DriverError as error:
                self._unanswered(error)

    def _leave(self) -> None:
        self._drained.wait()
        if self._lease is not None:
            with suppress(Exception):  # then its session expires instead
                self._lease.release(self._holder)
        self._disconnect()

    def _disconnect(self) -> None:
        if self._lease is not None:
            self._lease.close()
            self._lease = None

    def _fail(self, error: Exception) -> None:
        self._failure = error
        self._events.put(None)

    def _change(self, decide: Callable[[Leadership, float], Iterable[LeadershipEvent]]) -> None:
        with self._changing:
            for event in decide(self._leadership, self._clock()):
                self._events.put(event)

    # --- the thread that calls the candidate ----------------------------------------------------------

    def _tell(self, candidate: Candidate) -> None:
        try:
            while not self._stopping.is_set() and self._failure is None:
                self._tell_next(candidate)
            self._resign(candidate)
        except BaseException as error:  # noqa: BLE001 - of the candidate, which receives it again
            self._failure = as_exception(error)
        with self._changing:
            self._leadership.ended()
            self._drained.set()
        if self._failure is not None:
            candidate.failed(self._failure)

    def _tell_next(self, candidate: Candidate) -> None:
        """Waits for the next event, or for the end of the lease, and tells the candidate."""
        left = max(0.0, self._leadership.lease(self._clock())) if self._leadership.leads else None
        try:
            event = self._events.get(timeout=left)
        except queue.Empty:
            self._change(lambda leadership, now: leadership.tick(now))
        else:
            self._notify(candidate, event)

    def _resign(self, candidate: Candidate) -> None:
        """Lets the candidate drain while the lease is renewed; or, after a failure, fences it."""
        if self._failure is None:
            self._change(lambda leadership, now: leadership.resigned(now))
        else:
            self._change(lambda leadership, now: leadership.lost(now))
        while not self._events.empty():
            self._notify(candidate, self._events.get())

    def _notify(self, candidate: Candidate, event: LeadershipEvent | None) -> None:
        notify(candidate, [event] if event else [], log, self._election)


class LeaseWatch:
    """For how long a lease has looked the same to one process, by that process's monotonic clock.

    Whoever renewed it counts from before the renewal, so its leadership has ended when others have seen the
    same renewal for the length of the lease. It needs no clock that two processes share.

    Args:
        clock: Returns seconds, and never goes back.
    """

    def __init__(self, clock: Callable[[], float] = elapsed) -> None:
        self._clock = clock
        self._state: object = None
        self._since = 0.0

    def left(self, state: object, seconds: float) -> float:
        """Handles a look at the lease.

        Args:
            state: What was seen, which each renewal and each new holder changes. Never ``None``.
            seconds: The length of the lease.

        Returns:
            Seconds until the lease has looked the same for that long; 0 or less if it has.
        """
        now = self._clock()
        if state != self._state:
            self._state, self._since = state, now
        return self._since + seconds - now
