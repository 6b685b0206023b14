"""The first row of the dashboard: is all well?"""

from __future__ import annotations

from outbox_core.monitoring import names
from outbox_core.status.dead_rows import MANY

from deploy.alerts import LIMITS
from deploy.panels import OPERATIONS, WIDTH, Panel, Shown, figure, states
from deploy.queries import EACH, JOB, Query, most, present
from deploy.series import GROUP


def verdict() -> list[Shown]:
    """Returns its panels."""
    firing = f'ALERTS{{alertname=~"Outbox.*", alertstate="firing", {JOB}=~"${JOB}|"}}'
    alarms = Panel(
        "Alarms that fire",
        "The alarms of Prometheus, over time. None is healthy.",
        "short",
        [Query(f"max by (alertname, {GROUP}) ({firing})", f"{{{{alertname}}}} {EACH}")],
        f"{OPERATIONS}alarms",
    )
    return [
        figure(
            Panel("Leaders", "Healthy: 1.", "none", [present(names.LEADER)], f"{OPERATIONS}outboxnoleader"),
            ("red", None),
            ("green", 1),
            ("orange", 2),
        ),
        figure(
            Panel(
                "Candidates",
                "Processes that take part. Healthy: two or more.",
                "none",
                [present(names.CANDIDATE)],
                f"{OPERATIONS}outboxnostandby",
            ),
            ("red", None),
            ("orange", 1),
            ("green", 2),
        ),
        figure(
            Panel(
                "Database",
                "1 if a process reaches it.",
                "none",
                [most(names.DATABASE_UP)],
                f"{OPERATIONS}outboxdatabaseunreachable",
            ),
            ("red", None),
            ("green", 1),
        ),
        figure(
            Panel(
                "Oldest record",
                "Age of the oldest record whose key is not parked. Healthy: seconds.",
                "s",
                [most(names.BACKLOG_AGE)],
                f"{OPERATIONS}outboxoldrecords",
                LIMITS.oldest,
            )
        ),
        figure(
            Panel(
                "Backlog", "Records that wait.", "short", [most(names.BACKLOG)], f"{OPERATIONS}what-to-watch"
            ),
            ("blue", None),
        ),
        figure(
            Panel(
                "Blocked for",
                "For how long a key has been failing. Healthy: 0.",
                "s",
                [most(names.BLOCKED_AGE)],
                f"{OPERATIONS}outboxblockedkey",
                LIMITS.blocked,
            )
        ),
        figure(
            Panel(
                "Parked keys",
                "Healthy: 0.",
                "none",
                [most(names.PARKED_KEYS)],
                f"{OPERATIONS}outboxparkedkeys",
                LIMITS.parked + 1,
            )
        ),
        figure(
            Panel(
                "Dead rows",
                "What waits to be removed from the table.",
                "short",
                [most(names.DEAD_ROWS)],
                f"{OPERATIONS}dead-rows",
                LIMITS.dead * MANY,
            )
        ),
        states(alarms, WIDTH, {1: ("fires", "red")}),
    ]
