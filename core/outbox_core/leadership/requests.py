"""The requests of a candidate for leadership; see :mod:`outbox_core.leadership.candidacy`.

The driver of the generator executes a request and sends the reply in, or throws the error that was raised.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeVar

from outbox_core.events import Event
from outbox_core.leadership.leader import Leadership


@dataclass(frozen=True, slots=True)
class Wait:
    """Waits until a condition holds, and no longer than ``seconds``. Reply: whether it holds.

    The candidacy calls ``changed`` whenever a condition may hold now.
    """

    until: Callable[[], bool]
    seconds: float


@dataclass(frozen=True, slots=True)
class CheckEngine:
    """Makes sure that lanes could be started. No reply.

    Fails with :class:`EngineLost`, or with another ``OutboxError`` if only a new process helps.
    """


@dataclass(frozen=True, slots=True)
class BecomeLeader:
    """Raises the fence and recovers former lanes; see :func:`outbox_core.delivery.recovery.take_over`.

    Reply: the fence token. Fails with ``LeadershipLost`` or a ``DriverError``.
    """


@dataclass(frozen=True, slots=True)
class ReachServers:
    """Makes sure that database and broker answer this process; fails with an ``OutboxError``. No reply."""


@dataclass(frozen=True, slots=True)
class FindRival:
    """Looks who has raised the fence.

    Reply: ``None`` if no other process is known to have; else that it leads by another election, in words, or
    empty if it is not known to.
    """


@dataclass(frozen=True, slots=True)
class StartLanes:
    """Starts the lanes of a leadership, without waiting for them. No reply."""

    leadership: Leadership


@dataclass(frozen=True, slots=True)
class JoinLanes:
    """Waits up to ``seconds`` for all lanes to end. Reply: whether they have.

    Fails with :class:`EngineLost`, or with the error of a lane that has a defect.
    """

    seconds: float


@dataclass(frozen=True, slots=True)
class CancelLanes:
    """Ends lanes that did not end when ordered to, without waiting for them. No reply."""


@dataclass(frozen=True, slots=True)
class Announce:
    """Calls the event handler. No reply."""

    event: Event


@dataclass(frozen=True, slots=True)
class Resign:
    """Leaves the election without waiting for it; calls ``then`` once it has left. No reply."""

    then: Callable[[], None]


@dataclass(frozen=True, slots=True)
class LeaveElection:
    """Leaves the election, and waits for that. No reply."""


@dataclass(frozen=True, slots=True)
class JoinElection:
    """Joins the election again, unless the process is to end; fails with an ``OutboxError``. No reply."""


@dataclass(frozen=True, slots=True)
class CloseEngine:
    """Frees the engine and ends its lanes, also those that hang. No reply."""


@dataclass(frozen=True, slots=True)
class WarmEngine:
    """Prepares the engine to start lanes. Fails with an ``OutboxError``. No reply."""


LeadershipRequest = (
    Wait
    | CheckEngine
    | BecomeLeader
    | StartLanes
    | JoinLanes
    | CancelLanes
    | Announce
    | Resign
    | LeaveElection
    | FindRival
    | ReachServers
    | JoinElection
    | CloseEngine
    | WarmEngine
)

Result = TypeVar("Result")

Steps = Generator[LeadershipRequest, Any, Result]
"""A generator that yields requests, receives the replies, and returns a result."""
