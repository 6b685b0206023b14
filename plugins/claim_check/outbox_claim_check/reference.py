"""What stands in a record instead of its value, and under which name the value is stored."""

from __future__ import annotations

import hashlib
import re

HEADER = "outbox-claim"
"""The header with the URL of the value."""
_NAME = re.compile(r"[0-9a-f]{64}")


def name_of(content: bytes) -> str:
    """Returns the name of an object: a function of its content alone, which tells whether it is whole."""
    return hashlib.sha256(content).hexdigest()


def url_of(store: str, name: str) -> str:
    """Returns the URL of an object."""
    return f"{store.rstrip('/')}/{name}"


def name_in(store: str, url: str) -> str | None:
    """Returns the name of the object of a URL; ``None`` if it is none of this store's."""
    name = url.rpartition("/")[2]
    return name if _NAME.fullmatch(name) and url == url_of(store, name) else None
