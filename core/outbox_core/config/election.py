"""Who competes with whom: the group that an elector is told, or the one that follows from the outbox."""

from dataclasses import replace

from outbox_sdk.dialect import OutboxTable
from outbox_sdk.elector import Elector

from outbox_core.config.identity import default_leader_group, default_leader_topic
from outbox_core.config.settings import Choice

_SET = "not to be completed"


def lacks_group(elector: Choice[Elector]) -> bool:
    """Returns whether the elector needs a group and is not told one."""
    return getattr(elector.options, "leader_group_id", _SET) is None


def with_group(elector: Choice[Elector], table: OutboxTable) -> Choice[Elector]:
    """Returns the elector with the group, and the topic, that follow from the outbox.

    One that is told a group, or knows none, is returned as it is, and the database is not asked.

    Args:
        elector: Who elects.
        table: The outbox.

    Raises:
        DriverError: The database refuses to name the outbox or cannot be reached.
    """
    if not lacks_group(elector):
        return elector
    names = {"leader_group_id": default_leader_group(table.name, table.identity())}
    if getattr(elector.options, "leader_topic", _SET) is None:
        names["leader_topic"] = default_leader_topic(names["leader_group_id"])
    return replace(elector, options=replace(elector.options, **names))
