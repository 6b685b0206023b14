"""The base class of faults, and the facts that a fault reports."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import ClassVar

from .brokers import ONE, Setup
from .host import Host, Power
from .site import Site

ENGINES = ("inline", "spark")
AT_LEAST_ONCE, EXACTLY_ONCE = DELIVERIES = ("at-least-once", "exactly-once")


@dataclass
class Strike:
    """A fault that was injected and, if it lasts, is over.

    Attributes:
        at: When it was injected, in seconds since the epoch.
        floor: The lower bound of the stall, in seconds: the time that no harvester could avoid.
        lost: Lane groups, or producers of runs that were given up, that were lost without a new leader.
        facts: Details for the history.
    """

    at: float
    floor: float = 0.0
    lost: int = 0
    facts: dict[str, object] = field(default_factory=dict)


class Fault(ABC):
    """One kind of fault.

    Attributes:
        name: Its name on the command line.
        title: What it does, in a few words.
        engines: The engines to which it applies.
        deliveries: The modes of delivery to which it applies.
        needs: What the database's host must be able to do.
        setup: Which brokers it needs.
        intake: Whether it needs an intake, or needs that there is none; ``None`` for neither.
        graceful: Whether a leader that it ends hands over, and so leaves no stale copy.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    engines: ClassVar[Collection[str]] = ENGINES
    deliveries: ClassVar[Collection[str]] = DELIVERIES
    needs: ClassVar[frozenset[Power]] = frozenset()
    setup: ClassVar[Setup] = ONE
    intake: ClassVar[bool | None] = None
    graceful: ClassVar[bool] = False

    def fits(self, host: type[Host], engine: str, delivery: str, intake: str = "") -> bool:
        """Returns whether the fault applies there."""
        if self.intake not in (None, bool(intake)):
            return False
        return engine in self.engines and delivery in self.deliveries and self.needs <= host.powers

    @abstractmethod
    def strike(self, site: Site) -> Strike:
        """Injects the fault, and ends it.

        Raises:
            AssertionError: The fault did not have its effect.
        """

    def check(self, site: Site, strike: Strike) -> None:  # noqa: B027 - most faults have no check of their own
        """Checks what is specific to this fault, once records flow again and all processes compete.

        Raises:
            AssertionError: A check failed.
        """
