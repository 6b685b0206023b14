"""The protocol between a leader and its lanes: reports one way, orders the other way.

Lanes run where the engine starts them: in threads or in Spark's workers. Each lane group reports to the
leader every ``REPORT_SECONDS``. The answer says how long the lease lasts, and whether to end. The lease of a
group that cannot reach its leader runs out: the group stops without an order.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from outbox_api import AccessDenied, DriverError
from pydantic import TypeAdapter, ValidationError

from outbox_core.events import LaneEvent
from outbox_core.measurements import Measurements
from outbox_core.metrics import LaneMetrics

REPORT_SECONDS = 0.1
"""The interval between two reports of a group, and the longest delay until its lanes follow an order."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The error with which a database or broker has refused a lane for too long.

    Attributes:
        message: Its text.
        retryable: As in ``DriverError``.
        denied: Whether it is an ``AccessDenied``.
        code: Its code; empty for that of its class.
    """

    message: str
    retryable: bool
    denied: bool
    code: str = ""

    @classmethod
    def of(cls, error: DriverError) -> Refusal:
        """Makes it of the error."""
        return cls(str(error), error.retryable, isinstance(error, AccessDenied), error.code)

    @property
    def error(self) -> DriverError:
        """The error."""
        made = (AccessDenied if self.denied else DriverError)(self.message, retryable=self.retryable)
        made.code = self.code or made.code
        return made


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line that was logged where the leader's log does not reach.

    Attributes:
        level: Its level, as a number.
        logger: Its logger's name.
        text: The line, without a traceback.
        template: The text that it was made from, which is the same for lines of one kind.
        traceback: Its traceback, or empty.
        about: What it is about; see :data:`outbox_core.log_context.FIELDS`.
    """

    level: int
    logger: str
    text: str
    template: str = ""
    traceback: str = ""
    about: Mapping[str, str | int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Report:
    """A report of a lane group to its leader.

    Attributes:
        token: The fence token of the leadership that the group works for.
        group: The group's number.
        incarnation: Names this incarnation of the group; a later one of the same group has another name.
        metrics_by_lane: Lane number → what the lane has done in this incarnation of the group.
        events: What lanes have to tell observers since the last report.
        lost: Why a lane found that somebody else leads, or empty.
        refusal: Why a lane cannot go on at all, or ``None``.
        messages: What lanes logged where the leader's log does not reach.
        outbox: What the leader's process calls the outbox, where it harvests several.
        measurements_by_lane: Lane number → what the lane has measured in this incarnation of the group; empty
            in most reports, as they are longer than the rest.
        unacknowledged_seconds: For how long something has been due in one of its lanes, of which the broker
            has acknowledged nothing meanwhile; of such lanes, the longest.
    """

    token: int
    group: int
    incarnation: str
    metrics_by_lane: Mapping[int, LaneMetrics]
    events: tuple[LaneEvent, ...] = ()
    lost: str = ""
    refusal: Refusal | None = None
    messages: tuple[LogLine, ...] = ()
    outbox: str = ""
    measurements_by_lane: Mapping[int, Measurements] = field(default_factory=dict)
    unacknowledged_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Orders:
    """The leader's answer to a report.

    Attributes:
        lease: Seconds for which leadership is confirmed, from the time when the report was sent.
        draining: Whether lanes shall drain and end.
        stopped: Whether lanes shall end at once.
        about: What the first lane's heartbeats say of the leader's own work.
    """

    lease: float
    draining: bool = False
    stopped: bool = False
    about: Mapping[str, Any] = field(default_factory=dict)


class ControlChannel(Protocol):
    """A group's connection to its leader."""

    def exchange(self, report: Report) -> Orders:
        """Delivers a report and returns the orders.

        Raises:
            OSError: The leader cannot be reached.
            EOFError: The leader has closed the connection.
        """
        ...


@dataclass(slots=True)
class LaneControl:
    """The orders that the lanes of one process follow. One thread writes it, many threads read it.

    Attributes:
        lease_until: Until when lanes may mark and send, on the process's monotonic clock.
        draining: Whether lanes shall drain and end.
        stopped: Whether lanes shall end at once.
        about: What the first lane's heartbeats say of the leader's own work.
    """

    lease_until: float = float("-inf")
    draining: bool = False
    stopped: bool = False
    about: Mapping[str, object] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        """Whether lanes shall end, at once or when they have drained."""
        return self.draining or self.stopped

    def follow(self, orders: Orders, sent_at: float) -> None:
        """Puts orders into force.

        Args:
            orders: The leader's answer.
            sent_at: When the report was sent that they answer; the lease counts from there, so that a slow
                network can only shorten it.
        """
        self.lease_until = sent_at + orders.lease
        self.draining |= orders.draining
        self.stopped |= orders.stopped
        self.about = orders.about


Message = TypeVar("Message", Report, Orders)

_ADAPTERS: dict[type[Report | Orders], TypeAdapter[Any]] = {
    Report: TypeAdapter(Report),
    Orders: TypeAdapter(Orders),
}


def encode(message: Report | Orders) -> bytes:
    """Writes a message; what is no Unicode in a text that a lane logged becomes a question mark."""
    data = _ADAPTERS[type(message)].dump_python(message, mode="json")
    # By the standard library, as a lease may be infinite.
    return json.dumps(data, ensure_ascii=False).encode(errors="replace")


def decode(kind: type[Message], text: bytes) -> Message:
    """Reads a message.

    Raises:
        ConnectionError: It is none of this kind: the other end is of another version.
    """
    try:
        message: Message = _ADAPTERS[kind].validate_json(text)
    except ValidationError:
        # Without the text, which may hold what a lane logged.
        raise ConnectionError(f"a message is malformed: it is no {kind.__name__}") from None
    return message
