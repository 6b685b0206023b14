"""Finds the HTTP server, which the distribution ``outbox-console`` provides."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from importlib.metadata import entry_points
from typing import Protocol

from outbox_sdk.errors import ConfigError
from outbox_sdk.finding import Finding, Level

from outbox_core.cli.extras import MissingLibrary
from outbox_core.config import Settings
from outbox_core.config.http import HttpSettings
from outbox_core.monitoring.figures import Figures
from outbox_core.monitoring.polls import StatusPolls
from outbox_core.monitoring.running import RunningOutboxes

GROUP = "outbox.console"


class Console(Protocol):
    """What serves over HTTP."""

    def serving(
        self, settings: Settings, observe: RunningOutboxes, polls: StatusPolls, figures: Figures
    ) -> AbstractContextManager[None]:
        """Serves at ``http.listen`` until it is left.

        Args:
            settings: The settings of the process.
            observe: Returns the outboxes that it harvests.
            polls: Polls their databases.
            figures: Their metrics.

        Raises:
            ConfigError: The address cannot be used.
            OutboxError: The address is in use.
        """
        ...

    def check(self, http: HttpSettings) -> Iterator[Finding]:
        """Says whether the server can start, and what of it is unsafe; nothing where nothing is served."""
        ...


def find_console() -> Console:
    """Returns the HTTP server.

    Raises:
        MissingLibrary: It is not installed.
    """
    installed = entry_points(group=GROUP, name="http")
    if not installed:
        raise MissingLibrary(
            "http.listen is set, but outbox-console is not installed",
            "in a clone of outbox, beside what is installed, pip install ./console",
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
