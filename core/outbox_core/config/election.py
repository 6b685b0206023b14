"""The group of the processes that compete for leadership, and the topics of outbox itself."""

from dataclasses import replace

from outbox_sdk.elector import Elector
from outbox_sdk.outbox_table import OutboxTable
from outbox_sdk.publisher import Publisher

from outbox_core.config.identity import default_leader_group, default_leader_topic
from outbox_core.config.settings import Choice

_NOT_AN_OPTION = "not an option of this elector"


def needs_group(elector: Choice[Elector]) -> bool:
    """Returns whether the elector has the option of a group, and it is not set."""
    return getattr(elector.options, "leader_group_id", _NOT_AN_OPTION) is None


def with_group(elector: Choice[Elector], table: OutboxTable) -> Choice[Elector]:
    """Returns the elector with the default group and topic of the outbox.

    An elector whose group is set, or that has no such option, is returned unchanged, without a query.

    Args:
        elector: The elector.
        table: The outbox, whose name and identity determine the group.

    Raises:
        DriverError: The database refuses to give the outbox's identity, or cannot be reached.
    """
    return with_group_of(elector, table.name, table.identity()) if needs_group(elector) else elector


def with_group_of(elector: Choice[Elector], outbox: str, identity: str) -> Choice[Elector]:
    """Returns the elector, which needs a group, with those of the outbox of this name and identity."""
    names = {"leader_group_id": default_leader_group(outbox, identity)}
    if getattr(elector.options, "leader_topic", _NOT_AN_OPTION) is None:
        names["leader_topic"] = default_leader_topic(names["leader_group_id"])
    return replace(elector, options=replace(elector.options, **names))


def election_of(elector: Choice[Elector]) -> str:
    """Returns the name of an election, by which harvesters that do not compete are recognised.

    Args:
        elector: The elector, with its group.
    """
    group = getattr(elector.options, "leader_group_id", None)
    return f"{elector.driver} '{group}'" if group else elector.driver


def own_topics(elector: Choice[Elector], publisher: Choice[Publisher]) -> frozenset[str]:
    """Returns the topics that outbox uses itself: of the election, and of checkpoints.

    Args:
        elector: The elector, with its group.
        publisher: The publisher.
    """
    leader_topic = getattr(elector.options, "leader_topic", None)
    checkpoint_topic = getattr(publisher.options, "checkpoint_topic", None)
    return frozenset(topic for topic in (leader_topic, checkpoint_topic) if topic)
