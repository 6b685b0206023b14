"""What an engineer on call is told of: the alarms, as rules of Prometheus.

Each is about a condition that somebody has to do something about. Limits are those of ``outbox health``. How
long a condition must last is longer than what heals by itself: a takeover, a restart, a failover.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from outbox_console.prometheus import exported
from outbox_core.monitoring import names
from outbox_core.monitoring.names import Metric
from outbox_core.status.clusters import RECENT_SECONDS
from outbox_core.status.dead_rows import MANY
from outbox_core.status.health import Code, Thresholds

from deploy.series import GROUP, JOBS, OUTBOX, aggregate, duration

MINUTE, HOUR = 60.0, 3600.0
LIMITS = Thresholds()
"""Those of ``outbox health``."""
TAKEOVERS, TAKEOVERS_SECONDS = 4, 30 * MINUTE
"""More takeovers than that in so many seconds are too many; an update of four processes makes no more."""
LEADERS = 1.2
"""More leaders on average within five minutes are too many: a second one for a whole minute."""


class Severity(StrEnum):
    """Who is told."""

    CRITICAL = "critical"
    """Somebody is woken: records do not flow, or soon will not."""
    WARNING = "warning"
    """Somebody looks at it on the same day."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """An alarm.

    Attributes:
        name: Its name; in lower case the anchor of its section in ``docs/runbook.md``.
        expression: Its condition.
        seconds: For how long the condition must last.
        severity: Who is told.
        summary: What is wrong, in a few words.
        description: What it means, with the figure.
        problem: The problem of ``outbox health`` that is the same.
    """

    name: str
    expression: str
    seconds: float
    severity: Severity
    summary: str
    description: str
    problem: Code | None = None

    def rule(self, docs: str) -> dict[str, Any]:
        """Returns the rule; ``docs`` is the address of the folder of documents."""
        return {
            "alert": self.name,
            "expr": self.expression,
            **({"for": duration(self.seconds)} if self.seconds else {}),
            "labels": {"severity": self.severity.value},
            "annotations": {
                "summary": self.summary,
                "description": self.description,
                "runbook_url": f"{docs}/runbook.md#{self.name.lower()}",
            },
        }


OF = f"{{{{ $labels.{OUTBOX} }}}} ({{{{ $labels.job }}}})"
"""The outbox, in texts."""


def rules(docs: str, factor: float = 1.0) -> dict[str, Any]:
    """Returns the file of rules as data.

    Args:
        docs: The address of the folder of documents, without a slash at its end.
        factor: By what all durations and limits are divided; not 1 in trials only.
    """
    return {"groups": [{"name": "outbox", "rules": [each.rule(docs) for each in alarms(factor)]}]}


def alarms(factor: float = 1.0) -> tuple[Alarm, ...]:
    """Returns all alarms, the most urgent first."""
    return (*_leadership(factor), *_delivery(factor), *_database(factor))


def _most(metric: Metric) -> str:
    return aggregate("max", exported(metric))


def _sum(metric: Metric) -> str:
    return aggregate("sum", exported(metric))


def _rate(metric: Metric, seconds: float) -> str:
    return aggregate("sum", f"rate({exported(metric)}[{duration(seconds)}])")


def _leadership(factor: float) -> tuple[Alarm, ...]:
    known = aggregate("group", f"last_over_time({exported(names.CANDIDATE)}[{duration(HOUR / factor)}])")
    window, overlap = duration(TAKEOVERS_SECONDS / factor), duration(5 * MINUTE / factor)
    return (
        Alarm(
            "OutboxNoLeader",
            f"{known} unless on ({GROUP}) {_sum(names.LEADER)} > 0",
            MINUTE / factor,
            Severity.CRITICAL,
            "Nobody leads",
            f"No process harvests outbox {OF}: its records wait.",
            Code.NO_LEADER,
        ),
        Alarm(
            "OutboxNoHarvester",
            f"absent(up{{{JOBS}}} == 1)",
            2 * MINUTE / factor,
            Severity.CRITICAL,
            "No harvester answers",
            "Prometheus reaches no harvester at all, of any outbox.",
        ),
        Alarm(
            "OutboxProcessDown",
            f"up{{{JOBS}}} == 0",
            5 * MINUTE / factor,
            Severity.WARNING,
            "A harvester does not answer",
            "{{ $labels.instance }} ({{ $labels.job }}) has ended, hangs, or cannot be reached.",
        ),
        Alarm(
            "OutboxNoStandby",
            f"{_sum(names.CANDIDATE)} < 2",
            15 * MINUTE / factor,
            Severity.WARNING,
            "Nobody could take over",
            f"{{{{ $value }}}} processes take part in the election of outbox {OF}, fewer than two.",
        ),
        Alarm(
            "OutboxTwoLeaders",
            # On average: leaders that take the fence from each other stop leading for moments, and a former
            # leader may not know it yet.
            f"avg_over_time(({_sum(names.LEADER)})[{overlap}:]) > {LEADERS}",
            0,
            Severity.WARNING,
            "Several processes lead",
            f"In {overlap} {{{{ $value | humanize }}}} processes on average believed to lead outbox {OF}.",
        ),
        Alarm(
            "OutboxTakeoversOften",
            f"changes(({_most(names.FENCE_TOKEN)})[{window}:]) > {TAKEOVERS}",
            0,
            Severity.WARNING,
            "Leadership changes again and again",
            f"The fence token of outbox {OF} was raised {{{{ $value }}}} times within {window}.",
        ),
    )


def _delivery(factor: float) -> tuple[Alarm, ...]:
    window, takeover = 5 * MINUTE / factor, duration(RECENT_SECONDS / factor)
    taken_over = f"increase({exported(names.TAKEN_OVER)}[{takeover}])"
    repartitioned = f"increase({exported(names.REPARTITIONED)}[{duration(HOUR / factor)}])"
    return (
        Alarm(
            "OutboxSilentLane",
            # Where nobody leads, all lanes are silent, and that alarm fires.
            f"{_most(names.SILENT_LANES)} > 0 and on ({GROUP}) {_sum(names.LEADER)} > 0",
            2 * MINUTE / factor,
            Severity.CRITICAL,
            "A lane is silent",
            f"{{{{ $value }}}} lanes of outbox {OF} write no heartbeats: their records wait.",
            Code.SILENT_LANE,
        ),
        Alarm(
            "OutboxOldRecords",
            f"{_most(names.BACKLOG_AGE)} > {LIMITS.oldest / factor:g}",
            5 * MINUTE / factor,
            Severity.CRITICAL,
            "Records wait for too long",
            f"The oldest record of outbox {OF} is {{{{ $value | humanizeDuration }}}} old.",
            Code.OLD_RECORDS,
        ),
        Alarm(
            "OutboxBlockedKey",
            f"{_most(names.BLOCKED_AGE)} > {LIMITS.blocked / factor:g}",
            MINUTE / factor,
            Severity.WARNING,
            "A key's first record keeps failing",
            f"A key of outbox {OF} has been failing for {{{{ $value | humanizeDuration }}}}.",
            Code.BLOCKED_KEY,
        ),
        Alarm(
            "OutboxParkedKeys",
            f"{_most(names.PARKED_KEYS)} > {LIMITS.parked}",
            MINUTE / factor,
            Severity.WARNING,
            "Keys are parked",
            f"{{{{ $value }}}} keys of outbox {OF} wait for an operator: 'outbox parked list' says why.",
            Code.PARKED_KEYS,
        ),
        Alarm(
            "OutboxDeliveriesFail",
            f"{_rate(names.FAILED, window)} > 0",
            10 * MINUTE / factor,
            Severity.WARNING,
            "Deliveries fail, and are tried again",
            f"{{{{ $value | humanize }}}} deliveries per second of outbox {OF} fail, without a pause.",
        ),
        Alarm(
            "OutboxTransactionsAborted",
            f"{_rate(names.ABORTED, window)} > 0",
            10 * MINUTE / factor,
            Severity.WARNING,
            "Transactions are aborted again and again",
            f"{{{{ $value | humanize }}}} batches per second of outbox {OF} are aborted, without a pause.",
        ),
        Alarm(
            "OutboxTakenOver",
            f"{aggregate('sum', taken_over)} > 0",
            0,
            Severity.WARNING,
            "Records of another cluster are taken over",
            f"{{{{ $value | humanize }}}} records of outbox {OF} in {takeover}: their cluster may be lost.",
            Code.TAKEN_OVER,
        ),
        Alarm(
            "OutboxPartitionsChanged",
            f"{aggregate('sum', repartitioned)} > 0",
            0,
            Severity.WARNING,
            "Somebody has added partitions to a topic, and keys have moved",
            f"A topic of outbox {OF} has other partitions: consumers may read keys out of order.",
        ),
        Alarm(
            "OutboxOrphans",
            f"{_most(names.ORPHANS)} > 0",
            5 * MINUTE / factor,
            Severity.WARNING,
            "Records of a cluster that nobody serves",
            f"{{{{ $value }}}} records of outbox {OF} name a cluster that is none of those configured.",
            Code.ORPHANS,
        ),
        Alarm(
            "OutboxLongPause",
            f"{_most(names.PAUSED_AGE)} > {LIMITS.paused / factor:g}",
            MINUTE / factor,
            Severity.WARNING,
            "Something is paused, and nobody has resumed it",
            f"Records of outbox {OF} wait for a pause that has lasted {{{{ $value | humanizeDuration }}}}.",
            Code.LONG_PAUSE,
        ),
    )


def _database(factor: float) -> tuple[Alarm, ...]:
    dead, snapshot = _most(names.DEAD_ROWS), f"{_most(names.SNAPSHOT_AGE)} > {LIMITS.snapshot / factor:g}"
    many = LIMITS.dead / factor
    return (
        Alarm(
            "OutboxDatabaseUnreachable",
            f"{_most(names.DATABASE_UP)} == 0",
            MINUTE / factor,
            Severity.CRITICAL,
            "The database does not answer",
            f"No process reaches the database of outbox {OF}.",
            Code.DATABASE_UNREACHABLE,
        ),
        Alarm(
            "OutboxOldSnapshot",
            f"{dead} > {many:.0f} and on ({GROUP}) {snapshot}",
            5 * MINUTE / factor,
            Severity.WARNING,
            "An old snapshot keeps dead rows",
            f"{{{{ $value | humanize }}}} dead rows of {OF} wait for a snapshot: 'outbox status' says whose.",
            Code.OLD_SNAPSHOT,
        ),
        Alarm(
            "OutboxDeadRows",
            f"{dead} > {MANY * many:.0f} unless on ({GROUP}) {snapshot}",
            15 * MINUTE / factor,
            Severity.WARNING,
            "Dead rows are not removed",
            f"{{{{ $value | humanize }}}} dead rows of outbox {OF} wait, and nobody is known to keep them.",
            Code.DEAD_ROWS,
        ),
    )
