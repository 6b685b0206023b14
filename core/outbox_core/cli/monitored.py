"""What ``outbox run`` serves over HTTP and pushes by OTLP; imports nothing that is not asked for."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

from outbox_sdk.errors import ConfigError

from outbox_core.cli.console_plugin import find_console
from outbox_core.cli.extras import needs
from outbox_core.config import HarvestSettings, Settings
from outbox_core.monitoring.figures import Figures
from outbox_core.monitoring.polls import StatusPolls
from outbox_core.monitoring.running import RunningOutboxes
from outbox_core.snapshot import Snapshot, Views

_EXPORTERS = "OTEL_METRICS_EXPORTER"
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_LAST_PUSH_SECONDS = 1.0


@contextmanager
def monitored(
    settings: Settings, observe: RunningOutboxes, variables: Mapping[str, str] = os.environ
) -> Iterator[None]:
    """Serves and pushes what settings and environment ask for, which may be nothing, until it is left.

    Raises:
        ConfigError: A library is missing, or the address, a token or the protocol cannot be used.
        OutboxError: The address is in use.
    """
    served, pushed = settings.http.listen is not None, _is_pushed(variables)
    with ExitStack() as stack:
        if served or pushed:
            polls = StatusPolls(_view)
            figures = Figures(observe, polls)
        if served:
            settings.http.check_files()
            stack.enter_context(find_console().serving(settings, observe, polls, figures))
        if pushed:
            with needs("otlp", f"{_EXPORTERS} is 'otlp'"):
                from outbox_core.monitoring.otlp import Push  # noqa: PLC0415 - only where it is on
            push = Push(figures, settings.process.name)
            stack.callback(push.close, _LAST_PUSH_SECONDS)
        yield


def _is_pushed(variables: Mapping[str, str]) -> bool:
    if "otlp" not in [each.strip() for each in variables.get(_EXPORTERS, "").split(",")]:
        return False
    for name in _PROTOCOLS:
        if (protocol := variables.get(name, "http/protobuf")) != "http/protobuf":
            raise ConfigError(f"{name} is '{protocol}': metrics are pushed by http/protobuf only")
    return True


@contextmanager
def _view() -> Iterator[Callable[[HarvestSettings], Snapshot]]:
    with Views() as views:
        yield views.snapshot
