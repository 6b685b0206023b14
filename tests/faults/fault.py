"""What a fault is, and what it says of itself when it has struck."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import ClassVar

from .host import Host, Power
from .site import Site

ENGINES = ("inline", "spark")
AT_LEAST_ONCE, EXACTLY_ONCE = DELIVERIES = ("at-least-once", "exactly-once")


@dataclass
class Strike:
    """A fault that has struck and, if it lasts, is over.

    Attributes:
        at: When it struck, in seconds since the epoch.
        floor: Seconds that no harvester could have helped to stand still: the lower bound of the stall.
        lost: Runs of lanes that were lost without a new leader.
        facts: What to keep in the history.
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
        bound: What its lower bound is, in a few words.
        engines: On which it exists.
        deliveries: In which modes of delivery it exists.
        needs: What the database's host must be able to do.
        graceful: Whether a leader that ends by it hands over, and thus leaves no stale copy behind.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    bound: ClassVar[str] = "none"
    engines: ClassVar[Collection[str]] = ENGINES
    deliveries: ClassVar[Collection[str]] = DELIVERIES
    needs: ClassVar[frozenset[Power]] = frozenset()
    graceful: ClassVar[bool] = False

    def fits(self, host: type[Host], engine: str, delivery: str) -> bool:
        """Tells whether it exists there."""
        return engine in self.engines and delivery in self.deliveries and self.needs <= host.powers

    @abstractmethod
    def strike(self, site: Site) -> Strike:
        """Does it, and ends it.

        Raises:
            AssertionError: It did not have the effect that makes it this fault.
        """

    def check(self, site: Site, strike: Strike) -> None:  # noqa: B027 - most faults show nothing of their own
        """Looks, once records flow again and all compete, at what only this fault can show.

        Raises:
            AssertionError: Something is not as it must be.
        """
