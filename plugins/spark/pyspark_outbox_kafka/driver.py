"""What the driver does once all tasks of a batch have ended."""

from __future__ import annotations

from collections.abc import Sequence

from outbox_api import DriverError

from pyspark_outbox_kafka.ledger import Entry, Kind, Report, check, settle
from pyspark_outbox_kafka.log import SinkLog
from pyspark_outbox_kafka.options import SinkOptions


def end_batch(options: SinkOptions, reports: Sequence[Report], *, forgets: bool = False) -> None:
    """Makes sure that all rows of a batch are published, and notes it.

    Args:
        options: The sink's.
        reports: Those of all tasks.
        forgets: Whether nothing is noted, and what tasks have noted is deleted.

    Raises:
        DriverError: The rows are not those that were published before; or another run has begun.
    """
    part = reports[0].part._replace(task=-1)
    sink = SinkLog(options, options.sink_name or (part.run if forgets else part.query))
    with sink.producer(None) as producer:
        ledger = sink.read()
        check(ledger, part, sink.name, options.replaces_query)
        standing, why = settle(ledger, part, reports, sink.name)
        if forgets:
            sink.forget(producer, [each.part.task for each in reports])
        elif standing is not None and standing != ledger.standing:
            sink.write(producer, Entry(Kind.STANDING, part, standing=standing))
    if why:
        raise DriverError(why, retryable=True)
