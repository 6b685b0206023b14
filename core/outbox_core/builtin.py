"""The drivers that come with core: affinity ``none``, electors ``static``, ``lease``, engine ``inline``."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field

from outbox_api.base.errors import ConfigError
from outbox_api.base.finding import Finding, Level
from outbox_api.election import LeaseElector, LeaseTimes
from outbox_api.seams.affinity import ColumnIs
from outbox_api.seams.elector import Candidate
from outbox_api.seams.engine import Needs, Task
from outbox_api.seams.hooks import GIVEN, Driver, Plugin
from outbox_api.seams.lease import Lease

_JOIN_SECONDS = 60.0

LEAST_SESSION = 1.0
"""Seconds of the shortest session: a database may need a good part of one for a durable commit."""


@dataclass(frozen=True)
class NoOptions:
    """There is nothing to set."""


class EveryRow:
    """Makes every row eligible: one cluster harvests the whole table."""

    def __init__(self, options: NoOptions) -> None:
        self._options = options

    def eligible(self, taken_over: Collection[int] = ()) -> Sequence[ColumnIs]:
        """Returns no condition, so that every row is eligible."""
        del taken_over  # rows do not tell where they were written
        return ()

    def origin(self) -> None:
        """Returns that rows do not tell where they were written."""


class StaticElector:
    """Makes its only candidate the leader, and lets it lead until it stops.

    For a single process, and for tests: with two processes both would lead, and the fence would let the
    later one win each time.
    """

    def __init__(self, options: NoOptions) -> None:
        self._options = options
        self._leads = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, candidate: Candidate) -> None:
        """Starts the thread that tells the candidate that it leads."""
        thread = threading.Thread(
            target=copy_context().run, args=(self._lead, candidate), name="static-elector", daemon=True
        )
        thread.start()
        self._thread = thread

    def lease(self) -> float:
        """Returns infinity while the candidate leads: nobody can take it away."""
        return math.inf if self._leads.is_set() else 0.0

    def stop(self) -> None:
        """Tells the candidate to hand over, and waits until it has."""
        self._stop.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(_JOIN_SECONDS)

    def check(self) -> Sequence[Finding]:
        """Says that there is no election."""
        return [
            Finding(
                Level.WARNING,
                "elector",
                "the static elector makes every process a leader",
                "start one process only, or choose another elector (harvest.elector)",
            )
        ]

    def _lead(self, candidate: Candidate) -> None:
        if not self._stop.is_set():
            self._leads.set()
            candidate.acquired()
            self._stop.wait()
            candidate.revoked()
            self._leads.clear()


class InlineWorkers:
    """This process, whose threads lanes run in; see :class:`outbox_api.Workers`."""

    where = "threads of this process"
    address = None

    def warm(self, task: Task) -> None:
        """Does nothing: threads need no preparation."""

    def run(self, task: Task, description: str) -> None:
        """Runs a task on the caller's thread."""
        del description
        task()

    def check(self, seconds: float = 0.0) -> None:
        """Does nothing: threads can always be started."""

    def cancel(self) -> None:
        """Does nothing: threads cannot be ended from outside."""

    def close(self) -> None:
        """Does nothing: there is nothing to free."""


class InlineEngine:
    """Runs tasks in this process; see :class:`outbox_api.Engine`."""

    def __init__(self, _: object) -> None:
        pass

    def open(self, outbox: str, groups: int, needs: Needs) -> InlineWorkers:
        """Returns this process."""
        del outbox, groups, needs
        return InlineWorkers()

    def check(self, groups: int) -> Sequence[Finding]:
        """Says where lanes run."""
        del groups
        return [Finding(Level.OK, "lanes", "run in threads of the harvester's own process")]


@dataclass(frozen=True)
class LeaseOptions(LeaseTimes):
    """The elector ``lease``: a row in the outbox's own database says who leads."""

    lease: Callable[[], Lease] = field(metadata=GIVEN)  # connects to that row
    table: str = "outbox"  # the outbox

    def __post_init__(self) -> None:
        if self.session_timeout < LEAST_SESSION:
            raise ConfigError(f"the session timeout must be {LEAST_SESSION:g} s or longer")


def lease_elector(options: LeaseOptions) -> LeaseElector:
    """Makes the elector ``lease``."""
    found = Finding(
        Level.OK,
        "elector",
        f"a lease in the database of '{options.table}': a leader that dies is replaced within "
        f"{options.session_timeout + 0.5:g} s",
    )
    return LeaseElector(options.lease, options, options.table, check=lambda: [found, *options.findings()])


NONE = Plugin("outbox_affinity", Driver(NoOptions, EveryRow))
STATIC = Plugin("outbox_elector", Driver(NoOptions, StaticElector))
LEASE = Plugin("outbox_elector", Driver(LeaseOptions, lease_elector))
INLINE = Plugin("outbox_engine", Driver(NoOptions, InlineEngine))
