"""What engines run in other processes: a lane group, and what loads all that one needs."""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from outbox_core.control.protocol import LogLine, Orders, Report
from outbox_core.control.tcp import Address, ControlClient
from outbox_core.lanes.plan import Plan
from outbox_core.lanes.process import dedicate_process
from outbox_core.lanes.threads import run_group
from outbox_core.settings import Choice
from outbox_core.text.log_context import HarvesterFilter, fields_of
from outbox_core.tracing import provider

FLUSH_SECONDS = 0.5
"""How long the end of a group waits for the export of its last spans."""
MAX_MESSAGES = 100
"""Log messages kept between two reports; of a flood the latest are told."""


@dataclass(frozen=True)
class GroupTask:
    """Runs a lane group until its leader says to end; see :class:`outbox_api.Task`."""

    plan: Plan
    group: int
    lanes: Sequence[int]
    leader: tuple[Address, str] = field(repr=False)
    """The address of the leader's process, and the outbox's name there."""

    def __call__(self) -> None:
        """Runs the group."""
        address, outbox = self.leader
        dedicate_process()
        with ControlClient(address) as channel, Messages() as messages:
            forwarding = ForwardingChannel(channel, messages, outbox)
            run_group(self.plan, self.group, self.lanes, forwarding)
        provider.flush(FLUSH_SECONDS)  # an engine may end its processes without a word


@dataclass(frozen=True)
class WarmingTask:
    """Has a process import all that a lane group needs, so that a takeover need not.

    It connects to the leader, too: a process that cannot reach the leader is of no use.
    """

    choices: Sequence[Choice[object]]
    address: Address = field(repr=False)  # the address of the leader's process

    def __call__(self) -> None:
        """Loads it."""
        with ControlClient(self.address) as channel:
            channel.connect()
        for choice in self.choices:
            choice.create()


class Messages(logging.Handler):
    """Collects what lanes log in another process, where nobody reads it, to be told with the next report."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.addFilter(HarvesterFilter(""))
        self._kept: deque[LogLine] = deque(maxlen=MAX_MESSAGES)
        self._traceback_of = logging.Formatter().formatException

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps a message."""
        traceback = self._traceback_of(record.exc_info) if record.exc_info else ""
        text, template = record.getMessage(), str(record.msg)
        self._kept.append(LogLine(record.levelno, record.name, text, template, traceback, fields_of(record)))

    def take(self) -> tuple[LogLine, ...]:
        """Returns the messages since the last call."""
        return tuple(self._kept.popleft() for _ in range(len(self._kept)))

    def put_back(self, lines: Sequence[LogLine]) -> None:
        """Keeps messages for the next report, as the one with them was lost; of too many the latest."""
        dropped = max(0, len(lines) + len(self._kept) - MAX_MESSAGES)
        self._kept.extendleft(reversed(lines[dropped:]))

    def __enter__(self) -> Self:
        root = logging.getLogger()
        root.addHandler(self)
        root.setLevel(self.level)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger().removeHandler(self)


class ForwardingChannel:
    """A link that adds to every report what was logged, and ends lanes whose engine is gone."""

    def __init__(self, channel: ControlClient, messages: Messages, outbox: str) -> None:
        self._channel = channel
        self._outbox = outbox
        self._messages = messages
        self._parent = os.getppid()

    def exchange(self, report: Report) -> Orders:
        """Delivers a report with the messages since the last one; see :class:`.ControlChannel`."""
        if os.getppid() != self._parent:
            return Orders(0.0, stopped=True)
        lines = self._messages.take()
        try:
            return self._channel.exchange(replace(report, outbox=self._outbox, messages=lines))
        except BaseException:
            self._messages.put_back(lines)
            raise
