"""All metrics: ours, which begin with ``outbox.``, and those of OpenTelemetry's conventions for messaging.

Tests look for each in docs/monitoring.md, on the dashboard, and in what a leader serves that has published.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from outbox_core.tracing import conventions


class Kind(StrEnum):
    """What may be computed of a metric."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric."""

    name: str
    kind: Kind
    unit: str  # its unit as UCUM writes it, in braces where it only says what is counted
    about: str


# What this process does.
CANDIDATE = Metric(
    "outbox.candidate", Kind.GAUGE, "", "Whether this process takes part in the election: 1, or 0"
)
LEADER = Metric("outbox.leader", Kind.GAUGE, "", "Whether this process leads: 1, or 0")
FENCE_TOKEN = Metric(conventions.TOKEN, Kind.GAUGE, "", "The fence token of this process, while it leads")
FAILOVER_DURATION = Metric(
    "outbox.failover.duration",
    Kind.HISTOGRAM,
    "s",
    "From an election of this process until it has raised the fence and its lanes start",
)
FAILOVER_SILENCE = Metric(
    "outbox.failover.silence",
    Kind.HISTOGRAM,
    "s",
    "From the last heartbeat of the former leader's lanes until this process had raised the fence",
)

# What its lanes have done and do.
MARKED = Metric("outbox.marked", Kind.COUNTER, "{record}", "Records that marks and selections returned")
TAKEN_OVER = Metric("outbox.taken_over", Kind.COUNTER, "{record}", "Those of them that other clusters wrote")
PURGED = Metric("outbox.purged", Kind.COUNTER, "{record}", "Records delivered, and deleted from the outbox")
SUPERSEDED = Metric(
    "outbox.superseded",
    Kind.COUNTER,
    "{record}",
    "Records deleted and not sent, as later ones of their keys waited",
)
FAILED = Metric(
    conventions.FAILED, Kind.COUNTER, "{record}", "Deliveries that failed, and are tried again or parked"
)
ABORTED = Metric("outbox.aborted", Kind.COUNTER, "{batch}", "Batches whose transaction was aborted")
TRANSACTIONS = Metric(
    "outbox.transactions", Kind.COUNTER, "{transaction}", "Transactions that were committed"
)
REPARTITIONED = Metric(
    "outbox.repartitioned",
    Kind.COUNTER,
    "{topic}",
    "Times that a lane found a topic with other partitions than at its last record, without a pause",
)
PAUSES = Metric("outbox.pauses", Kind.COUNTER, "s", "Seconds of pauses between two transactions of a lane")
UNCOPIED = Metric(
    "outbox.dead_letters.uncopied",
    Kind.COUNTER,
    "{record}",
    "Dead letters that could not be copied to their topic; their table has them",
)
RECOVERED = Metric(
    "outbox.recovered", Kind.COUNTER, "{record}", "Records that a lane found in the log when it started"
)
REMARKS = Metric("outbox.remarks", Kind.COUNTER, "{remark}", "Times that a lane marked everything anew")
IN_FLIGHT = Metric("outbox.in_flight", Kind.GAUGE, "{record}", "Records published and not yet purged")
WAITING = Metric(
    "outbox.waiting", Kind.GAUGE, "{record}", "Records marked or selected, and not yet published"
)
BLOCKED_KEYS = Metric(
    "outbox.blocked.keys", Kind.GAUGE, "{key}", "Keys that failed and were not delivered since"
)
HELD_TOPICS = Metric(
    "outbox.held.topics", Kind.GAUGE, "{topic}", "Topics that are left out as a whole, as their records fail"
)
DELIVERY_DURATION = Metric(
    "outbox.delivery.duration",
    Kind.HISTOGRAM,
    "s",
    "From the creation of a record until the broker's acknowledgement; of a sample where there are many",
)
STEP_DURATION = Metric(
    "outbox.step.duration", Kind.HISTOGRAM, "s", "Duration of a step of a lane that succeeded"
)
BATCH_SIZE = Metric(
    "outbox.batch.size", Kind.HISTOGRAM, "{record}", "Records of a step of a lane that was about some"
)
OPERATION_DURATION = Metric(
    "messaging.client.operation.duration",
    Kind.HISTOGRAM,
    "s",
    "From sending a record until the broker's report; in exactly-once delivery, a whole transaction",
)
SENT_MESSAGES = Metric(
    "messaging.client.sent.messages", Kind.COUNTER, "{message}", "Messages sent of which the broker reported"
)

# What the database says.
DATABASE_UP = Metric(
    "outbox.database.up", Kind.GAUGE, "", "Whether the database has answered within the last seconds: 1, or 0"
)
BACKLOG = Metric("outbox.backlog", Kind.GAUGE, "{record}", "Records that wait in the outbox")
BACKLOG_AGE = Metric(
    "outbox.backlog.age", Kind.GAUGE, "s", "Age of the oldest record in the outbox whose key is not parked"
)
PARKED_KEYS = Metric("outbox.parked.keys", Kind.GAUGE, "{key}", "Parked keys")
PARKED_AGE = Metric("outbox.parked.age", Kind.GAUGE, "s", "For how long the first of them has been parked")
BLOCKED_AGE = Metric(
    "outbox.blocked.age", Kind.GAUGE, "s", "For how long the key that failed first has been failing"
)
SILENT_LANES = Metric(
    "outbox.silent.lanes", Kind.GAUGE, "{lane}", "Lanes of the leader that have missed three heartbeats"
)
ORPHANS = Metric(
    "outbox.orphans",
    Kind.GAUGE,
    "{record}",
    "Records of clusters that nobody serves; 0 where rows do not tell where they were written",
)
PAUSED = Metric(
    "outbox.paused",
    Kind.GAUGE,
    "{pause}",
    "Topics that operators have paused; the whole outbox counts as one",
)
PAUSED_AGE = Metric(
    "outbox.paused.age", Kind.GAUGE, "s", "For how long the first of those without an end has been paused"
)
DEAD_ROWS = Metric(
    "outbox.table.dead_rows",
    Kind.GAUGE,
    "{row}",
    "Dead rows of the outbox, or what else waits to be removed; only where the database tells",
)
SNAPSHOT_AGE = Metric(
    "outbox.snapshot.age",
    Kind.GAUGE,
    "s",
    "Age of the oldest snapshot that keeps dead rows, 0 for none; only where the database tells",
)

METRICS = tuple(each for each in list(globals().values()) if isinstance(each, Metric))
"""All of them."""
