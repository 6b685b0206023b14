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
from outbox_core.events.measurements import Measurements
from outbox_core.events.metrics import LaneMetrics

REPORT_SECONDS = 0.1
"""The interval between two reports of a group, and the longest delay until its lanes follow an order."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The error with which a database or broker has refused a lane for too long."""

    message: str
    retryable: bool  # as in DriverError
    denied: bool  # whether it is an AccessDenied
    code: str = ""  # empty for that of its class

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
    """A line that was logged where the leader's log does not reach."""

    level: int  # its level, as a number
    logger: str  # its logger's name
    text: str
    template: str = ""  # the text that it was made from, which is the same for lines of one kind
    traceback: str = ""
    about: Mapping[str, str | int] = field(default_factory=dict)
    """What it is about; see :data:`outbox_core.text.log_context.FIELDS`."""


@dataclass(frozen=True, slots=True)
class Report:
    """A report of a lane group to its leader."""

    token: int  # the fence token of the leadership that the group works for
    group: int
    incarnation: str  # names this incarnation of the group; a later one of the same group has another name
    metrics_by_lane: Mapping[int, LaneMetrics]
    """Lane number → what the lane has done in this incarnation of the group."""
    events: tuple[LaneEvent, ...] = ()  # what lanes have to tell observers since the last report
    lost: str = ""  # why a lane found that somebody else leads, or empty
    refusal: Refusal | None = None  # why a lane cannot go on at all, or None
    messages: tuple[LogLine, ...] = ()  # what lanes logged where the leader's log does not reach
    outbox: str = ""  # what the leader's process calls the outbox, where it harvests several
    measurements_by_lane: Mapping[int, Measurements] = field(default_factory=dict)
    """Lane number → what the lane has measured in this incarnation of the group; empty in most reports, as
    they are longer than the rest."""
    unacknowledged_seconds: float = 0.0
    """For how long something has been due in one of its lanes, of which the broker has acknowledged nothing
    meanwhile; of such lanes, the longest."""


@dataclass(frozen=True, slots=True)
class Orders:
    """The leader's answer to a report."""

    lease: float  # seconds for which leadership is confirmed, from the time when the report was sent
    draining: bool = False  # whether lanes shall drain and end
    stopped: bool = False
    about: Mapping[str, Any] = field(default_factory=dict)
    """What the first lane's heartbeats say of the leader's own work."""


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
    """The orders that the lanes of one process follow. One thread writes it, many threads read it."""

    lease_until: float = float("-inf")  # until when lanes may mark and send, on the process's monotonic clock
    draining: bool = False
    stopped: bool = False
    about: Mapping[str, object] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        """Whether lanes shall end, at once or when they have drained."""
        return self.draining or self.stopped

    def follow(self, orders: Orders, sent_at: float) -> None:
        """Puts orders into force. The lease counts from when the report was sent that they answer."""
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
    """Reads a message."""
    try:
        message: Message = _ADAPTERS[kind].validate_json(text)
    except ValidationError:
        # Without the text, which may hold what a lane logged.
        raise ConnectionError(f"a message is malformed: it is no {kind.__name__}") from None
    return message
