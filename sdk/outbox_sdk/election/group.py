"""The name for which processes compete: the option ``leader_group_id``."""

from __future__ import annotations

from outbox_sdk.errors import ConfigError
from outbox_sdk.finding import Finding, Level

NO_GROUP = Finding(
    Level.WARNING,
    "leader group",
    "not checked: its name follows from the outbox, and the database could not tell it",
    "correct what the check says about the database, or set leaderGroupID",
)
"""What a check finds if the options name no group."""


def required_group(leader_group_id: str | None) -> str:
    """Returns the name for which processes compete.

    Raises:
        ConfigError: The options name none.
    """
    if not leader_group_id:
        raise ConfigError("the election needs a name that the competing processes share: leaderGroupID")
    return leader_group_id
