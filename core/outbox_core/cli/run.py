"""``outbox run``: harvests until it is told to stop."""

import logging
from enum import StrEnum
from importlib.metadata import version
from queue import SimpleQueue
from threading import Thread
from time import monotonic, sleep
from typing import TYPE_CHECKING, Annotated

import typer

from outbox_core.cli.invocation import FileOption, Invocation, StopSignals, leave
from outbox_core.config import Delivery, HarvestSettings, LogLevel
from outbox_core.events import Event, LeaderAcquired, LeaderFenced, LeaderRefreshed, LeaderRevoked, MeterRead

if TYPE_CHECKING:
    from outbox_core.harvest import Harvest

log = logging.getLogger("outbox_core.run")

PATIENCE_SECONDS = 4.7
"""How long after the first signal the process ends in any case."""

_GLANCE_SECONDS = 0.1
_START_SECONDS = 1.0


class EngineName(StrEnum):
    """The engines."""

    SPARK = "spark"
    INLINE = "inline"


EXAMPLES = (
    "outbox run -f outbox.yaml",
    "outbox run -f reaper.yaml --engine inline --log-level debug",
)
"""For ``--help``."""


def run(
    context: typer.Context,
    file: FileOption = None,
    delivery: Annotated[
        Delivery | None, typer.Option(show_default=False, help="Overrides harvest.delivery.")
    ] = None,
    engine: Annotated[
        EngineName | None, typer.Option(show_default=False, help="Overrides harvest.engine.")
    ] = None,
    log_level: Annotated[
        LogLevel | None,
        typer.Option(case_sensitive=False, show_default=False, help="Overrides logging.level."),
    ] = None,
) -> None:
    """Harvest until Ctrl-C, SIGTERM or SIGHUP.

    Takes part in the election; whichever process leads moves the records, the others stand by.
    The first Ctrl-C or SIGTERM finishes what is in flight, hands over to a standby at once and exits with 0,
    within 5 seconds. A second one stops hard: nothing is lost, but records in flight may be published again.
    """
    invocation: Invocation = context.obj
    overrides = {"harvest.delivery": delivery, "harvest.engine.driver": engine, "logging.level": log_level}
    settings = invocation.settings(file, overrides).harvest
    with StopSignals(PATIENCE_SECONDS) as signals:
        _harvest(settings, signals)
    log.info("stopped")


def _harvest(settings: HarvestSettings, signals: StopSignals) -> None:
    # Commands that only ask a question start faster without the pipeline.
    from outbox_core.harvest import Harvest  # noqa: PLC0415
    from outbox_core.lanes.group import dedicate_process  # noqa: PLC0415

    harvest = Harvest(settings)
    if settings.engine.driver == "inline":
        dedicate_process()
    harvest.set_event_handler(announce)
    log.info("%s", _introduction(settings))
    _start(harvest, signals)
    try:
        log.info("joined the election")
        while not signals.requested.is_set():
            if harvest.wait(_GLANCE_SECONDS):
                break
        if signals.requested.is_set():
            log.info("stopping: finishing what is in flight; a second signal stops at once")
    finally:
        harvest.stop()


def announce(event: Event) -> None:
    """Logs an event in one line."""
    match event:
        case LeaderAcquired():
            log.info("leader acquired: id %s, fence token %d", event.leader_id, event.token)
        case LeaderRefreshed():
            log.info("leader refreshed: id %s, lane %d", event.leader_id, event.lane)
        case LeaderRevoked():
            log.info("leader revoked: handed over")
        case LeaderFenced():
            log.warning("leader fenced: %s", event.reason)
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
            )


def _start(harvest: "Harvest", signals: StopSignals) -> None:
    """Starts the harvest on another thread, so that this one hears signals at once, whatever start does.

    PySpark would also take over SIGINT if its session were made on the main thread.
    """
    outcome: SimpleQueue[BaseException | None] = SimpleQueue()

    def start() -> None:
        try:
            harvest.start()
        except BaseException as error:  # noqa: BLE001 - raised again on the thread that waits
            outcome.put(error)
        else:
            outcome.put(None)

    Thread(target=start, name="start", daemon=True).start()
    while outcome.empty():
        if signals.requested.wait(_GLANCE_SECONDS):
            log.info("stopping before the start is done")
            _wait_briefly(outcome)
            break
    error = outcome.get()
    if error is not None:
        raise error


def _wait_briefly(outcome: "SimpleQueue[BaseException | None]") -> None:
    """Gives a start that is nearly done the chance to leave the election properly; then ends the process."""
    end = monotonic() + _START_SECONDS
    while outcome.empty():
        if monotonic() > end:
            leave(0)  # nothing has been harvested, and a JVM that is starting ends with its parent
        sleep(_GLANCE_SECONDS)


def _introduction(settings: HarvestSettings) -> str:
    return (
        f"outbox {version('outbox-core')}: table {settings.outbox} ({settings.dialect.driver}) "
        f"to {settings.publisher.driver}, {settings.delivery}, elector {settings.elector.driver}, "
        f"engine {settings.engine.driver}, {settings.limits.send_concurrency} lanes, as {settings.name}"
    )
