"""Histories of metrics, and when the alarms of ``deploy/`` fire in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from outbox_console.prometheus import exported
from outbox_core.monitoring import names
from outbox_core.monitoring.names import Metric


def series(metric: Metric, instance: str = "a", **labels: str) -> str:
    every = {"job": "outbox", "outbox_name": "shop", "instance": instance, **labels}
    return exported(metric) + "{" + ", ".join(f'{name}="{value}"' for name, value in every.items()) + "}"


def up(instance: str) -> str:
    return f'up{{job="outbox", instance="{instance}"}}'


@dataclass(frozen=True)
class Case:
    """A history of series, and when an alarm fires in it.

    Attributes:
        alarm: The alarm.
        values: Series → its values, two a minute, as promtool writes them.
        fires: The minutes at which it fires.
        quiet: The minutes at which it does not.
        figure: Its value, as its description has it.
        labels: Its labels, without severity.
    """

    alarm: str
    values: Mapping[str, str]
    fires: Sequence[float]
    quiet: Sequence[float]
    figure: str = ""
    labels: Mapping[str, str] = field(default_factory=lambda: {"job": "outbox", "outbox_name": "shop"})


FAILURES = {"OutboxDeliveriesFail": names.FAILED, "OutboxTransactionsAborted": names.ABORTED}
SELDOM = " ".join(f"{number} {number} {number} {number}" for number in range(1, 11))

CASES = [
    Case(
        "OutboxNoLeader",  # all were killed; after an hour the outbox is forgotten
        {series(names.CANDIDATE): "1x10 stale", series(names.LEADER): "1x10 stale"},
        (7, 60),
        (5, 6, 70),
    ),
    Case(
        "OutboxNoLeader",  # all live, and nobody leads for longer than a takeover takes
        {
            series(names.CANDIDATE): "1x60",
            series(names.LEADER): "1x4 0x1 1x4 0x60",
            series(names.LEADER, "b"): "0x60",
        },
        (10,),
        (3, 5),
    ),
    Case("OutboxNoHarvester", {up("a"): "1x10 0x20", up("b"): "1x4 0x20"}, (8,), (4, 7), labels={}),
    Case("OutboxNoHarvester", {'up{job="another"}': "1x20"}, (3,), (), labels={}),
    Case(
        "OutboxProcessDown",
        {up("a"): "1x60", up("b"): "1x4 0x20 1x20"},
        (9,),
        (7, 15),
        "",
        {"job": "outbox", "instance": "b"},
    ),
    Case(
        "OutboxNoStandby",
        {series(names.CANDIDATE): "1x90", series(names.CANDIDATE, "b"): "1x10 0x60 1x10"},
        (22,),
        (5, 15, 37),
        "1",
    ),
    Case(
        "OutboxTwoLeaders",  # of which one at a time stops for a moment
        {
            series(names.LEADER): "1x10 1 1 1 0 1 1 1 0 1 1x40",
            series(names.LEADER, "b"): "0x10 1 1 1 1 0 1 1 1 1 0x40",
        },
        (8,),
        (5, 15),
        "1.364",
    ),
    Case(
        "OutboxTwoLeaders",  # a leader that does not know yet; then a killed one
        {
            series(names.LEADER): "1x10 1 0x20 stale",
            series(names.LEADER, "b"): "0x10 1 1x20 stale",
            series(names.LEADER, "c"): "0x10 0 0x20 1x40",
        },
        (),
        (6, 8, 16, 18),
    ),
    Case("OutboxTakeoversOften", {series(names.FENCE_TOKEN): "1 1 7 7 9 9 30 30 31 31x90"}, (), (5, 20)),
    Case(
        "OutboxTakeoversOften",  # of two processes, which take turns
        {
            series(names.FENCE_TOKEN): "1 1 stale _ 9 9 stale _ 31 31 31x90",
            series(names.FENCE_TOKEN, "b"): "_ _ 7 7 stale _ 30 30 stale _ 40 40 40x90",
        },
        (6, 25),
        (3, 45),
        "5",
    ),
    Case(
        "OutboxSilentLane",
        {
            series(names.SILENT_LANES): "0x4 1x20 0x9",
            series(names.SILENT_LANES, "b"): "0x40",
            series(names.LEADER): "0x40",
            series(names.LEADER, "b"): "1x40",
        },
        (5,),
        (2, 4, 14),
        "1",
    ),
    Case(  # nobody leads: that is another alarm
        "OutboxSilentLane",
        {series(names.SILENT_LANES): "2x40", series(names.LEADER): "0x40"},
        (),
        (10,),
    ),
    Case(
        "OutboxOldRecords",
        {series(names.BACKLOG_AGE): "10x4 61x20 3x9", series(names.BACKLOG_AGE, "b"): "10x4 60x20 3x9"},
        (9,),
        (2, 5, 14),
        "1m 1s",
    ),
    Case(
        "OutboxBlockedKey",
        {series(names.BLOCKED_AGE): "0x4 61x9 0x9", series(names.BLOCKED_AGE, "b"): "0x30"},
        (4,),
        (1, 3, 9),
        "1m 1s",
    ),
    Case(
        "OutboxParkedKeys",
        {series(names.PARKED_KEYS): "0x4 2x9 0x9", series(names.PARKED_KEYS, "b"): "0x30"},
        (4,),
        (1, 3, 9),
        "2",
    ),
    *(
        Case(
            alarm,  # a failure every two minutes, in one of two lanes
            {series(metric, lane="0"): f"0x10 {SELDOM} 9x20", series(metric, lane="1"): "1x70"},
            (17, 25),
            (5, 14, 37),
            "6.667m",
        )
        for alarm, metric in FAILURES.items()
    ),
    *(
        Case(
            alarm,  # in both lanes
            {series(metric, lane=lane): "0x10 3+3x40 124x20" for lane in "01"},
            (17, 25),
            (5, 14, 32),
            "200m",
        )
        for alarm, metric in FAILURES.items()
    ),
    *(Case(alarm, {series(metric): "0x10 50x90"}, (), (6, 12, 20)) for alarm, metric in FAILURES.items()),
    Case(
        "OutboxTakenOver",
        {series(names.TAKEN_OVER, lane=lane): "0x4 90x40" for lane in "01"},
        (3, 6),
        (1, 9),
        "180",
    ),
    Case(
        "OutboxPartitionsChanged",  # each lane finds it
        {series(names.REPARTITIONED, lane=lane): "0x4 1x80" for lane in "01"},
        (4, 60),
        (2, 70),
    ),
    Case(
        "OutboxOrphans",
        {series(names.ORPHANS): "0x4 3x20 0x9", series(names.ORPHANS, "b"): "0x4 2x20 0x9"},
        (9,),
        (2, 5, 14),
        "3",
    ),
    Case(
        "OutboxLongPause",  # a second process sees the same pause
        {
            series(names.PAUSED_AGE): "0x4 30+30x130 0x9",
            series(names.PAUSED_AGE, "b"): "0x4 30+30x130 0x9",
        },
        (65,),
        (50, 62, 70),
        "1h 3m 0s",
    ),
    Case(
        "OutboxDatabaseUnreachable",
        {series(names.DATABASE_UP): "1x4 0x20 1x9", series(names.DATABASE_UP, "b"): "1x9 0x9 1x20"},
        (7,),
        (3, 5.5, 13),
    ),
    Case(
        "OutboxOldSnapshot",
        {
            series(names.DEAD_ROWS): "2e+06x40",
            series(names.SNAPSHOT_AGE): "0x4 61x20 0x9",
            series(names.DEAD_ROWS, "b"): "0x40",
            series(names.SNAPSHOT_AGE, "b"): "0x40",
        },
        (9,),
        (2, 5, 14),
        "2M",
    ),
    Case(
        "OutboxDeadRows",
        {
            series(names.DEAD_ROWS): "1000001x60 5x9",
            series(names.SNAPSHOT_AGE): "0x45 61x9",
            series(names.DEAD_ROWS, "b"): "0x70",
            series(names.SNAPSHOT_AGE, "b"): "0x70",
        },
        (16, 21),
        (10, 24, 32),
        "1M",
    ),
    Case(
        "OutboxDeadRows",
        {series(names.DEAD_ROWS): "200000x60", series(names.SNAPSHOT_AGE): "0x60"},
        (),
        (30,),
    ),
    # At its limit nothing is wrong.
    Case("OutboxOldRecords", {series(names.BACKLOG_AGE): "60x40"}, (), (15,)),
    Case("OutboxBlockedKey", {series(names.BLOCKED_AGE): "60x40"}, (), (15,)),
    *(
        Case("OutboxOldSnapshot", {series(names.DEAD_ROWS): dead, series(names.SNAPSHOT_AGE): age}, (), (15,))
        for dead, age in (("100000x40", "99x40"), ("200000x40", "60x40"))
    ),
    Case(
        "OutboxDeadRows",
        {series(names.DEAD_ROWS): "1000000x60", series(names.SNAPSHOT_AGE): "0x60"},
        (),
        (25,),
    ),
]
