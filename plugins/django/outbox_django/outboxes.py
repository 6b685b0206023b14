"""The outboxes of a project, as ``OUTBOX`` in its settings names them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connections
from outbox_api import ConfigError, Dialect, Driver, Seam, Stasher, find
from outbox_api.portable import PortableOptions

LABEL = "outbox_django"

DEFAULTS: Mapping[str, Any] = {
    "DATABASES": (DEFAULT_DB_ALIAS,),
    "TABLE": "outbox",
    "BYTES": False,
    "CONFIG": {},
}
"""Key of ``OUTBOX`` → what it is if it is not written."""

_DRIVERS = {"postgresql": "postgres", "mysql": "mysql", "sqlite": "sqlite", "oracle": "oracle"}
"""Django's name of a database, of MariaDB ``mysql`` → the driver name of its dialect."""
_TABLE = re.compile(r"[a-z_][a-z0-9_]*")


@dataclass(frozen=True)
class Outbox:
    """The outbox of one database."""

    name: str
    driver: Driver[Dialect]
    options: PortableOptions
    stasher: Stasher


def written(key: str) -> Any:
    """Returns what ``OUTBOX`` says, whether or not it makes sense."""
    return getattr(settings, "OUTBOX", {}).get(key, DEFAULTS[key])


def aliases() -> Sequence[str]:
    """Returns the aliases of the databases that have an outbox."""
    if unknown := sorted(set(getattr(settings, "OUTBOX", {})) - set(DEFAULTS)):
        raise ConfigError(f"OUTBOX has the unknown key '{unknown[0]}'; it can have {', '.join(DEFAULTS)}")
    named = written("DATABASES")
    if isinstance(named, str) or not named:
        raise ConfigError("OUTBOX['DATABASES'] is a list of aliases, such as ['default']")
    if absent := [alias for alias in named if alias not in connections.settings]:
        raise ConfigError(f"OUTBOX['DATABASES'] names '{absent[0]}', which DATABASES lacks")
    return tuple(named)


@cache
def outbox_of(alias: str) -> Outbox:
    """Returns the outbox of a database; connects to nothing."""
    if alias not in aliases():
        named = ", ".join(aliases())
        raise ConfigError(f"the database '{alias}' has no outbox; OUTBOX['DATABASES'] names {named}")
    vendor, table = connections[alias].vendor, written("TABLE")
    if vendor not in _DRIVERS:
        raise ConfigError(f"the database '{alias}' is {vendor}; an outbox can be in {', '.join(_DRIVERS)}")
    if not _TABLE.fullmatch(table):
        raise ConfigError(
            f"OUTBOX['TABLE'] is '{table}'; write small letters, digits and underscores, without a schema"
        )
    name = _DRIVERS[vendor]
    driver, binary = find(Seam.DIALECT, name), bool(written("BYTES"))
    options = driver.options(table=table, value_type=driver.options.value_types[binary])
    return Outbox(name, driver, options, Stasher(table, name, bytes_values=binary))


def forget(setting: str, **_: object) -> None:
    """Forgets what was read of settings that a test changes."""
    if setting == "OUTBOX":
        outbox_of.cache_clear()
