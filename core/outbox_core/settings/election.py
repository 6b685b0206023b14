"""Names of an election: of the process, of the group that competes, and of the topics of outbox itself."""

import os
import re
import socket
import time
from dataclasses import replace

from outbox_api.seams.elector import Elector
from outbox_api.seams.outbox_table import OutboxTable
from outbox_api.seams.publisher import Publisher

from outbox_core.settings import Choice

_ILLEGAL = re.compile(r"[^A-Za-z0-9._-]+")
_MAX_TOPIC_LENGTH = 249
_SUFFIX = ".neli"
_NOT_AN_OPTION = "not an option of this elector"


def instance_name() -> str:
    """Returns a name for this process: ``{hostname}_{pid}_{epoch seconds}``, as goharvest does."""
    return f"{_sanitized(socket.gethostname() or 'localhost')}_{os.getpid()}_{int(time.time())}"


def default_leader_group(table: str, identity: str) -> str:
    """Returns the name of the group of processes that compete for one outbox.

    goharvest uses the program's name. Here every service would have the name ``outbox``, and of two services
    on one broker only one would be harvested. A name made of the configuration would differ between two
    spellings of one outbox, and be the same for two databases at ``localhost``. So the name is made of what
    the database itself knows.
    """
    room = _MAX_TOPIC_LENGTH - len(_SUFFIX) - len(identity) - 1
    return f"{f'outbox-{_sanitized(table)}'[:room]}-{identity}"


def default_leader_topic(group: str) -> str:
    """Returns the name of the topic on which ``group`` elects its leader, as goharvest does."""
    return f"{_sanitized(group)}{_SUFFIX}"


def needs_group(elector: Choice[Elector]) -> bool:
    """Returns whether the elector has the option of a group, and it is not set."""
    return getattr(elector.options, "leader_group_id", _NOT_AN_OPTION) is None


def with_group(elector: Choice[Elector], table: OutboxTable) -> Choice[Elector]:
    """Returns the elector with the default group and topic of the outbox.

    An elector whose group is set, or that has no such option, is returned unchanged, without a query.
    """
    return with_group_of(elector, table.name, table.identity()) if needs_group(elector) else elector


def with_group_of(elector: Choice[Elector], outbox: str, identity: str) -> Choice[Elector]:
    """Returns the elector, which needs a group, with those of the outbox of this name and identity."""
    names = {"leader_group_id": default_leader_group(outbox, identity)}
    if getattr(elector.options, "leader_topic", _NOT_AN_OPTION) is None:
        names["leader_topic"] = default_leader_topic(names["leader_group_id"])
    return replace(elector, options=replace(elector.options, **names))


def election_of(elector: Choice[Elector]) -> str:
    """Returns the name of an election, by which harvesters that do not compete are recognised."""
    group = getattr(elector.options, "leader_group_id", None)
    return f"{elector.driver} '{group}'" if group else elector.driver


def own_topics(elector: Choice[Elector], publisher: Choice[Publisher]) -> frozenset[str]:
    """Returns the topics that outbox uses itself: of the election, and of checkpoints."""
    leader_topic = getattr(elector.options, "leader_topic", None)
    checkpoint_topic = getattr(publisher.options, "checkpoint_topic", None)
    return frozenset(topic for topic in (leader_topic, checkpoint_topic) if topic)


def _sanitized(text: str) -> str:
    return _ILLEGAL.sub("-", text).strip("-")
