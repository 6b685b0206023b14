"""What operators have paused of an outbox: topics, or all of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

WHOLE = ""
"""What stands for all topics of an outbox, as no topic has an empty name."""
MAX_PAUSES = 500
"""How many pauses an outbox may have: every mark names their topics."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Records of a topic, or of all, wait in the outbox until somebody resumes it or the pause ends.

    Attributes:
        topic: The topic's exact name; ``WHOLE`` for the whole outbox.
        operator: Who has paused it.
        reason: Why, as the operator said.
        since: When it began, by the database's clock; the same as long as it lasts, whoever renews it.
        until: When it ends by itself, by the database's clock; ``None`` for never.
        lasted: For how many seconds it has lasted, by the database's clock.
    """

    topic: str
    operator: str
    reason: str
    since: datetime
    until: datetime | None = None
    lasted: float = 0.0

    @property
    def subject(self) -> str:
        """What is paused, for people."""
        return subject_of(self.topic)


def subject_of(topic: str) -> str:
    """Returns what a topic, or ``WHOLE``, is called before people."""
    return f"topic {topic}" if topic else "the whole outbox"
