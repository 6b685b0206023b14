"""The names that follow from others: of the instance, the group of competitors, and its topic."""

import os
import re
import socket
import time

_ILLEGAL = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_TOPIC = 249
_SUFFIX = ".neli"


def instance_name() -> str:
    """Returns a name for this process: ``{hostname}_{pid}_{epoch seconds}``, as goharvest does."""
    return f"{_legal(socket.gethostname() or 'localhost')}_{os.getpid()}_{int(time.time())}"


def default_leader_group(table: str, identity: str) -> str:
    """Returns the name of the group of those who compete for one outbox.

    goharvest takes the program's name. Here that would be ``outbox`` for everybody: of two services on one
    broker only one would ever be harvested. What follows from the configuration differs between two spellings
    of one outbox, and not between two that are both at ``localhost``. So the outbox itself gives the name.

    Args:
        table: The outbox's name as the database knows it, for people.
        identity: What tells it from every other: letters and digits.
    """
    room = _LONGEST_TOPIC - len(_SUFFIX) - len(identity) - 1
    return f"{f'outbox-{_legal(table)}'[:room]}-{identity}"


def default_leader_topic(group: str) -> str:
    """Returns the name of the topic on which ``group`` elects its leader, as goharvest does."""
    return f"{_legal(group)}{_SUFFIX}"


def _legal(text: str) -> str:
    return _ILLEGAL.sub("-", text).strip("-")
