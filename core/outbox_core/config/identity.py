"""The names that follow from a configuration: of the instance, the group of competitors, and its topic."""

import os
import re
import socket
import time
from hashlib import sha256
from urllib.parse import urlsplit

# The seed writes an empty password as ``password= dbname=x``: a value begins right behind its sign.
_PAIR = re.compile(r"(\w+)\s*=('(?:[^'\\]|\\.)*'|[^\s']*)")
_PLACE = ("host", "hostaddr", "port", "dbname", "service")
_ILLEGAL = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_TOPIC = 249
_SUFFIX = ".neli"
_DIGEST = 8


def instance_name() -> str:
    """Returns a name for this process: ``{hostname}_{pid}_{epoch seconds}``, as in seed 001."""
    return f"{_legal(socket.gethostname() or 'localhost')}_{os.getpid()}_{int(time.time())}"


def default_leader_group(data_source: str | None, table: str) -> str:
    """Returns the name of the group of those who compete for one outbox.

    The seed takes the program's name. Here that would be ``outbox`` for everybody: of two services on one
    broker only one would ever be harvested. So it is the outbox that gives the name, with a digest of where
    it is; whoever harvests the same outbox competes, whatever program it is in. User and password have no
    part in the digest: changing them during a rolling restart splits no group.

    Args:
        data_source: Where the database is.
        table: The outbox table.
    """
    digest = sha256("\n".join((_location(data_source or ""), table)).encode()).hexdigest()[:_DIGEST]
    group = f"outbox-{_legal(table)}"
    return f"{group[: _LONGEST_TOPIC - len(_SUFFIX) - _DIGEST - 1]}-{digest}"


def default_leader_topic(group: str) -> str:
    """Returns the name of the topic on which ``group`` elects its leader, as in seed 001."""
    return f"{_legal(group)}{_SUFFIX}"


def _location(data_source: str) -> str:
    if "://" in data_source:
        parts = urlsplit(data_source)
        return f"{parts.netloc.rpartition('@')[2]}{parts.path}".lower()
    if pairs := dict(_PAIR.findall(data_source)):
        return " ".join(f"{key}={pairs[key].strip(chr(39))}" for key in _PLACE if key in pairs).lower()
    return data_source.rpartition("@")[2]


def _legal(text: str) -> str:
    return _ILLEGAL.sub("-", text).strip("-")
