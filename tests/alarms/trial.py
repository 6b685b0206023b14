"""One trial: a fault is begun, its alarms fire, it is ended, and they clear."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..harvesters import until  # noqa: TID252 - pytest gives tests no absolute name
from .faults import Fault
from .site import Site

PATIENCE = 150.0
"""The longest that an alarm may take to fire, or to clear, in seconds."""


@dataclass(frozen=True)
class Outcome:
    """What a fault has done to an alarm.

    Attributes:
        alarm: The alarm.
        fault: What was done.
        fired: Seconds from the fault's beginning until the alarm fired.
        cleared: Seconds from the fault's end until it did not fire any more.
        others: Other alarms that fired meanwhile.
    """

    alarm: str
    fault: str
    fired: float
    cleared: float
    others: Sequence[str]


def conduct(site: Site, fault: Fault, alarms: Iterable[str]) -> list[Outcome]:
    """Conducts a trial.

    Args:
        site: A site with the fault's settings.
        fault: The fault.
        alarms: Those of its alarms that are waited for.

    Raises:
        AssertionError: An alarm did not fire, or did not clear.
    """
    waited = list(alarms)
    # On a busy machine others may fire all the time.
    until(
        lambda: not {each.name for each in site.alerts()} & set(waited),
        f"none of {waited} is left: {site.alerts()}",
        PATIENCE,
        pause=0.5,
    )
    began = time.monotonic()
    with fault.strike(site):
        fired = {each: site.since(began, each, fires=True, patience=PATIENCE) for each in waited}
        others = sorted(site.firing() - set(waited))
        ended = time.monotonic()
    cleared = {each: site.since(ended, each, fires=False, patience=PATIENCE) for each in waited}
    return [Outcome(each, fault.title, fired[each], cleared[each], others) for each in waited]
