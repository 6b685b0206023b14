"""What queries that read outboxes do, as the metrics that harvesters have."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any
from uuid import UUID

from outbox_api import ConfigError
from outbox_core.events.measurements import Measurements
from outbox_core.monitoring import names
from outbox_core.monitoring.figures import Figure
from outbox_core.settings.election import instance_name
from outbox_core.settings.http import Address
from outbox_core.tracing import conventions
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    SourceProgress,
    StreamingQueryListener,
)

from pyspark_outbox.offsets import Offset

if TYPE_CHECKING:
    from outbox_console.server import HttpServer
    from outbox_core.monitoring.otlp import Push
    from pyspark.sql import SparkSession

log = logging.getLogger("outbox.spark")

_STEPS = {"latestOffset": "advance", "addBatch": "publish"}
"""What Spark calls a step → what lanes call it."""
_LAST_PUSH_SECONDS = 2.0


@dataclass(slots=True)
class _Outbox:
    """What is known of one outbox; ``title`` is empty until a query has reported."""

    title: str = ""
    running: set[UUID] = field(default_factory=set)
    purged: int = 0
    measured: Measurements = field(default_factory=Measurements)
    backlog: int | None = None
    oldest: float = 0.0

    def figures(self) -> Iterator[Figure]:
        outbox = {conventions.OUTBOX: self.title}
        lane = {**outbox, conventions.LANE: "0"}
        yield Figure(names.LEADER, outbox, int(bool(self.running)))
        yield Figure(names.PURGED, lane, self.purged)
        measured = Measurements() + self.measured  # a copy
        for step, seconds in measured.steps.items():
            yield Figure(names.STEP_DURATION, {**lane, conventions.STEP: step}, seconds)
        for step, sizes in measured.sizes.items():
            yield Figure(names.BATCH_SIZE, {**lane, conventions.STEP: step}, sizes)
        if self.backlog is not None:
            yield Figure(names.BACKLOG, outbox, self.backlog)
            yield Figure(names.BACKLOG_AGE, outbox, self.oldest)


class QueryFigures:
    """The figures of all queries of an application; safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._outboxes: dict[str, _Outbox] = {}  # by identity

    def wait(self, seconds: float) -> None:
        """Returns at once: Spark tells by itself."""

    def read(self) -> list[Figure]:
        """Returns all figures as Spark has told them last."""
        with self._lock:
            return [each for outbox in self._outboxes.values() if outbox.title for each in outbox.figures()]

    def reported(self, run: UUID, source: SourceProgress) -> None:
        """Takes in what waits for a query, if its source is an outbox."""
        end, report = _parsed(source.endOffset), _parsed(source.latestOffset)
        if _is_ours(end) and report:
            with self._lock:
                outbox = self._outboxes.setdefault(end["outbox"], _Outbox())
                outbox.running.add(run)
                outbox.title, outbox.backlog = report["outbox"], report["waiting"]
                outbox.oldest = report["oldestSeconds"] or 0.0

    def delivered(self, seconds: dict[str, float], source: SourceProgress) -> None:
        """Counts a batch that a query has delivered, if it has rows of an outbox."""
        end = _parsed(source.endOffset)
        if not _is_ours(end) or end == _parsed(source.startOffset):
            return
        offset = Offset.of(end)
        deleted = offset.checkpoint.attempted
        batch = deleted or offset.positions
        with self._lock:
            outbox = self._outboxes.setdefault(end["outbox"], _Outbox())
            outbox.purged += deleted.rows if deleted else 0
            for spark, step in _STEPS.items():
                if batch and spark in seconds:
                    outbox.measured.step(step, seconds[spark], batch.rows)

    def ended(self, run: UUID) -> None:
        """Takes in that a query has ended: of its outboxes nothing is known any more but what it has done."""
        with self._lock:
            for outbox in self._outboxes.values():
                if run in outbox.running:
                    outbox.running.discard(run)
                    outbox.backlog = None


class OutboxListener(StreamingQueryListener):
    """Serves or pushes the metrics of all queries of a session that read outboxes.

    ``spark.streams.addListener(OutboxListener(spark, port=9464))``. Once it is there, no error of it
    ends a query.

    Args:
        spark: The session.
        port: Where Prometheus finds ``/metrics`` on 127.0.0.1, 0 for any free port; ``None`` for nowhere.
        push: Whether to push by OTLP, as OpenTelemetry's variables of the environment say.

    Attributes:
        port: The port at which it serves; ``None`` if it does not.

    Raises:
        ConfigError: This user may not use the port, or a library is missing.
        OutboxError: Another process listens there.
    """

    def __init__(self, spark: SparkSession, *, port: int | None = None, push: bool = False) -> None:
        self._spark = spark
        self._figures = QueryFigures()
        self._open = ExitStack()
        self.port = (
            None if port is None else self._open.enter_context(_server(self._figures, port)).address.port
        )
        if push:
            self._open.callback(_push(self._figures).close, _LAST_PUSH_SECONDS)

    def close(self) -> None:
        """Ends serving, and pushes for the last time. Idempotent."""
        self._open.close()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - PySpark's
        """Does nothing: which outboxes a query reads is told with its first batch."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - PySpark's
        """Takes in a batch."""
        with _harmless():
            progress = event.progress
            seconds = {step: taken / 1000 for step, taken in progress.durationMs.items()}
            for source in progress.sources:
                self._figures.reported(progress.runId, source)
                self._figures.delivered(seconds, source)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - PySpark's
        """Takes in what waits, which the query has looked for in vain."""
        with _harmless():
            query = self._spark.streams.get(str(event.id))
            progress = query.lastProgress if query else None
            for source in progress.sources if progress else ():
                self._figures.reported(event.runId, source)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - PySpark's
        """Takes in the end of a query."""
        with _harmless():
            self._figures.ended(event.runId)


@contextmanager
def _harmless() -> Iterator[None]:
    try:
        yield
    except Exception:
        log.exception("what a query tells cannot be measured; the query goes on")


def _is_ours(offset: dict[str, Any]) -> bool:
    return offset.keys() >= Offset().written().keys()


def _parsed(offset: str | None) -> dict[str, Any]:
    """Returns an offset or a report as data; nothing of one that is missing, or of another kind of source."""
    with suppress(ValueError, TypeError):
        if isinstance(found := json.loads(offset or ""), dict):
            return found
    return {}


def _server(figures: QueryFigures, port: int) -> HttpServer:
    with _installed("outbox-console"):
        from outbox_console.prometheus import Prometheus  # noqa: PLC0415 - only where it is asked for
        from outbox_console.server import HttpServer  # noqa: PLC0415 - likewise
        from starlette.applications import Starlette  # noqa: PLC0415 - likewise
        from starlette.requests import Request  # noqa: PLC0415 - likewise
        from starlette.responses import Response  # noqa: PLC0415 - likewise
        from starlette.routing import Route  # noqa: PLC0415 - likewise
    prometheus = Prometheus(figures, instance_name())

    async def metrics(request: Request) -> Response:
        text, content_type = prometheus.write(request.headers.get("accept", ""))
        return Response(text, headers={"Content-Type": content_type})

    return HttpServer(Address("127.0.0.1", port), Starlette(routes=[Route("/metrics", metrics)]))


def _push(figures: QueryFigures) -> Push:
    with _installed("'outbox-harvester[otlp]'"):
        from outbox_core.monitoring.otlp import Push  # noqa: PLC0415 - only where it is asked for
    return Push(figures, instance_name())


@contextmanager
def _installed(distribution: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"the metrics of queries need {error.name}, which is not installed: pip install {distribution}"
        ) from error
