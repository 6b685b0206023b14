"""The HTTP server of a harvester, in the place that ``outbox_core.cli.extras`` has for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from outbox_api import ConfigError, Finding
from outbox_core.monitoring.figures import Figures, RunningOutboxes
from outbox_core.monitoring.polls import StatusPolls
from outbox_core.settings import Settings
from outbox_core.settings.http import HttpSettings

__all__ = ["HTTP"]


class Http:
    """What core calls; its libraries are imported late."""

    @contextmanager
    def serving(
        self, settings: Settings, observe: RunningOutboxes, polls: StatusPolls, figures: Figures
    ) -> Iterator[None]:
        """Serves until it is left; see the contract."""
        with _needed():
            from outbox_console.app import application  # noqa: PLC0415 - a check needs no server
            from outbox_console.prometheus import Prometheus  # noqa: PLC0415 - likewise
            from outbox_console.recorder import Recorder  # noqa: PLC0415 - likewise
            from outbox_console.replays import Replays  # noqa: PLC0415 - likewise
            from outbox_console.server import HttpServer  # noqa: PLC0415 - likewise

        prometheus = Prometheus(figures, settings.process.name)
        with Recorder(observe, polls) as recorder:
            replays = Replays()
            app = application(settings, observe, polls, prometheus, recorder.history, replays=replays)
            with HttpServer(settings.http.address, app), replays:
                yield

    def check(self, http: HttpSettings) -> Iterator[Finding]:
        """Says whether it could serve; see the contract."""
        from outbox_console.listening import check_http  # noqa: PLC0415 - serving needs no check

        with _needed():
            import outbox_console.app  # noqa: PLC0415 - likewise
            import outbox_console.prometheus  # noqa: PLC0415 - likewise
            import outbox_console.server  # noqa: F401, PLC0415 - likewise
        return check_http(http)


@contextmanager
def _needed() -> Iterator[None]:
    """Imports in the block need libraries that this distribution depends on."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"http.listen is set, but {error.name} is not installed: install outbox-console and what it needs"
        ) from error


HTTP = Http()
