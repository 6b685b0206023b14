"""The dashboard of outboxes: what it shows, row by row."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as models
from outbox_console.prometheus import exported
from outbox_core.monitoring import names
from outbox_core.status.dead_rows import MANY

from deploy.alerts import LIMITS, TAKEOVERS, TAKEOVERS_SECONDS
from deploy.panels import OPERATIONS, SOURCE, Panel, Shown, curves, link, spread, states
from deploy.queries import (
    CHOICE,
    EACH,
    EACH_LANE,
    JOB,
    Query,
    chosen,
    most,
    published,
    quantile,
    quantiles,
    rate,
    total,
)
from deploy.series import DESTINATION, ERROR, GROUP, LANE, OUTBOX, STEP, duration
from deploy.verdict import verdict


def render(docs: str) -> str:
    """Returns the dashboard as the text of a file; ``docs`` is the address of the folder of documents."""
    made = dashboard.Dashboard("Outbox").uid("outbox").tags(["outbox"]).refresh("30s").time("now-3h", "now")
    made.description("Transactional outboxes and their harvesters").timezone("browser").editable()
    made.tooltip(models.DashboardCursorSync.CROSSHAIR)
    made.link(link("Monitoring", f"{docs}/monitoring.md")).link(link("Operations", f"{docs}/runbook.md"))
    source = dashboard.DatasourceVariable("datasource").id("datasource").label("Data source")
    made.with_variable(source.type("prometheus"))
    candidate = exported(names.CANDIDATE)
    made.with_variable(_choice(JOB, "Job", f"label_values({candidate}, {JOB})"))
    outboxes = f'label_values({candidate}{{{JOB}=~"${JOB}"}}, {OUTBOX})'
    made.with_variable(_choice(CHOICE, "Outbox", outboxes))
    numbers = itertools.count(1)
    for title, panels in _rows():
        made.with_row(dashboard.Row(title).id(next(numbers)))
        for shown in panels:
            made.with_panel(shown.complete(docs, next(numbers)))
    return json.dumps(made.build(), cls=JSONEncoder, indent=2, sort_keys=True) + "\n"


def _choice(name: str, title: str, query: str) -> dashboard.QueryVariable:
    # The library gives all of them one id. A Grafana before version 11 would know the last of them only.
    variable = dashboard.QueryVariable(name).id(name).label(title).query(query).datasource(SOURCE)
    variable.refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(models.VariableSort.ALPHABETICAL_ASC)
    everything = models.VariableOption(selected=True, text=["All"], value=["$__all"])
    return variable.multi(True).include_all(True).all_value(".*").current(everything)


def _rows() -> Iterator[tuple[str, list[Shown]]]:
    yield "Verdict", verdict()
    yield "Backlog and age", _backlog()
    yield "Throughput and latency", _flow()
    yield "Lanes", _lanes()
    yield "Steps", _steps()
    yield "Failures and parking", _failures()
    yield "Leadership", _leadership()
    yield "Database upkeep", _upkeep()


def _backlog() -> list[Shown]:
    backlog = Panel("Backlog", "Records that wait: returns to about 0.", "short", [most(names.BACKLOG)])
    about = "Of the oldest record whose key is not parked; the line is the limit of the alarm."
    age = Panel("Age", about, "s", [most(names.BACKLOG_AGE)], f"{OPERATIONS}outboxoldrecords", LIMITS.oldest)
    return [curves(backlog, 12), curves(age, 12)]


def _flow() -> list[Shown]:
    by_topic = [published(f"{OUTBOX}, {DESTINATION}", f"{EACH} {{{{{DESTINATION}}}}}")]
    stages = [
        rate(names.MARKED, legend=f"{EACH} marked"),
        published(legend=f"{EACH} published"),
        rate(names.PURGED, legend=f"{EACH} purged"),
        rate(names.SUPERSEDED, legend=f"{EACH} superseded"),
    ]
    commit = "From the creation of a record until the broker's acknowledgement."
    sending = "From handing a record to the client until the broker's report."
    # Over several scrapes: in $__interval there may be one, and thus no increase.
    buckets = Query(
        f"sum by (le) (increase({chosen(names.DELIVERY_DURATION, '_bucket')}[$__rate_interval]))", "{{le}}"
    )
    return [
        curves(Panel("Published, by topic", "Records per second.", "cps", by_topic), 12, stacked=True),
        curves(
            Panel("Marked, published, purged", "Healthy: about equal; not superseded.", "cps", stages), 12
        ),
        curves(Panel("From commit to acknowledgement", commit, "s", quantiles(names.DELIVERY_DURATION)), 12),
        spread(Panel("From commit to acknowledgement, spread", commit, "s", [buckets]), 12),
        curves(Panel("Sending", sending, "s", quantiles(names.OPERATION_DURATION)), 24),
    ]


def _lanes() -> list[Shown]:
    by = f"{OUTBOX}, {LANE}"
    panels = [
        Panel(
            "Published, by lane",
            "Lanes have about equal shares of keys.",
            "cps",
            [published(by, EACH_LANE)],
        ),
        Panel("In flight", "Published and not yet purged.", "short", [total(names.IN_FLIGHT, by, EACH_LANE)]),
        Panel(
            "Waiting",
            "Marked or selected, and not yet published.",
            "short",
            [total(names.WAITING, by, EACH_LANE)],
        ),
        Panel("Remarks", "A few after an incident.", "cps", [rate(names.REMARKS, by, EACH_LANE)]),
    ]
    return [curves(each, 6) for each in panels]


def _steps() -> list[Shown]:
    by, legend = f"{OUTBOX}, {STEP}", f"{EACH} {{{{{STEP}}}}}"
    records, steps = (rate(names.BATCH_SIZE, by, legend, part=part).expression for part in ("_sum", "_count"))
    transactions, pauses = (rate(each).expression for each in (names.TRANSACTIONS, names.PAUSES))
    return [
        curves(
            Panel(
                "Duration of steps, p95",
                "Milliseconds.",
                "s",
                [quantile(names.STEP_DURATION, 0.95, by, legend)],
            ),
            8,
        ),
        curves(
            Panel("Steps", "Per second.", "cps", [rate(names.STEP_DURATION, by, legend, part="_count")]), 8
        ),
        curves(
            Panel("Records of a step", "On average.", "short", [Query(f"{records} / {steps}", legend)]), 8
        ),
        curves(
            Panel("Transactions", "Per second; exactly-once.", "cps", [rate(names.TRANSACTIONS)]),
            12,
        ),
        curves(
            Panel(
                "Pause between transactions",
                "On average; exactly-once. Healthy: below 5 ms.",
                "s",
                [Query(f"{pauses} / {transactions}", EACH)],
            ),
            12,
        ),
    ]


def _failures() -> list[Shown]:
    wrong = rate(
        names.SENT_MESSAGES,
        f"{OUTBOX}, {DESTINATION}",
        f"{EACH} {{{{{DESTINATION}}}}}",
        more=f'{ERROR}!=""',
    )
    attempts = [
        rate(metric, legend=f"{EACH} {word}")
        for metric, word in (
            (names.FAILED, "failed"),
            (names.ABORTED, "aborted"),
            (names.RECOVERED, "recovered"),
            (names.UNCOPIED, "dead letters without a copy"),
        )
    ]
    ages = [
        Query(most(metric).expression, f"{EACH} {word}")
        for metric, word in ((names.BLOCKED_AGE, "blocked"), (names.PARKED_AGE, "parked"))
    ]
    lane = f"{OUTBOX}, {LANE}"
    panels = [
        Panel("Parked keys", "Healthy: 0.", "short", [most(names.PARKED_KEYS)], f"{OPERATIONS}parked-keys"),
        Panel("Blocked keys, by lane", "Healthy: 0.", "short", [total(names.BLOCKED_KEYS, lane, EACH_LANE)]),
        Panel(
            "Held topics, by lane",
            "Healthy: 0.",
            "short",
            [total(names.HELD_TOPICS, lane, EACH_LANE)],
            f"{OPERATIONS}parked-keys",
        ),
        Panel("Blocked and parked for", "Healthy: 0.", "s", ages, f"{OPERATIONS}parked-keys"),
        Panel("Failed deliveries", "Records, or batches, per second. Healthy: 0.", "cps", attempts),
        Panel("Failed messages, by topic", "Per second. Healthy: none.", "cps", [wrong]),
        Panel(
            "Silent lanes",
            "Three heartbeats missed. Healthy: 0.",
            "short",
            [most(names.SILENT_LANES)],
            f"{OPERATIONS}outboxsilentlane",
        ),
        Panel(
            "Changed partitions",
            "Topics to which partitions were added without a pause. Healthy: none.",
            "cps",
            [rate(names.REPARTITIONED)],
            f"{OPERATIONS}outboxpartitionschanged",
        ),
        Panel(
            "Paused for",
            "By operators, without an end. Healthy: 0.",
            "s",
            [most(names.PAUSED_AGE)],
            f"{OPERATIONS}outboxlongpause",
        ),
        Panel(
            "Orphans",
            "Records of a cluster that nobody serves. Healthy: 0.",
            "short",
            [most(names.ORPHANS)],
            f"{OPERATIONS}outboxorphans",
        ),
    ]
    return [*(curves(each, 8) for each in panels[:3]), *(curves(each, 12) for each in panels[3:])]


def _leadership() -> list[Shown]:
    by = f"{GROUP}, instance"
    who = Panel(
        "Who leads", "1 for the leader.", "none", [total(names.LEADER, by, f"{EACH} {{{{instance}}}}")]
    )
    often = Query(f"changes(({most(names.FENCE_TOKEN).expression})[{duration(TAKEOVERS_SECONDS)}:])", EACH)
    # They are rare: within a few scrapes, a curve would be a point, and seldom there.
    lately = duration(TAKEOVERS_SECONDS)
    durations = [
        Query(quantile(metric, 0.95, within=lately).expression, f"{EACH} {word}")
        for metric, word in ((names.FAILOVER_DURATION, "duration"), (names.FAILOVER_SILENCE, "silence"))
    ]
    about = "In half an hour. Silence: what one has cost at most; duration: from the election to its lanes."
    takeovers = Panel(
        "Takeovers",
        "In half an hour.",
        "none",
        [often],
        f"{OPERATIONS}outboxtakeoversoften",
        TAKEOVERS + 1,
    )
    return [
        states(who, 12, {0: ("stands by", "blue"), 1: ("leads", "green")}),
        curves(Panel("Takeovers, p95", about, "s", durations), 6),
        curves(takeovers, 6),
    ]


def _upkeep() -> list[Shown]:
    page = f"{OPERATIONS}dead-rows"
    others = f"{OPERATIONS}outboxtakenover"
    return [
        curves(
            Panel("Dead rows", "Of the table.", "short", [most(names.DEAD_ROWS)], page, LIMITS.dead * MANY),
            8,
        ),
        curves(
            Panel(
                "Oldest snapshot",
                "That keeps dead rows.",
                "s",
                [most(names.SNAPSHOT_AGE)],
                page,
                LIMITS.snapshot,
            ),
            8,
        ),
        curves(Panel("Taken over", "Records of other clusters.", "cps", [rate(names.TAKEN_OVER)], others), 8),
    ]
