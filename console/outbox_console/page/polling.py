"""How often browsers ask for what is new, and how often all outboxes are looked at: without I/O.

The more of them there are, the less often, so that what they cost the harvest is bounded.
"""

from __future__ import annotations

SHORTEST = 2.0
"""Seconds after which a browser asks again where few look."""
LONGEST = 10.0
"""Seconds after which it asks again however many look."""
POLLS = 20.0
"""Answers a second to all browsers together, as long as ``LONGEST`` permits."""
LOOKS = 20.0
"""Outboxes a second that the page of all of them has looked at, as long as ``LONGEST`` permits."""


def next_turn(now: float, last: float) -> float:
    """Returns when a browser is to ask again, in seconds on the clock of ``now``.

    Each that asks gets a turn of its own behind that of the one before. So those that would ask at the same
    moment spread, and nobody needs to be counted.

    Args:
        now: When it asks.
        last: The turn of whoever asked before; 0 if nobody has.
    """
    return min(max(now + SHORTEST, last + 1 / POLLS), now + LONGEST)


def overview_seconds(outboxes: int) -> float:
    """Returns for how many seconds the page of all outboxes serves everybody who asks.

    Args:
        outboxes: How many of them were looked at for it.
    """
    return min(max(1.0, outboxes / LOOKS), LONGEST)
