"""Collects what is wrong with a configuration, so that one message lists all of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from outbox_api.base.errors import ConfigError, PluginError

from outbox_core.text.spelling import nearest_key, normalized


@dataclass(frozen=True, order=True)
class Place:
    """Where something was written."""

    source: str  # the file's name, or a description of another source
    line: int = 0  # the line, from 1; 0 where there are no lines

    def __str__(self) -> str:
        return f"{self.source}:{self.line}" if self.line else self.source


class Problem(NamedTuple):
    """One thing that is wrong; contains no value that could be a secret."""

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
        """Adds a problem, unless it was added before."""
        problem = Problem(place, path, message, plugin)
        if problem not in self.found:
            self.found.append(problem)

    def add_others(self, others: "Problems") -> None:
        """Adds problems found elsewhere, but for those that are told already about the same place."""
        told = {(problem.place, problem.message) for problem in self.found}
        self.found += [each for each in others.found if (each.place, each.message) not in told]

    def unknown_key(
        self, place: Place, path: str, key: str, valid: list[str], nested: Mapping[str, list[str]]
    ) -> None:
        """Adds a key that does not exist, with the section of its own or the most similar valid key."""
        nearest = nearest_key(key, valid)
        matches = [
            f"{name}.{child}"
            for name, keys in nested.items()
            for child in keys
            if normalized(child) == normalized(key)
        ]
        if matches:
            hint = f"did you mean '{matches[0]}'?"
        elif nearest:
            hint = f"did you mean '{nearest}'?"
        else:
            hint = f"valid keys here: {', '.join(sorted(valid))}" if valid else "there are no keys here"
        self.add(place, join(path, key), f"unknown key; {hint}")

    def raise_any(self) -> None:
        """Raises one error with all problems; does nothing if there are none."""
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
