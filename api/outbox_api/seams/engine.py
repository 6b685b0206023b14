"""The engine seam: in which processes lanes run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from outbox_api.base.errors import ConfigError, OutboxError
from outbox_api.base.finding import Finding


class EngineError(OutboxError):
    """An engine cannot run lanes: what it needs does not start, does not last, or is not there."""

    code = "OUTBOX-ENGINE"


class EngineLost(EngineError):  # noqa: N818 - as LeadershipLost
    """The engine cannot run tasks any more until its workers are closed and opened again."""


class WorkerLost(EngineError):  # noqa: N818 - as LeadershipLost
    """The process of a task has ended, so the task may be run again; the message says why in one line."""


Task = Callable[[], None]
"""What an engine runs in another process: one lane group. It is picklable.

It runs until the harvester ends it, or cannot be reached any more. It raises an error if a lane has a
defect, or if it cannot reach the harvester at first. The harvester logs what lanes have to say.
"""


class Address(NamedTuple):
    """Where tasks reach the harvester.

    Attributes:
        host: What tasks connect to; ``127.0.0.1`` keeps the port closed to other machines.
        bind: Where the harvester listens, if that is another address; else empty.
    """

    host: str
    bind: str = ""


class Needs(NamedTuple):
    """What a harvester needs of its engine for all of its outboxes.

    Attributes:
        name: The harvester's name.
        groups: How many tasks may run at the same time.
        spare: How many more may, if that costs little: one that restarts need not wait then until its frozen
            copy is killed.
    """

    name: str
    groups: int
    spare: int = 1


@dataclass(frozen=True)
class EngineOptions:
    """The options of every engine with processes of its own; their class derives from this one.

    Attributes:
        lane_groups: Tasks that the lanes of an outbox are spread over; ``None`` for two, or one if there is
            only one lane.
        control_port: The harvester's port that tasks report to; ``None`` takes a free one.
    """

    lane_groups: int | None = None
    control_port: int | None = None

    def __post_init__(self) -> None:
        if self.lane_groups is not None and self.lane_groups < 1:
            raise ConfigError(f"laneGroups must be 1 or more, not {self.lane_groups}")
        if self.control_port is not None and not 1 <= self.control_port <= 65535:  # noqa: PLR2004 - TCP's ports
            raise ConfigError(f"controlPort must be a port from 1 to 65535, not {self.control_port}")


class Workers(Protocol):
    """The processes for one outbox. Safe to use from any thread.

    Attributes:
        where: Where they are, for messages.
        address: Where they reach the harvester; ``None`` if they are the harvester's own process, which then
            starts one task with all lanes, and takes its end for final.
    """

    @property
    def where(self) -> str: ...  # noqa: D102 - above
    @property
    def address(self) -> Address | None: ...  # noqa: D102 - above

    def warm(self, task: Task) -> None:
        """Runs ``task``, which ends by itself, once in each of as many processes as there will be groups.

        It loads what lanes need, so that a takeover need not wait for that.

        Raises:
            OutboxError: Tasks cannot be run, or not in time; the message says why and what to do.
        """
        ...

    def run(self, task: Task, description: str) -> None:
        """Runs a task to its end, on the caller's thread.

        Raises:
            WorkerLost: Its process has ended.
            Exception: Tasks cannot be run here any more; :meth:`check` says more.
        """
        ...

    def check(self, seconds: float = 0.0) -> None:
        """Looks whether tasks could be run; cheap.

        Args:
            seconds: How long the end of a process may take to be seen.

        Raises:
            EngineLost: They could not until this is closed and opened again.
            OutboxError: They could not; only a new process of the harvester helps.
        """
        ...

    def cancel(self) -> None:
        """Has all tasks ended, by force if need be. Never waits, and may be called again and again."""
        ...

    def close(self) -> None:
        """Cancels all tasks, and frees what no other outbox uses, within a few seconds. Idempotent."""
        ...


class Engine(Protocol):
    """Runs lane groups in other processes: one engine for all outboxes of a harvester. Thread-safe."""

    def open(self, outbox: str, groups: int, needs: Needs) -> Workers:
        """Starts what it needs for one outbox; may take many seconds.

        Args:
            outbox: What the harvester calls the outbox; unique in the process, and open once at a time.
            groups: How many tasks of this outbox may run at the same time.
            needs: What all outboxes need; always the same.

        Raises:
            OutboxError: Tasks cannot be run here; the message says why and what to do.
        """
        ...

    def check(self, groups: int) -> Sequence[Finding]:
        """Returns what ``outbox check`` shows about it: starts nothing that lasts, and raises nothing.

        Args:
            groups: How many tasks an outbox needs.
        """
        ...
