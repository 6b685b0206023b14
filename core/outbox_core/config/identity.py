"""Default names: of the process, of the group that elects a leader, and of the group's topic."""

import os
import re
import socket
import time

_ILLEGAL = re.compile(r"[^A-Za-z0-9._-]+")
_MAX_TOPIC_LENGTH = 249
_SUFFIX = ".neli"


def instance_name() -> str:
    """Returns a name for this process: ``{hostname}_{pid}_{epoch seconds}``, as goharvest does."""
    return f"{_sanitized(socket.gethostname() or 'localhost')}_{os.getpid()}_{int(time.time())}"


def default_leader_group(table: str, identity: str) -> str:
    """Returns the name of the group of processes that compete for one outbox.

    goharvest uses the program's name. Here every service would have the name ``outbox``, and of two services
    on one broker only one would be harvested. A name made of the configuration would differ between two
    spellings of one outbox, and be the same for two databases at ``localhost``. So the name is made of what
    the database itself knows.

    Args:
        table: The outbox's name as the database knows it; makes the group's name readable.
        identity: Letters and digits that distinguish the outbox from every other.
    """
    room = _MAX_TOPIC_LENGTH - len(_SUFFIX) - len(identity) - 1
    return f"{f'outbox-{_sanitized(table)}'[:room]}-{identity}"


def default_leader_topic(group: str) -> str:
    """Returns the name of the topic on which ``group`` elects its leader, as goharvest does."""
    return f"{_sanitized(group)}{_SUFFIX}"


def _sanitized(text: str) -> str:
    return _ILLEGAL.sub("-", text).strip("-")
