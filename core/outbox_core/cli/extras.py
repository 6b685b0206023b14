"""What is imported only where it is asked for: libraries of extras, and the HTTP server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib.metadata import entry_points
from typing import Protocol

from outbox_api.base.errors import ConfigError, PluginError
from outbox_api.base.finding import Finding, Level

from outbox_core.monitoring.figures import Figures, RunningOutboxes
from outbox_core.monitoring.polls import StatusPolls
from outbox_core.settings import Settings
from outbox_core.settings.http import HttpSettings

_LIBRARIES = frozenset({"opentelemetry"})


class MissingLibrary(PluginError):  # noqa: N818 - reads as what happened, like its siblings
    """A library is not installed that the configuration or the environment asks for."""

    def __init__(self, what: str, cure: str) -> None:
        super().__init__(f"{what}: {cure}")
        self.what = what
        self.cure = cure


@contextmanager
def needs(extra: str, why: str) -> Iterator[None]:
    """Imports in the block need the libraries of an extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing.partition(".")[0] not in _LIBRARIES:
            raise
        raise MissingLibrary(
            f"{why}, but {missing} is not installed",
            f"pip install 'outbox-harvester[{extra}]'",
        ) from error


GROUP = "outbox.console"


class Console(Protocol):
    """What serves over HTTP."""

    def serving(
        self, settings: Settings, observe: RunningOutboxes, polls: StatusPolls, figures: Figures
    ) -> AbstractContextManager[None]:
        """Serves at ``http.listen`` until it is left."""
        ...

    def check(self, http: HttpSettings) -> Iterator[Finding]:
        """Says whether the server can start, and what of it is unsafe; nothing where nothing is served."""
        ...


def find_console() -> Console:
    """Returns the HTTP server."""
    installed = entry_points(group=GROUP, name="http")
    if not installed:
        raise MissingLibrary(
            "http.listen is set, but outbox-console is not installed",
            "pip install outbox-console",
        )
    console: Console = next(iter(installed)).load()
    return console


def check_tokens(http: HttpSettings) -> Iterator[Finding]:
    """Says which files with tokens cannot be used."""
    try:
        http.check_files()
    except ConfigError as error:
        cure = "correct the file, or run as the harvester's user, who must be able to read it"
        yield Finding(Level.ERROR, "tokens", str(error), cure)
