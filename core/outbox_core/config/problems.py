"""What is wrong with a configuration, collected so that one message tells all of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import NamedTuple

from outbox_sdk.errors import ConfigError, PluginError


@dataclass(frozen=True, order=True)
class Place:
    """Where something was written.

    Attributes:
        source: The file's name, or what stands in for one.
        line: The line, from 1; 0 where there are no lines.
    """

    source: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.source}:{self.line}" if self.line else self.source


class Problem(NamedTuple):
    """One thing that is wrong; never carries a value that could be a secret."""

    place: Place
    path: str
    message: str
    plugin: bool = False

    def __str__(self) -> str:
        return ": ".join(part for part in (str(self.place), self.path, self.message) if part)


@dataclass
class Problems:
    """The problems found so far."""

    found: list[Problem] = field(default_factory=list)

    def add(self, place: Place, path: str, message: str, *, plugin: bool = False) -> None:
        """Notes a problem, once."""
        problem = Problem(place, path, message, plugin)
        if problem not in self.found:
            self.found.append(problem)

    def unknown_key(
        self, place: Place, path: str, key: str, valid: list[str], below: Mapping[str, list[str]]
    ) -> None:
        """Notes a key that does not exist, with where it belongs or the nearest one that does.

        Args:
            place: Where the key stands.
            path: The dotted path of its section.
            key: The key.
            valid: The keys of this section.
            below: The keys of the sections below this one, by the section's key.
        """
        nearest = nearest_key(key, valid)
        homes = [
            f"{name}.{child}"
            for name, keys in below.items()
            for child in keys
            if _plain(child) == _plain(key)
        ]
        if homes:
            hint = f"did you mean '{homes[0]}'?"
        elif nearest:
            hint = f"did you mean '{nearest}'?"
        else:
            hint = f"valid keys here: {', '.join(sorted(valid))}"
        self.add(place, join(path, key), f"unknown key; {hint}")

    def raise_any(self) -> None:
        """Raises what was found, as one error.

        Raises:
            PluginError: Nothing but plugins is the problem.
            ConfigError: There are others.
        """
        if not self.found:
            return
        kind = PluginError if all(problem.plugin for problem in self.found) else ConfigError
        lines = [str(problem) for problem in sorted(self.found)]
        if len(lines) == 1:
            raise kind(lines[0])
        raise kind("\n  ".join([f"the configuration has {len(lines)} problems:", *lines]))


def join(path: str, key: str) -> str:
    """Returns the dotted path of ``key`` below ``path``."""
    return f"{path}.{key}" if path else key


def nearest_key(key: str, valid: list[str]) -> str | None:
    """Returns the valid key that ``key`` was probably meant to be, whatever its case and underscores."""
    plain = {_plain(name): name for name in valid}
    close = get_close_matches(_plain(key), plain, n=1)
    return plain[close[0]] if close else None


def _plain(key: str) -> str:
    return key.replace("_", "").replace("-", "").lower()
