"""Finds drivers by their entry-point names and imports only the one that is named."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from functools import cache
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from typing import TYPE_CHECKING, Any, Literal, overload

import pluggy

from outbox_api.base.errors import PluginError
from outbox_api.seams import hooks
from outbox_api.seams.affinity import Affinity
from outbox_api.seams.elector import Elector
from outbox_api.seams.engine import Engine
from outbox_api.seams.hooks import GROUP, Driver
from outbox_api.seams.listener import Listener
from outbox_api.seams.publisher import Publisher
from outbox_api.seams.transform import Transform

if TYPE_CHECKING:
    from outbox_api.portable.dialect import PortableDialect  # who stashes loads nothing of a dialect

DISTRIBUTIONS = {
    "postgres": "outbox-postgres",
    "mysql": "outbox-mysql",
    "oracle": "outbox-oracle",
    "sqlserver": "outbox-sqlserver",
    "sqlite": "outbox-sqlite",
    "kafka": "outbox-kafka",
    "neli-kafka": "outbox-neli-kafka",
    "etcd": "outbox-etcd",
    "kubernetes": "outbox-kubernetes",
    "zookeeper": "outbox-zookeeper",
    "cluster": "outbox-cluster",
    "claim-check": "outbox-claim-check",
    "openlineage": "outbox-openlineage",
    "spark": "outbox-spark",
}
"""Driver name → the distribution of this repository that provides it."""


class Seam(StrEnum):
    """The seven places where a plugin can be put."""

    DIALECT = "dialect"
    ELECTOR = "elector"
    AFFINITY = "affinity"
    PUBLISHER = "publisher"
    ENGINE = "engine"
    TRANSFORM = "transform"
    LISTENER = "listener"


@dataclass(frozen=True, slots=True)
class Installed:
    """One installed driver.

    Attributes:
        name: What users write as ``driver:``.
        distribution: The distribution that provides it.
        version: That distribution's version.
        seams: The seams it serves; empty when it cannot be imported.
        problem: Why it cannot be used, or empty.
    """

    name: str
    distribution: str
    version: str
    seams: tuple[Seam, ...]
    problem: str = ""


@overload
def find(seam: Literal[Seam.DIALECT], name: str) -> Driver[PortableDialect]: ...
@overload
def find(seam: Literal[Seam.ELECTOR], name: str) -> Driver[Elector]: ...
@overload
def find(seam: Literal[Seam.AFFINITY], name: str) -> Driver[Affinity]: ...
@overload
def find(seam: Literal[Seam.PUBLISHER], name: str) -> Driver[Publisher]: ...
@overload
def find(seam: Literal[Seam.ENGINE], name: str) -> Driver[Engine]: ...
@overload
def find(seam: Literal[Seam.TRANSFORM], name: str) -> Driver[Transform]: ...
@overload
def find(seam: Literal[Seam.LISTENER], name: str) -> Driver[Listener]: ...
@overload
def find(seam: Seam, name: str) -> Driver[Any]: ...
def find(seam: Seam, name: str) -> Driver[Any]:
    """Finds the driver ``name`` for ``seam`` and imports its plugin, and no other.

    Raises:
        PluginError: None or several distributions provide the name, the plugin cannot be imported, or it
            does not serve the seam. The message lists what is installed and what to install.
    """
    return _find(seam, name, tuple(sys.path))


@cache
def _find(seam: Seam, name: str, path: tuple[str, ...]) -> Driver[Any]:
    """Finds a driver once for each import path."""
    candidates = [entry for entry in _entries(path) if entry.name == name]
    if not candidates:
        raise PluginError(_missing(seam, name))
    if len(candidates) > 1:
        providers = ", ".join(sorted(_provider(entry) for entry in candidates))
        raise PluginError(f"driver '{name}' is provided more than once: {providers}; uninstall all but one")
    drivers = _offers(candidates[0], seam)
    if not drivers:
        raise PluginError(
            f"driver '{name}' of {_provider(candidates[0])} does not serve the {seam} seam; "
            f"installed for it: {', '.join(_names(seam)) or 'none'}"
        )
    return drivers[0]


@cache
def _entries(path: tuple[str, ...]) -> EntryPoints:
    """Finds all drivers once for each import path: that reads the metadata of all distributions on it."""
    del path  # entry_points() uses sys.path
    return entry_points(group=GROUP)


def installation(name: str) -> str:
    """Returns the command that installs a driver of ``DISTRIBUTIONS``."""
    return f"pip install outbox-{name}"


def installed() -> list[Installed]:
    """Returns every installed driver, ordered by name; imports their plugins (not database drivers)."""
    return [_describe(entry) for entry in sorted(_entries(tuple(sys.path)), key=lambda entry: entry.name)]


def _offers(entry: EntryPoint, seam: Seam) -> Sequence[Driver[Any]]:
    # A manager of its own for each look-up: nothing is registered that was not asked for.
    manager = pluggy.PluginManager(GROUP)
    manager.add_hookspecs(hooks)
    try:
        manager.register(entry.load(), name=entry.name)
        manager.check_pending()
    except Exception as error:
        raise PluginError(f"driver '{entry.name}' of {_provider(entry)} cannot be loaded: {error}") from error
    offers: list[Driver[Any]] = getattr(manager.hook, f"outbox_{seam}")()
    return offers


def _describe(entry: EntryPoint) -> Installed:
    distribution, version = (entry.dist.name, entry.dist.version) if entry.dist else ("unknown", "unknown")
    try:
        seams = tuple(seam for seam in Seam if _offers(entry, seam))
    except PluginError as error:
        return Installed(entry.name, distribution, version, (), str(error))
    return Installed(entry.name, distribution, version, seams)


def _provider(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.value


def _names(seam: Seam) -> list[str]:
    return [driver.name for driver in installed() if seam in driver.seams]


def _missing(seam: Seam, name: str) -> str:
    # Of whatever seam: to know a plugin's, it would have to be imported.
    names = sorted({entry.name for entry in _entries(tuple(sys.path))})
    message = (
        f"no installed plugin provides the {seam} driver '{name}'; "
        f"installed drivers: {', '.join(names) or 'none'}"
    )
    if name in DISTRIBUTIONS:
        first = "set 'engine: inline', or " if name == "spark" else ""
        return f"{message}; {first}run: {installation(name)}"
    if close := get_close_matches(name, names, n=1):
        return f"{message}; did you mean '{close[0]}'?"
    return f"{message}; install the distribution that registers '{name}' in the entry-point group '{GROUP}'"
