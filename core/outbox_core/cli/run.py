"""``outbox run``: harvests until a signal stops it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from queue import SimpleQueue
from time import monotonic, sleep
from typing import TYPE_CHECKING, Annotated

import typer
from outbox_api.base.errors import ConfigError
from outbox_api.support.context_thread import ContextThread

from outbox_core.cli.command import Command
from outbox_core.cli.extras import find_console, needs
from outbox_core.cli.invocation import FileOption, Invocation, StopSignals, exit_now
from outbox_core.cli.logs import configure_logging
from outbox_core.events import (
    Event,
    LeaderAcquired,
    LeaderFenced,
    LeaderRefreshed,
    LeaderRevoked,
    MeterRead,
    TakeoverBegan,
)
from outbox_core.monitoring.figures import Figures, RunningOutbox, RunningOutboxes
from outbox_core.monitoring.polls import IdleSince, StatusPolls
from outbox_core.settings import Delivery, HarvestSettings, Settings
from outbox_core.settings.logs import LogLevel
from outbox_core.status.snapshot import Snapshot, Views

if TYPE_CHECKING:
    from outbox_core.harvest import Harvest

_EXPORTERS = "OTEL_METRICS_EXPORTER"
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_LAST_PUSH_SECONDS = 1.0


@contextmanager
def monitored(
    settings: Settings,
    observe: RunningOutboxes,
    variables: Mapping[str, str] = os.environ,
    idle_since: IdleSince = lambda _: None,
) -> Iterator[None]:
    """Serves and pushes what settings and environment ask for, which may be nothing, until it is left."""
    served, pushed = settings.http.listen is not None, _is_pushed(variables)
    with ExitStack() as stack:
        if served or pushed:
            polls = StatusPolls(_view, idle_since)
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


log = logging.getLogger("outbox.run")

GRACE_SECONDS = 4.7
"""Seconds after the first signal until the process ends in any case."""

MANY = 100
"""As many outboxes as templates may come to have."""
_POLL_SECONDS = 0.1
_HANGUP_SECONDS = 1.0
"""How often a process of many outboxes looks for a SIGHUP."""
_START_GRACE_SECONDS = 1.0


def run(
    context: typer.Context,
    file: FileOption = None,
    delivery: Annotated[
        Delivery | None, typer.Option(show_default=False, help="Overrides harvest.delivery.")
    ] = None,
    engine: Annotated[
        str | None, typer.Option(show_default=False, help="Overrides harvest.engine: spark, inline, …")
    ] = None,
    log_level: Annotated[
        LogLevel | None,
        typer.Option(case_sensitive=False, show_default=False, help="Overrides logging.level."),
    ] = None,
) -> None:
    """Harvest until Ctrl-C or SIGTERM.

    Takes part in the election: the process that leads moves the records, the others stand by. The first
    Ctrl-C or SIGTERM drains the records in flight, hands over to a standby and exits with 0, within 5
    seconds. A second one stops hard: nothing is lost, but records in flight may be published again. SIGHUP
    changes nothing.

    With 'outboxes:' in the configuration it harvests all of them; the processes share their leaderships
    evenly. The log names an outbox that cannot be harvested, and it is tried again; the others go on.
    """
    invocation: Invocation = context.obj
    overrides = {"harvest.delivery": delivery, "harvest.engine.driver": engine, "logging.level": log_level}
    settings = invocation.settings(file, overrides)
    configure_logging(settings.logging.level, settings.process.name, settings.logging.format)
    with StopSignals(GRACE_SECONDS, outlives_hangup=True) as signals:
        if settings.several:
            _harvest_several(settings, signals)
        else:
            _harvest(settings, signals)
    log.info("stopped")


def _tell_of_hangup(signals: StopSignals) -> None:
    if signals.take_hangup():
        log.info(
            "SIGHUP is ignored: secrets in files are read anew at each connect; for other changes of the "
            "configuration start this process anew; SIGTERM stops it"
        )


def _harvest(settings: Settings, signals: StopSignals) -> None:
    # Other commands start faster without these imports.
    from outbox_core.harvest import Harvest  # noqa: PLC0415
    from outbox_core.lanes.process import dedicate_process  # noqa: PLC0415
    from outbox_core.status.members import member_name  # noqa: PLC0415

    outbox = settings.harvest
    member = member_name(outbox.name)
    harvest = Harvest(outbox, member=member)
    if outbox.engine.driver == "inline":
        dedicate_process()
    harvest.set_event_handler(log_event)
    log.info("%s", _start_message(outbox))
    with monitored(settings, lambda: [RunningOutbox(outbox, harvest)]), noted(outbox, member, harvest):
        _start(harvest, signals)
        try:
            log.info("joined the election")
            while not signals.requested.is_set():
                if harvest.wait(_POLL_SECONDS):
                    break
                _tell_of_hangup(signals)
            if signals.requested.is_set():
                log.info("stopping: draining what is in flight; a second signal stops at once")
        finally:
            harvest.stop()


@contextmanager
def noted(outbox: HarvestSettings, member: str, harvest: Harvest) -> Iterator[None]:
    """Lets others see that this process is here."""
    from outbox_core.status.members import SEEN_SECONDS, MembersThread  # noqa: PLC0415 - as above

    thread = MembersThread(
        outbox,
        member,
        [outbox],
        ready=lambda: harvest.takes_part,
        leads=lambda: int(harvest.leads),
        aside=lambda: harvest.aside,
        seconds=SEEN_SECONDS,
    )
    try:
        yield
    finally:
        thread.stop()


def _harvest_several(settings: Settings, signals: StopSignals) -> None:
    from outbox_core.harvest.harvester import Harvester  # noqa: PLC0415 - other commands start faster without it
    from outbox_core.lanes.process import dedicate_process  # noqa: PLC0415 - likewise

    process = settings.process
    if process.engine.driver == "inline":
        dedicate_process(len(settings.outboxes) + (MANY if settings.templates else 0))
    names = [outbox.label for outbox in settings.outboxes] + [
        f"{template.label} ({template.pattern})" for template in settings.templates
    ]
    log.info("outbox %s: %s, as %s", version("outbox-harvester"), ", ".join(names), process.name)
    harvester = Harvester(settings, lambda _, event: log_event(event))

    def observe() -> list[RunningOutbox]:
        return [RunningOutbox(each.settings, each) for each in harvester.harvests]

    with monitored(settings, observe, idle_since=harvester.idle_since):
        harvester.start()
        try:
            while not signals.requested.wait(_HANGUP_SECONDS):
                _tell_of_hangup(signals)
            log.info("stopping: draining what is in flight; a second signal stops at once")
        finally:
            harvester.stop()


def log_event(event: Event) -> None:
    """Logs an event in one line."""
    about = {
        "event": type(event).__name__,
        "token": getattr(event, "token", ""),
        "lane": getattr(event, "lane", ""),
    }
    match event:
        case LeaderAcquired():
            heard = (
                ""
                if event.silence is None
                else f", {event.silence:.1f} s after the last heartbeat of the one before"
            )
            text = "leader acquired: id %s, fence token %d%s"
            log.info(text, event.leader_id, event.token, heard, extra=about)
        case LeaderRefreshed():
            log.info("leader refreshed: id %s, lane %d", event.leader_id, event.lane, extra=about)
        case TakeoverBegan():
            why = "deliberately" if event.deliberate else "which may be lost"
            text = "takeover began: records of cluster %d, %s, lane %d"
            log.warning(text, event.cluster, why, event.lane, extra=about)
        case LeaderRevoked():
            log.info("leader revoked: handed over", extra=about)
        case LeaderFenced():
            log.warning("leader fenced: %s", event.reason, extra=about)
        case MeterRead():
            stats = event.stats
            log.info(
                "%s records/s over %.1f s; %s purged in all, %s in flight, %s waiting, %s parked",
                f"{stats.purged_per_second:,.0f}",
                stats.seconds,
                f"{stats.total.purged:,}",
                f"{stats.total.in_flight:,}",
                f"{stats.total.waiting:,}",
                f"{stats.total.parked:,}",
                extra={**about, "always": True},
            )


def _start(harvest: Harvest, signals: StopSignals) -> None:
    """Starts the harvest on another thread, so that this one handles signals while it starts.

    If the session were created on the main thread, PySpark would install its own handler of SIGINT.
    """
    outcome: SimpleQueue[BaseException | None] = SimpleQueue()

    def start() -> None:
        try:
            harvest.start()
        except BaseException as error:  # noqa: BLE001 - raised again on the thread that waits
            outcome.put(error)
        else:
            outcome.put(None)

    ContextThread(target=start, name="start", daemon=True).start()
    while outcome.empty():
        if signals.requested.wait(_POLL_SECONDS):
            log.info("stopping before the start is complete")
            _wait_for_start(outcome)
            break
    error = outcome.get()
    if error is not None:
        raise error


def _wait_for_start(outcome: SimpleQueue[BaseException | None]) -> None:
    """Waits briefly for the start, so that it can leave the election; then ends the process."""
    end = monotonic() + _START_GRACE_SECONDS
    while outcome.empty():
        if monotonic() > end:
            exit_now(0)  # nothing has been harvested, and a JVM that is starting ends with its parent
        sleep(_POLL_SECONDS)


def _start_message(settings: HarvestSettings) -> str:
    return (
        f"outbox {version('outbox-harvester')}: table {settings.outbox} ({settings.dialect.driver}) "
        f"to {settings.publisher.driver}, {settings.delivery}, elector {settings.elector.driver}, "
        f"engine {settings.engine.driver}, {settings.limits.send_concurrency} lanes, as {settings.name}"
    )


COMMAND = Command(
    run,
    (
        "outbox run -f outbox.yaml",
        "outbox run -f reaper.yaml --engine inline --log-level debug",
    ),
)
